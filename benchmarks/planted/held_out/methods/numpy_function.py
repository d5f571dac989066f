"""A layer whose forward and backward were written with NumPy, row by row, behind an autograd.Function."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

ROWS = 24


class Sparsemax(torch.autograd.Function):
    """Projection of each row onto the simplex; shape [rows, width]."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        out = np.zeros(scores.shape, dtype=np.float32)
        for at, row in enumerate(scores.detach().numpy()):
            ranked = np.sort(row)[::-1]
            over = 1 + np.arange(1, len(row) + 1) * ranked > np.cumsum(ranked)
            many = int(over.sum())
            out[at] = np.maximum(row - (ranked[:many].sum() - 1) / many, 0)
        result = torch.from_numpy(out)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (result,) = ctx.saved_tensors
        grad, out = grads[0].numpy(), result.numpy()
        back = np.zeros_like(grad)
        for at, row in enumerate(grad):
            kept = out[at] > 0
            back[at, kept] = row[kept] - row[kept].mean()
        return torch.from_numpy(back)


@planted_job(width=16)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    first, last = nn.Linear(width, width), nn.Linear(width, width)
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.01)
    x = torch.randn(ROWS, width)
    for _ in loop:
        optimizer.zero_grad()
        chosen: Tensor = Sparsemax.apply(first(x))  # type: ignore[no-untyped-call]
        loss = (last(chosen) - x).square().mean()
        loop.learn(loss, optimizer)
