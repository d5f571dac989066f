"""A small translator that is evaluated as it trains: after some steps, n-grams of its outputs are counted."""

import math
from collections import Counter

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def bleu(said: list[int], meant: list[int]) -> float:
    """Geometric mean of the precisions of 1- to 4-grams."""
    logs = 0.0
    for n in range(1, 5):
        ours = Counter(tuple(said[at : at + n]) for at in range(len(said) - n + 1))
        theirs = Counter(tuple(meant[at : at + n]) for at in range(len(meant) - n + 1))
        shared = sum(min(count, theirs[gram]) for gram, count in ours.items())
        logs += math.log((shared + 1) / (len(said) - n + 2))
    return math.exp(logs / 4)


@planted_job(texts=48, length=48, every=4, width=16)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    model = nn.Sequential(nn.Embedding(50, width), nn.Linear(width, 50))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    source = torch.randint(0, 50, (args.texts, args.length))
    target = (source * 7 + 3) % 50
    kept = 0.0
    for step in loop:
        x, y = source[: loop.size(4, 1)], target[: loop.size(4, 1)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loop.learn(loss, optimizer)
        if step % args.every == 0:
            with torch.no_grad():
                said = model(source).argmax(-1).tolist()
            loop.mark("evaluation")
            scores = [bleu(ours, theirs) for ours, theirs in zip(said, target.tolist(), strict=True)]
            kept = max(kept, sum(scores) / len(scores))
        loop.mark("host")
