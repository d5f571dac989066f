"""Records of JSON in a gzipped shard, streamed line by line by an IterableDataset, again and again."""

import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.planted.loop import Knobs, Loop, planted_job


class ShardLines(IterableDataset[tuple[Tensor, int]]):
    """Features and label of each line."""

    def __init__(self, shard: Path) -> None:
        self.shard = shard

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        while True:
            with gzip.open(self.shard, "rt", encoding="utf-8") as lines:
                for line in lines:
                    record = json.loads(line)
                    yield torch.tensor(record["features"]), record["label"]


@planted_job(features=200, batch=32, workers=0)
def main(loop: Loop, args: Knobs) -> None:
    model = nn.Sequential(
        nn.Linear(args.features, loop.size(16, 2)), nn.ReLU(), nn.Linear(loop.size(16, 2), 2)
    )
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "shard-0000.jsonl.gz"
        with gzip.open(shard, "wt", encoding="utf-8") as file:
            for row in torch.randn(2000, args.features).tolist():
                file.write(json.dumps({"features": row, "label": int(row[0] > 0)}) + "\n")
        batches = iter(DataLoader(ShardLines(shard), batch_size=args.batch, num_workers=args.workers))
        for _ in loop:
            x, labels = next(batches)
            loop.mark("input")
            x, labels = x[: loop.size(args.batch, 1)], labels[: loop.size(args.batch, 1)]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), labels)
            loop.learn(loss, optimizer)
