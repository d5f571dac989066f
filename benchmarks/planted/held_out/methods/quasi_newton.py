"""LBFGS with a closure: a small regression, evaluated several times in each call of `step`."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(points=32, width=8, turns=8)
def main(loop: Loop, args: Knobs) -> None:
    points, width = loop.size(args.points, 2), loop.size(args.width, 2)
    model = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.05, max_iter=args.turns, tolerance_grad=0, tolerance_change=0
    )
    for _ in loop:
        x = torch.rand(points, 1) * 6  # other points each time: it never comes to rest
        y = x.sin() + 0.1 * torch.randn_like(x)

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
        loop.mark("model")
