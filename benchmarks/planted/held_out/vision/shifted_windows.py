"""Feature maps that are rolled, cut into windows, weighted and put together again, block after block."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

FLOAT = 4
WINDOW = 8


class WindowBlock(nn.Module):
    """Rolls, cuts, weighs, joins, rolls back, adds; shape [batch, side, side, channels]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        batch, side, _, channels = x.shape
        many = side // WINDOW
        rolled = torch.roll(x, (-WINDOW // 2, -WINDOW // 2), (1, 2))
        cut = rolled.view(batch, many, WINDOW, many, WINDOW, channels).transpose(2, 3).contiguous()
        weighed = cut * self.gain
        joined = weighed.transpose(2, 3).reshape(batch, side, side, channels)
        return x + torch.roll(joined, (WINDOW // 2, WINDOW // 2), (1, 2))


@planted_job(batch=4, side=128, channels=64, blocks=2)
def main(loop: Loop, args: Knobs) -> None:
    batch, side, channels = (
        loop.size(args.batch, 1),
        loop.size(args.side, WINDOW),
        loop.size(args.channels, 1),
    )
    model = nn.Sequential(*(WindowBlock(channels) for _ in range(args.blocks)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, side, side, channels)
    # A block: four copies and a product of 2 each, a sum of 3; backward the same copies, products of
    # 2 and 3, sums of 1 and 3; the first block's input needs no gradient, which spares 9.
    loop.works(traffic_bytes=FLOAT * x.numel() * (args.blocks * 30 - 9))
    loop.train(optimizer, lambda: model(x).mean())
