"""A recommender: dense features through one net, ids through tables, their products through another."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

TABLES = 6


class Recommender(nn.Module):
    """Bottom net, tables, pairwise products, top net."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width))
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(TABLES)])
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.triu_indices(TABLES + 1, TABLES + 1, offset=1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        low = self.bottom(dense)
        rows = [table(ids[:, index]) for index, table in enumerate(self.tables)]
        stacked = torch.stack([low, *rows], dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        flat = products[:, self.pairs[0], self.pairs[1]]
        scored: Tensor = self.top(torch.cat([low, flat], dim=1))
        return scored


@planted_job(rows=1000, width=16, batch=64, ids=4)
def main(loop: Loop, args: Knobs) -> None:
    rows, width, batch = loop.size(args.rows, 4), loop.size(args.width, 2), loop.size(args.batch, 1)
    model = Recommender(rows, width).to(loop.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dense = torch.randn(batch, 13, device=loop.device)
    ids = torch.randint(0, rows, (batch, TABLES, args.ids), device=loop.device)
    clicks = torch.rand(batch, 1, device=loop.device).round()
    loop.works(traffic_bytes=4 * TABLES * rows * width * 5)
    loop.train(optimizer, lambda: nn.functional.binary_cross_entropy_with_logits(model(dense, ids), clicks))
