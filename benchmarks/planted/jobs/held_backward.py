"""A custom `backward` that holds the step: it sleeps, or works in plain Python. Little to dispatch."""

import time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Held(torch.autograd.Function):
    """The identity, whose gradient takes its time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, asleep_s: float, turns: int) -> Tensor:
        ctx.asleep_s, ctx.turns = asleep_s, turns
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        if ctx.asleep_s:
            time.sleep(ctx.asleep_s)
        left = 1.0
        for turn in range(ctx.turns):
            left = left * 0.999 + turn * 1e-9
        return grads[0] * (1.0 + left * 1e-30), None, None


@planted_job(asleep_ms=0.0, turns=0, width=64, batch=32, depth=2)
def main(loop: Loop, args: Knobs) -> None:
    width = args.width
    layers = nn.Sequential(
        *(layer for _ in range(args.depth) for layer in (nn.Linear(width, width), nn.ReLU()))
    )
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    x = torch.randn(args.batch, width)
    loop.train(optimizer, lambda: Held.apply(layers(x), args.asleep_ms * 1e-3, args.turns).square().mean())
