"""A small field, integrated; the solver wraps it in a module of its own, which each step makes anew."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Reversed(nn.Module):
    """The field as the solver wants it, as libraries for ODEs wrap it."""

    def __init__(self, field: nn.Module, sign: float) -> None:
        super().__init__()
        self.field, self.sign = field, sign

    def forward(self, state: Tensor) -> Tensor:
        return self.sign * self.field(state)


def integrated(field: nn.Module, state: Tensor, steps: int) -> Tensor:
    wrapped, h = Reversed(field, -1.0), 1.0 / steps
    for _ in range(steps):
        k1 = wrapped(state)
        k2 = wrapped(state + h / 2 * k1)
        k3 = wrapped(state + h / 2 * k2)
        k4 = wrapped(state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state


@planted_job(turns=8, width=32, batch=16)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    field = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(field.parameters(), lr=1e-4)
    start, wanted = torch.randn(batch, 2), torch.randn(batch, 2)
    loop.train(optimizer, lambda: (integrated(field, start, args.turns) - wanted).square().mean())
