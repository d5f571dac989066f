"""A recommender with embedding bags whose data set draws unseen items for each user, in Python."""

import random

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.planted.loop import Knobs, Loop, planted_job

ITEMS = 5000


class Clicks(Dataset[tuple[list[int], list[int]]]):
    """What a user has seen, and as many items that he has not."""

    def __init__(self, users: int, seen: int, negatives: int) -> None:
        luck = random.Random(6)
        self.seen = [[luck.randrange(ITEMS) for _ in range(seen)] for _ in range(users)]
        self.negatives, self.luck = negatives, luck

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> tuple[list[int], list[int]]:
        seen = self.seen[index % len(self.seen)]
        known, drawn = set(seen), []
        while len(drawn) < self.negatives:
            item = self.luck.randrange(ITEMS)
            if item not in known:
                drawn.append(item)
        return seen, drawn


def bags(users: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Flat ids, their offsets, and the unseen items, shape [users, negatives]."""
    ids, offsets = [], []
    for seen, _ in users:
        offsets.append(len(ids))
        ids += seen
    return torch.tensor(ids), torch.tensor(offsets), torch.tensor([drawn for _, drawn in users])


@planted_job(batch=64, seen=20, negatives=60, width=8)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    bag, items = nn.EmbeddingBag(ITEMS, width, mode="mean"), nn.Embedding(ITEMS, width)
    optimizer = torch.optim.SGD([*bag.parameters(), *items.parameters()], lr=0.05)
    data = Clicks(500, args.seen, args.negatives)
    batches = iter(DataLoader(data, batch_size=args.batch, collate_fn=bags))
    for _ in loop:
        ids, offsets, unseen = next(batches)
        loop.mark("input")
        optimizer.zero_grad()
        user = bag(ids, offsets)
        liked = (user * items(ids[offsets])).sum(-1, keepdim=True)
        loss = nn.functional.softplus((items(unseen) @ user[:, :, None])[..., 0] - liked).mean()
        loop.learn(loss, optimizer)
