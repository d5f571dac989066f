"""The user's own code between the steps of a middling net, and none of it torch: `--kind` says which.

environment: physics in Python; metrics: statistics over dicts; garbage: cyclic objects; numpy: a
ranking; asleep: a wait; log: JSON lines to a file.
"""

import json
import math
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def environment(turns: int) -> float:
    """A pendulum on a cart, integrated step by step."""
    angle, speed, reward = 0.05, 0.0, 0.0
    for _ in range(turns):
        force = 10.0 if angle > 0 else -10.0
        speed += (9.8 * math.sin(angle) - math.cos(angle) * force / 1.1) * 0.02
        angle = math.remainder(angle + speed * 0.02, math.tau)
        reward += math.cos(angle)
    return reward


def metrics(turns: int) -> float:
    """Counts of classes and their F1."""
    counts: dict[int, dict[str, int]] = {}
    for index in range(turns):
        entry = counts.setdefault(index * 31 % 17, {"hit": 0, "miss": 0, "false": 0})
        entry[("hit", "miss", "false")[index % 3]] += 1
    return sum(2 * e["hit"] / (2 * e["hit"] + e["miss"] + e["false"] + 1) for e in counts.values())


class Node:
    """Half of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None
        self.load = [0] * 8


def garbage(turns: int) -> float:
    """Pairs of objects that only the collector frees."""
    for _ in range(turns):
        one, other = Node(), Node()
        one.other, other.other = other, one
    return 0.0


SCORES = np.random.default_rng(0).random(1 << 20)


def ranking(turns: int) -> float:
    """Sorts scores, as an AUC does."""
    return float(np.argsort(SCORES[:turns]).sum() % 7)


def asleep(turns: int) -> float:
    """Waits, as for a licence server."""
    time.sleep(turns * 1e-6)
    return 0.0


def log(turns: int) -> float:
    """Lines to a log."""
    with open(os.devnull, "w", encoding="utf-8") as file:
        for index in range(turns):
            file.write(json.dumps({"step": index, "loss": index * 0.5, "tags": ["a", "b"]}) + "\n")
    return 0.0


KINDS: dict[str, Callable[[int], float]] = {
    "environment": environment,
    "metrics": metrics,
    "garbage": garbage,
    "numpy": ranking,
    "asleep": asleep,
    "log": log,
}


@planted_job(kind="environment", turns=12_000, every=1, width=128, batch=64, depth=3)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = [layer for _ in range(args.depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(loop.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, width, device=loop.device)
    loop.works(flops=6 * batch * width * width * args.depth, traffic_bytes=4 * width * width * args.depth * 6)
    work = KINDS[args.kind]
    for step in loop:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loop.learn(loss, optimizer)
        if step % args.every == 0:
            work(args.turns)
        loop.mark("host")
