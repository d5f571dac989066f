"""Meta-learning as MAML does it: inner updates for a few tasks, one outer step through them."""

import torch
from torch import nn
from torch.func import functional_call

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(tasks=3, inner=2, shots=8, width=16)
def main(loop: Loop, args: Knobs) -> None:
    shots, width = loop.size(args.shots, 1), loop.size(args.width, 2)
    model = nn.Sequential(
        nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in loop:
        optimizer.zero_grad()
        for _ in range(args.tasks):
            phase = torch.rand(1) * 3
            x = torch.rand(shots, 1) * 6
            y = (x + phase).sin()
            fast = dict(model.named_parameters())
            for _ in range(args.inner):
                loss = (functional_call(model, fast, (x,)) - y).square().mean()
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {
                    name: weight - 0.01 * grad
                    for (name, weight), grad in zip(fast.items(), grads, strict=True)
                }
            (functional_call(model, fast, (x,)) - y).square().mean().backward()
        optimizer.step()
        loop.mark("model")
