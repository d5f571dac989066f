"""Attention over 512 tokens, written out: scores, mask, softmax, sum; no kernel that does it at once."""

import math

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class WrittenAttention(nn.Module):
    """Causal, with a residual; shape [batch, tokens, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        chances = scores.masked_fill(future, float("-inf")).softmax(-1)
        return x + self.out((chances @ value).transpose(1, 2).reshape(batch, tokens, width))


@planted_job(tokens=512, width=512, heads=2, batch=1, layers=2)
def main(loop: Loop, args: Knobs) -> None:
    tokens, width, batch = loop.size(args.tokens, 1), loop.size(args.width, 2), loop.size(args.batch, 1)
    model = nn.Sequential(*(WrittenAttention(width, args.heads) for _ in range(args.layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, tokens, width)
    each = 8 * batch * tokens * width * width + 4 * batch * tokens * tokens * width
    loop.works(flops=3 * args.layers * each - 6 * batch * tokens * width * width)
    loop.train(optimizer, lambda: model(x).square().mean())
