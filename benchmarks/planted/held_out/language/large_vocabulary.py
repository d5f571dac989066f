"""A language model whose vocabulary is huge and whose width is not: logits, and their softmax."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(words=32_000, tokens=128, width=8)
def main(loop: Loop, args: Knobs) -> None:
    words, tokens, width = loop.size(args.words, 2), loop.size(args.tokens, 1), loop.size(args.width, 2)
    embed, head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
    optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
    ids = torch.randint(0, words, (tokens,))
    # Of the logits: write 1; log softmax 3; backward fills 1, then 3; two matmuls read 2.
    loop.works(
        flops=6 * tokens * width * words, traffic_bytes=4 * (10 * tokens * words + 7 * 2 * words * width)
    )
    loop.train(optimizer, lambda: nn.functional.cross_entropy(head(embed(ids).tanh()), ids))
