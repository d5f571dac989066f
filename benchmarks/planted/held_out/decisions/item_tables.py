"""A recommender whose bags touch a few rows of large tables: Adam updates all rows, SparseAdam only those."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

FLOAT = 4
ADAM_PASSES = 19  # lerp 3, mul 2, addcmul 3, sqrt 2, div 2, add 2, addcdiv 4, and the gradient's fill


@planted_job(rows=150_000, width=16, users=32, seen=10, sparse=0)
def main(loop: Loop, args: Knobs) -> None:
    rows, width, users = loop.size(args.rows, 4), loop.size(args.width, 2), loop.size(args.users, 1)
    tables = nn.ModuleList(
        [nn.EmbeddingBag(rows, width, mode="sum", sparse=bool(args.sparse)) for _ in range(2)]
    )
    head = nn.Linear(2 * width, 1)
    weights = [*tables.parameters(), *([] if args.sparse else head.parameters())]
    optimizer: torch.optim.Optimizer = (
        torch.optim.SparseAdam(weights, lr=1e-3)
        if args.sparse
        else torch.optim.Adam(weights, lr=1e-3, foreach=False)
    )
    ids = torch.randint(0, rows, (2, users, args.seen))
    clicked = (torch.rand(users, 1) > 0.5).float()
    if not args.sparse:
        loop.works(traffic_bytes=2 * FLOAT * rows * width * ADAM_PASSES)
    for _ in loop:
        optimizer.zero_grad()
        h = torch.cat([table(seen) for table, seen in zip(tables, ids, strict=True)], 1)
        loss = nn.functional.binary_cross_entropy_with_logits(head(h), clicked)
        loop.learn(loss, optimizer)
