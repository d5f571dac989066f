"""Normalisation after normalisation: layer, batch or group norm, or softmax, with residual additions."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

# Passes over the tensor that eager kernels make, forward and backward, the residual addition included.
PASSES = {"layer": 14, "batch": 16, "group": 16, "softmax": 12}


class Normalised(nn.Module):
    """x + norm(x), layer after layer."""

    def __init__(self, kind: str, layers: int, width: int) -> None:
        super().__init__()
        make = {
            "layer": lambda: nn.LayerNorm(width),
            "batch": lambda: nn.BatchNorm1d(width),
            "group": lambda: nn.GroupNorm(2, width),
            "softmax": lambda: nn.Softmax(dim=-1),
        }[kind]
        self.layers = nn.ModuleList([make() for _ in range(layers)])
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.gain
        for layer in self.layers:
            x = x + layer(x)
        return x


@planted_job(kind="layer", rows=8192, width=512, layers=3)
def main(loop: Loop, args: Knobs) -> None:
    rows, width = loop.size(args.rows, 2), loop.size(args.width, 4)
    model = Normalised(args.kind, args.layers, width).to(loop.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, width, device=loop.device)
    loop.works(traffic_bytes=4 * rows * width * (args.layers * PASSES[args.kind] + 8))
    loop.train(optimizer, lambda: model(x).square().mean())
