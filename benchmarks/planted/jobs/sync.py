"""The host waits for the device by choice, after each layer: `.item()`, a print, or `empty_cache`.

Only a CUDA device makes it wait; on a CPU all but `empty_cache` cost next to nothing.
"""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def nothing(_x: Tensor) -> None:
    return None


def item(x: Tensor) -> None:
    """Watches the size of the activations."""
    if x.abs().max().item() > 1e6:
        raise ValueError("activations explode")


def show(x: Tensor) -> None:
    """Prints a number of a tensor."""
    with open(os.devnull, "w", encoding="utf-8") as file:
        print(x[0, 0], file=file)


def empty_cache(_x: Tensor) -> None:
    """Gives all cached memory back, to have it allocated again."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


KINDS: dict[str, Callable[[Tensor], None]] = {
    "nothing": nothing,
    "item": item,
    "print": show,
    "empty_cache": empty_cache,
}


@planted_job(kind="item", depth=12, width=64, batch=64)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(args.depth)]).to(loop.device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    data = torch.randn(batch, width, device=loop.device)
    wait = KINDS[args.kind]
    loop.works(flops=6 * args.depth * batch * width * width)
    for _ in loop:
        optimizer.zero_grad()
        x = data
        for layer in layers:
            x = torch.relu(layer(x))
            wait(x)
        loss = x.square().mean()
        loop.learn(loss, optimizer)
