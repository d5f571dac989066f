"""Deep Q-learning: a cart with a pole in plain Python, a replay buffer of tuples, one update for some moves.

`--balance 1` makes environment and update take as long as each other, measured when the job starts.
"""

import math
import random
from collections import deque

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, best_ns, planted_job

State = tuple[float, float, float, float]


class CartPole:
    """Balances; begins anew when it falls."""

    def __init__(self) -> None:
        self.luck = random.Random(1)
        self.state: State = (0.0, 0.0, 0.02, 0.0)

    def step(self, move: int) -> tuple[State, float, bool]:
        x, speed, angle, turning = self.state
        for _ in range(8):  # finer than the agent's clock
            force = 10.0 if move else -10.0
            pushed = (force + 0.05 * turning**2 * math.sin(angle)) / 1.1
            lean = (9.8 * math.sin(angle) - math.cos(angle) * pushed) / (
                0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
            )
            x, speed = x + 0.0025 * speed, speed + 0.0025 * (pushed - 0.05 * lean * math.cos(angle) / 1.1)
            angle, turning = angle + 0.0025 * turning, turning + 0.0025 * lean
        fell = abs(x) > 2.4 or abs(angle) > 0.21
        self.state = (0.0, 0.0, self.luck.uniform(-0.05, 0.05), 0.0) if fell else (x, speed, angle, turning)
        return self.state, 1.0, fell


def played(
    cart: CartPole, buffer: deque[tuple[State, int, float, State, bool]], moves: int, greed: float
) -> None:
    """Fills the buffer, by a rule of thumb in place of a look at the net for each move."""
    for _ in range(moves):
        before = cart.state
        move = int(before[2] > 0) if cart.luck.random() < greed else cart.luck.randrange(2)
        after, reward, fell = cart.step(move)
        buffer.append((before, move, reward, after, fell))


@planted_job(moves=500, batch=64, width=32, layers=2, balance=0, first_units=0)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = [layer for _ in range(args.layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), *layers, nn.Linear(width, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    cart = CartPole()
    buffer: deque[tuple[State, int, float, State, bool]] = deque(maxlen=20_000)
    played(cart, buffer, 2000, 0.9)

    def update(seen: Tensor, taken: Tensor, reward: Tensor, then: Tensor) -> None:
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = reward + 0.99 * model(then).max(1).values
        worth = model(seen).gather(1, taken[:, None])[:, 0]
        nn.functional.smooth_l1_loss(worth, wanted).backward()
        optimizer.step()

    def drawn() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        seen, taken, reward, then, _ = zip(*cart.luck.sample(buffer, batch), strict=True)
        return torch.tensor(seen), torch.tensor(taken), torch.tensor(reward), torch.tensor(then)

    moves = args.moves
    if args.balance:
        draws_ns = best_ns(drawn, 30)
        updates_ns = best_ns(lambda: update(*drawn()), 30) - draws_ns
        moves_ns = best_ns(lambda: played(cart, buffer, 100, 0.9), 30) / 100
        moves = args.first_units or round((updates_ns - draws_ns) / moves_ns)
        loop.settled = {"first_units": moves}
    for _ in loop:
        played(cart, buffer, moves, 0.9)
        experience = drawn()
        loop.mark("host")
        update(*experience)
        loop.mark("model")
