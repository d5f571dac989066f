"""Texts that are tokenised by byte-pair merges, in Python, when `__getitem__` is asked for them."""

import itertools

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.planted.loop import Knobs, Loop, planted_job

MERGES = {
    pair: 256 + at for at, pair in enumerate([(116, 104), (256, 101), (97, 110), (105, 110), (111, 110)])
}
TEXTS = [f"the {noun} ran into another one on the thin line in {noun} town" for noun in ("cat", "hen", "man")]


def merged(ids: list[int]) -> list[int]:
    """Merges the earliest rule that fits, until none does."""
    while True:
        pairs = [(MERGES[pair], pair) for pair in itertools.pairwise(ids) if pair in MERGES]
        if not pairs:
            return ids
        new, pair = min(pairs)
        out, at = [], 0
        while at < len(ids):
            if tuple(ids[at : at + 2]) == pair:
                out.append(new)
                at += 2
            else:
                out.append(ids[at])
                at += 1
        ids = out


class MergedTexts(Dataset[tuple[Tensor, int]]):
    """Ids of a fixed length, and a label."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        ids = merged(list(TEXTS[index % 3].encode()))
        return torch.tensor((ids + [0] * 64)[:64]), index % 3


@planted_job(width=16, batch=32)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    embed, head = nn.Embedding(300, width), nn.Linear(width, 3)
    optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters()], lr=1e-3)
    batches = iter(DataLoader(MergedTexts(), batch_size=args.batch))
    for _ in loop:
        ids, labels = next(batches)
        loop.mark("input")
        optimizer.zero_grad()
        mean = embed(ids[:, : loop.size(64, 1)]).mean(1)
        loss = nn.functional.cross_entropy(head(mean), labels)
        loop.learn(loss, optimizer)
