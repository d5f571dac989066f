"""A small sequence model whose progress is measured by edit distances, in plain Python, at every step."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def distance(one: str, other: str) -> int:
    """Levenshtein."""
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, 1):
        before, row[0] = row[0], index
        for place, against in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != against)),
            )
    return row[-1]


@planted_job(pairs=6, length=64, width=64, batch=16)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    model = nn.GRU(width, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(8, batch, width)
    for step in loop:
        optimizer.zero_grad()
        loss = model(x)[0].square().mean()
        loop.learn(loss, optimizer)
        texts = [chr(97 + (step + pair) % 26) * 3 + "transcript" * 8 for pair in range(args.pairs + 1)]
        for pair in range(args.pairs):
            distance(texts[pair][: args.length], texts[pair + 1][1 : args.length + 1])
        loop.mark("host")
