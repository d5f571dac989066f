"""Thousands of tiny matrices in one batched product: busy kernels, far below both roofs."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Products(nn.Module):
    """x @ w, layer after layer, for every matrix of a batch."""

    def __init__(self, layers: int, batch: int, side: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(batch, side, side) * 0.3) for _ in range(layers)]
        )

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = torch.bmm(x, weight)
        return x


@planted_job(batch=2048, side=6, layers=4)
def main(loop: Loop, args: Knobs) -> None:
    batch, side = loop.size(args.batch, 1), loop.size(args.side, 2)
    model = Products(args.layers, batch, side).to(loop.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, side, side, device=loop.device)
    cells = batch * side * side
    loop.works(flops=6 * cells * side * args.layers, traffic_bytes=4 * cells * args.layers * (9 + 3))
    loop.train(optimizer, lambda: model(x).mean())
