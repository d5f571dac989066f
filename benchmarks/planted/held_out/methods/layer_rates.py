"""Fine-tuning with a learning rate for each layer, or a look at every gradient's norm by `.item()`.

`--norms` and `--rates` take either away.
"""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(layers=30, width=12, batch=4, rates=1, norms=0)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(args.layers)])
    if args.rates:
        groups = [
            {
                "params": [weight],
                "lr": 1e-3 * 0.95 ** (args.layers - at),
                "weight_decay": 0.01 * (weight.dim() > 1),
            }
            for at, layer in enumerate(layers)
            for weight in layer.parameters()
        ]
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(groups)
    else:
        optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    x = torch.randn(batch, width)
    largest = 0.0
    for _ in loop:
        optimizer.zero_grad()
        h = x
        for layer in layers:
            h = h + layer(h).tanh()
        loss = h.square().mean()
        loop.mark("forward")
        loss.backward()
        loop.mark("backward")
        if args.norms:
            norms = [weight.grad.norm().item() for weight in layers.parameters() if weight.grad is not None]
            largest = max(largest, sum(norm**2 for norm in norms) ** 0.5, *norms)
        optimizer.step()
        loop.mark("optimizer")
