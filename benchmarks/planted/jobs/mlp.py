"""Linear layers in a row: tiny and deep is dispatch, wide with many rows is matmul, wide with few
rows moves weights. `--optimizer adamw --foreach 0` updates tensor by tensor; `--item` reads the loss.
"""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

FLOAT = 4
SGD_PASSES, ADAMW_PASSES = 3, 20  # over each parameter: reads and writes of the eager loop


@planted_job(depth=24, width=32, batch=8, optimizer="sgd", foreach=0, item=0)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = [layer for _ in range(args.depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(loop.device)
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[args.optimizer]
    optimizer = kind(model.parameters(), lr=1e-4, foreach=bool(args.foreach))
    x = torch.randn(batch, width, device=loop.device)
    weights = args.depth * width * width
    passes = SGD_PASSES if args.optimizer == "sgd" else ADAMW_PASSES
    # Forward and backward read the weights once each, the gradient is written once.
    loop.works(
        flops=6 * batch * weights - 2 * batch * width * width,
        traffic_bytes=FLOAT * (weights * (3 + passes) + args.depth * batch * width * 10),
    )
    seen = 0.0
    for _ in loop:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loop.learn(loss, optimizer)
        if args.item:
            seen = 0.9 * seen + 0.1 * loss.item()
