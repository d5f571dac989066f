"""Feed-forward blocks under activation checkpointing: each is computed again when its gradient is due."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(width=256, tokens=512, blocks=3)
def main(loop: Loop, args: Knobs) -> None:
    width, tokens = loop.size(args.width, 2), loop.size(args.tokens, 1)
    blocks = nn.ModuleList(
        [
            nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
            for _ in range(args.blocks)
        ]
    )
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1e-3)
    x = torch.randn(tokens, width)
    loop.works(flops=args.blocks * 4 * 2 * tokens * 8 * width * width)
    for _ in loop:
        optimizer.zero_grad()
        h = x.requires_grad_()
        for block in blocks:
            found: Tensor = checkpoint(block, h, use_reentrant=False)
            h = h + found
        loss = h.square().mean()
        loop.learn(loss, optimizer)
