"""Self-play: Monte Carlo tree search of noughts and crosses in plain Python, then an update."""

import math
import random

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def won(board: list[int]) -> int:
    return next((board[a] for a, b, c in LINES if board[a] and board[a] == board[b] == board[c]), 0)


def playout(board: list[int], player: int, luck: random.Random) -> int:
    """Random moves to the end."""
    while not won(board) and 0 in board:
        board[luck.choice([at for at in range(9) if not board[at]])] = player
        player = -player
    return won(board)


def searched(board: list[int], player: int, playouts: int, luck: random.Random) -> list[int]:
    """Visits of each move, by upper confidence bounds."""
    visits, worth = [0] * 9, [0.0] * 9
    free = [at for at in range(9) if not board[at]]
    for turn in range(1, playouts + 1):
        move = max(
            free,
            key=lambda at: (
                math.inf
                if not visits[at]
                else worth[at] / visits[at] + math.sqrt(2 * math.log(turn) / visits[at])
            ),
        )
        after = board.copy()
        after[move] = player
        visits[move] += 1
        worth[move] += player * playout(after, -player, luck)
    return visits


@planted_job(playouts=120, games=4, width=16)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    model = nn.Sequential(nn.Linear(9, width), nn.ReLU(), nn.Linear(width, 9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    luck = random.Random(9)
    for _ in loop:
        boards, visits = [], []
        for _ in range(args.games):
            board = [0] * 9
            for player in (1, -1):
                board[luck.choice([at for at in range(9) if not board[at]])] = player
            boards.append(board)
            visits.append(searched(board, 1, args.playouts, luck))
        loop.mark("host")
        optimizer.zero_grad()
        wanted = torch.tensor(visits) / args.playouts
        loss = -(wanted * model(torch.tensor(boards, dtype=torch.float32)).log_softmax(-1)).sum(-1).mean()
        loop.learn(loss, optimizer)
