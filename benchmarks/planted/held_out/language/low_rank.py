"""Adapters of low rank beside large frozen weights, tuned on one token at a time."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

FLOAT = 4


class LowRank(nn.Module):
    """A frozen weight and two narrow trained ones."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, width, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


@planted_job(width=3072, rank=4, layers=3)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    model = nn.Sequential(*(LowRank(width, args.rank) for _ in range(args.layers)))
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=1e-3)
    x = torch.randn(1, width)
    # Each frozen weight is read once forward, and once backward but for the first.
    reads = 2 * args.layers - 1
    loop.works(flops=2 * reads * width * width, traffic_bytes=FLOAT * reads * width * width)
    loop.train(optimizer, lambda: model(x).square().mean())
