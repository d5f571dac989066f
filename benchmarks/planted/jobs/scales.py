"""A bag of parameters under an optimizer that loops over them: many small ones, or few huge ones."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

PASSES = {"adamw": 20, "momentum": 6, "rmsprop": 12}


class Scales(nn.Module):
    """The sum of all parameters, each times an input."""

    def __init__(self, tensors: int, size: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(size)) for _ in range(tensors)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([scale[: len(x)].dot(x) for scale in self.scales])


@planted_job(tensors=200, size=64, optimizer="adamw", foreach=0)
def main(loop: Loop, args: Knobs) -> None:
    size = loop.size(args.size, 4)
    model = Scales(args.tensors, size).to(loop.device)
    optimizer: torch.optim.Optimizer
    if args.optimizer == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=bool(args.foreach))
    elif args.optimizer == "momentum":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, foreach=bool(args.foreach))
    else:
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, foreach=bool(args.foreach))
    x = torch.randn(min(size, 16), device=loop.device)
    # The gradient is a zero-filled copy of the parameter: one write, one read.
    loop.works(traffic_bytes=4 * args.tensors * size * (1 + PASSES[args.optimizer]))
    loop.train(optimizer, lambda: model(x).square().mean())
