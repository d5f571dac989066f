"""A chain of pointwise operators over one large tensor: every operator moves it through memory.

Above 32 MiB each result is mapped and unmapped by malloc, whatever it has learnt; a small one is dispatch.
"""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

WIDTH = 1024


class Chain(nn.Module):
    """relu(gain * x + shift), again and again."""

    def __init__(self, links: int, width: int) -> None:
        super().__init__()
        self.gains = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(links)])
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        for gain in self.gains:
            x = torch.relu(gain * x + self.shift)
        return x


@planted_job(kib=8192, links=3)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(WIDTH, 2)
    rows = loop.size(max(1, args.kib * 1024 // 4 // WIDTH), 1)
    model = Chain(args.links, width).to(loop.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, width, device=loop.device)
    # Forward 3 operators of 2 passes; backward: relu 3, shift 1, gain 3 + 1, input 2.
    loop.works(traffic_bytes=4 * rows * width * args.links * 16)
    loop.train(optimizer, lambda: model(x).mean())
