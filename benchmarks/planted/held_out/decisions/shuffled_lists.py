"""Matrix factorisation by hand: each short epoch begins with the shuffle of a long Python list."""

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def batches_of(ratings: list[tuple[int, int, float]], batch: int, steps: int) -> Iterator[tuple[Tensor, ...]]:
    """Users, items, ratings; a new order after so many steps."""
    luck = random.Random(8)
    while True:
        luck.shuffle(ratings)
        for at in range(steps):
            users, items, values = zip(*ratings[at * batch : (at + 1) * batch], strict=True)
            yield torch.tensor(users), torch.tensor(items), torch.tensor(values)


@planted_job(ratings=60_000, batch=32, turns=6, width=8)
def main(loop: Loop, args: Knobs) -> None:
    luck = random.Random(7)
    ratings = [(luck.randrange(900), luck.randrange(400), luck.random() * 5) for _ in range(args.ratings)]
    width = loop.size(args.width, 2)
    users, items = nn.Embedding(900, width), nn.Embedding(400, width)
    optimizer = torch.optim.SGD([*users.parameters(), *items.parameters()], lr=0.05)
    batches = batches_of(ratings, args.batch, args.turns)
    for _ in loop:
        who, what, liked = next(batches)
        loop.mark("input")
        optimizer.zero_grad()
        loss = ((users(who) * items(what)).sum(-1) - liked).square().mean()
        loop.learn(loss, optimizer)
