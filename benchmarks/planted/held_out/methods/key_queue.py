"""Momentum contrast: two queries against a long queue of keys, the oldest of which are replaced each step."""

import copy

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

FLOAT = 4


@planted_job(queue=131_072, width=128, batch=2)
def main(loop: Loop, args: Knobs) -> None:
    many, width, batch = loop.size(args.queue, 4), loop.size(args.width, 2), loop.size(args.batch, 2)
    encoder = nn.Linear(width, width)
    slow = copy.deepcopy(encoder).requires_grad_(False)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.03)
    queue = nn.functional.normalize(torch.randn(many, width), dim=1)
    place = 0
    # The queue is read by the scores and by the gradient of the queries.
    loop.works(flops=4 * batch * many * width, traffic_bytes=FLOAT * (2 * many * width + 10 * batch * many))
    for _ in loop:
        images = torch.randn(batch, width)
        optimizer.zero_grad()
        query = nn.functional.normalize(encoder(images + 0.1 * torch.randn_like(images)), dim=1)
        with torch.no_grad():
            for kept, now in zip(slow.parameters(), encoder.parameters(), strict=True):
                kept.lerp_(now, 0.001)
            keys = nn.functional.normalize(slow(images), dim=1)
        scores = torch.cat([(query * keys).sum(1, keepdim=True), query @ queue.T], 1) / 0.07
        loss = nn.functional.cross_entropy(scores, torch.zeros(batch, dtype=torch.long))
        loop.learn(loss, optimizer)
        queue[place : place + batch] = keys
        place = (place + batch) % (many - batch + 1)
        loop.mark("optimizer")
