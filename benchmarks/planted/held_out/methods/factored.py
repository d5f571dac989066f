"""An optimizer written by hand after Adafactor: rows and columns of the second moment, tensor by tensor."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Factored(torch.optim.Optimizer):
    """Second moments as an outer product; updates clipped by their root mean square."""

    def __init__(self, weights: Iterable[Tensor], lr: float = 1e-3) -> None:
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                grad, state = weight.grad, self.state[weight]
                square = grad.square() + 1e-30
                if not state:
                    state["row"], state["column"] = square.mean(-1), square.mean(-2)
                state["row"].mul_(0.99).add_(square.mean(-1), alpha=0.01)
                state["column"].mul_(0.99).add_(square.mean(-2), alpha=0.01)
                row = (state["row"] / state["row"].mean()).rsqrt()
                update = grad * row[:, None] * state["column"].rsqrt()[None]
                update /= (update.square().mean().sqrt()).clamp(min=1.0)
                weight.add_(update, alpha=-group["lr"])
        return None


@planted_job(layers=16, width=16, batch=4)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = [layer for _ in range(args.layers) for layer in (nn.Linear(width, width, bias=False), nn.SiLU())]
    model = nn.Sequential(*layers)
    optimizer = Factored(model.parameters())
    x = torch.randn(batch, width)
    loop.train(optimizer, lambda: (model(x) - x).square().mean())
