"""Texts of mixed lengths: a batch sampler sorts a pool into buckets, the collate function pads lists."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

from benchmarks.planted.loop import Knobs, Loop, planted_job


class LengthBuckets(Sampler[list[int]]):
    """Batches of texts of similar lengths, without end."""

    def __init__(self, lengths: list[int], batch: int, pool: int) -> None:
        self.lengths, self.batch, self.pool = lengths, batch, pool

    def __iter__(self) -> Iterator[list[int]]:
        luck = random.Random(1)
        while True:
            drawn = [luck.randrange(len(self.lengths)) for _ in range(self.pool)]
            drawn.sort(key=lambda index: (self.lengths[index], index))
            batches = [drawn[at : at + self.batch] for at in range(0, self.pool, self.batch)]
            luck.shuffle(batches)
            yield from batches


def padded(texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids, shape [texts, longest], and their mask."""
    longest = max(len(text) for text in texts)
    ids = [text + [0] * (longest - len(text)) for text in texts]
    mask = [[float(word != 0) for word in row] for row in ids]
    return torch.tensor(ids), torch.tensor(mask)


@planted_job(width=8, batch=64, pool=1024)
def main(loop: Loop, args: Knobs) -> None:
    luck = random.Random(2)
    lengths = [luck.randrange(20, 200) for _ in range(2000)]
    texts = [[luck.randrange(1, 500) for _ in range(length)] for length in lengths]
    embed, head = nn.Embedding(500, loop.size(args.width, 2)), nn.Linear(loop.size(args.width, 2), 2)
    optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.01)
    sampler = LengthBuckets(lengths, args.batch, args.pool)
    batches = iter(DataLoader(texts, batch_sampler=sampler, collate_fn=padded))  # type: ignore[arg-type]
    for _ in loop:
        ids, mask = next(batches)
        loop.mark("input")
        ids, mask = (
            ids[: loop.size(1000, 1), : loop.size(1000, 4)],
            mask[: loop.size(1000, 1), : loop.size(1000, 4)],
        )
        optimizer.zero_grad()
        h = (embed(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        loss = nn.functional.cross_entropy(head(h), ids[:, 0] % 2)
        loop.learn(loss, optimizer)
