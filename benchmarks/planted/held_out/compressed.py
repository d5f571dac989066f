"""Samples that lie compressed in memory and are unpacked, one by one, when they are asked for."""

import random
import zlib

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Packed(Dataset[tuple[Tensor, int]]):
    """Rows of floats under zlib."""

    def __init__(self, values: int) -> None:
        luck = random.Random(5)
        rows = [torch.tensor([luck.choice((0.0, 0.25, 1.5)) for _ in range(values)]) for _ in range(64)]
        self._packed = [zlib.compress(row.numpy().tobytes(), 9) for row in rows]

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        raw = bytearray(zlib.decompress(self._packed[index % len(self._packed)]))
        row = torch.frombuffer(raw, dtype=torch.float32)
        return row.view(64, -1).mean(1), index % 4


@planted_job(values=32_768, batch=16)
def main(loop: Loop, args: Knobs) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    batches = iter(DataLoader(Packed(args.values), batch_size=args.batch))
    for _ in loop:
        x, labels = next(batches)
        loop.mark("input")
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loop.learn(loss, optimizer)
