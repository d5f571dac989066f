"""A large table with a dense gradient: each step fills and updates all of it, whatever the batch."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

PASSES = {"sgd": 3, "adagrad": 11}


class Recommender(nn.Module):
    """Rows of a table, summed, times a vector."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(rows, width, mode="sum")
        self.score = nn.Linear(width, 1)

    def forward(self, ids: Tensor) -> Tensor:
        scored: Tensor = self.score(self.table(ids))
        return scored


@planted_job(rows=200_000, width=32, batch=64, ids=4, optimizer="sgd")
def main(loop: Loop, args: Knobs) -> None:
    rows, width, batch = loop.size(args.rows, 4), loop.size(args.width, 2), loop.size(args.batch, 1)
    model = Recommender(rows, width).to(loop.device)
    optimizer: torch.optim.Optimizer
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    else:
        optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-3, foreach=False)
    ids = torch.randint(0, rows, (batch, args.ids), device=loop.device)
    loop.works(traffic_bytes=4 * rows * width * (1 + PASSES[args.optimizer]))
    loop.train(optimizer, lambda: model(ids).square().mean())
