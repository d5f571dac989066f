"""Texts that are split by regular expressions in the collate function, for a bag-of-words classifier."""

import re

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.planted.loop import Knobs, Loop, planted_job

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+(?:\.\d+)?|[^\sa-z\d]")
TEXT = "It's the year 2031.5, they said; \"no\" -- and the 3 of us weren't there. " * 24


def collate(texts: list[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids of all words, where each text begins, labels."""
    ids: list[int] = []
    begins: list[int] = []
    for text in texts:
        begins.append(len(ids))
        ids += [hash(word) % 997 for word in WORD.findall(text.lower())]
    return torch.tensor(ids), torch.tensor(begins), torch.arange(len(texts)) % 4


@planted_job(batch=16, width=16)
def main(loop: Loop, args: Knobs) -> None:
    bag, head = nn.EmbeddingBag(997, args.width), nn.Linear(args.width, 4)
    optimizer = torch.optim.SGD([*bag.parameters(), *head.parameters()], lr=0.01)
    texts = [TEXT] * 1_000_000
    batches = iter(DataLoader(texts, batch_size=args.batch, collate_fn=collate))  # type: ignore[arg-type]
    for _ in loop:
        ids, begins, labels = next(batches)
        loop.mark("input")
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(bag(ids, begins)), labels)
        loop.learn(loss, optimizer)
