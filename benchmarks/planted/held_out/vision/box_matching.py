"""A detector whose boxes are matched to the true ones in plain Python, between forward and loss."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

Box = list[float]


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes (x, y, width, height)."""
    width = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    height = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    return shared / (one[2] * one[3] + other[2] * other[3] - shared + 1e-9)


def matched(found: list[Box], true: list[Box]) -> list[int]:
    """The best free box for each true one, best pairs first."""
    pairs = sorted(
        ((overlap(box, goal), at, to) for to, goal in enumerate(true) for at, box in enumerate(found)),
        reverse=True,
    )
    chosen, taken = [-1] * len(true), set()
    for _, at, to in pairs:
        if chosen[to] < 0 and at not in taken:
            chosen[to] = at
            taken.add(at)
    return chosen


@planted_job(images=4, queries=60, boxes=12, width=16)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    queries = nn.Embedding(args.queries, width)
    head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4), nn.Sigmoid())
    optimizer = torch.optim.AdamW([*queries.parameters(), *head.parameters()], lr=1e-3)
    true = torch.rand(args.images, args.boxes, 4)
    shift = torch.randn(args.images, 1, width)
    goals = true.tolist()
    for _ in loop:
        optimizer.zero_grad()
        boxes = head(queries.weight + shift)
        loop.mark("forward")
        chosen = [matched(found, goal) for found, goal in zip(boxes.tolist(), goals, strict=True)]
        loop.mark("host")
        loss = (boxes.gather(1, torch.tensor(chosen)[..., None].expand(-1, -1, 4)) - true).abs().mean()
        loss.backward()
        loop.mark("backward")
        optimizer.step()
        loop.mark("optimizer")
