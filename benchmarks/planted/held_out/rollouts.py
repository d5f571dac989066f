"""A policy for a maze that is walked in plain Python: the walks take the step, learning hardly any of it."""

import random

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

SIDE = 8
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
WALLS = {(x, y) for x in range(SIDE) for y in range(SIDE) if (3 * x + 5 * y) % 7 == 0 and x + y > 1}


def walk(chances: list[list[float]], length: int, luck: random.Random) -> tuple[list[int], list[int], float]:
    """Cells, moves and reward of one walk from the corner."""
    x = y = 0
    cells, moves, reward = [], [], 0.0
    for _ in range(length):
        cell = SIDE * x + y
        move = luck.choices(range(4), chances[cell])[0]
        over, up = x + MOVES[move][0], y + MOVES[move][1]
        if 0 <= over < SIDE and 0 <= up < SIDE and (over, up) not in WALLS:
            x, y = over, up
        reward += 1.0 if x + y > SIDE else -0.1
        cells.append(cell)
        moves.append(move)
    return cells, moves, reward


@planted_job(walks=24, length=120)
def main(loop: Loop, args: Knobs) -> None:
    policy = nn.Sequential(nn.Embedding(SIDE * SIDE, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    luck = random.Random(3)
    everywhere = torch.arange(SIDE * SIDE)
    for _ in loop:
        with torch.no_grad():
            chances = policy(everywhere).softmax(-1).tolist()
        loop.mark("forward")
        walks = [walk(chances, args.length, luck) for _ in range(args.walks)]
        cells = torch.tensor([cell for found, _, _ in walks for cell in found])
        moves = torch.tensor([move for _, found, _ in walks for move in found])
        rewards = torch.tensor([reward for _, found, reward in walks for _ in found])
        loop.mark("host")
        optimizer.zero_grad()
        scores = policy(cells).log_softmax(-1).gather(1, moves[:, None]).squeeze(1)
        loss = -(scores * (rewards - rewards.mean())).mean()
        loop.learn(loss, optimizer)
