"""Measure every point of two spaces of eight flags with three values each, for `relaunch_spaces`.

    python -m benchmarks.relaunch.large_tables [--only wide-text] [--steps 6]

A small transformer in two sizes, 6,561 points each. Started anew, they would take days, so one process builds
each model and times its steps, in random order, on one thread. The file holds for each point, in the order of
`itertools.product`, the time per sample and half of its 95 % interval, both in ns. What starting anew adds to
the scatter of a trial is not in it.
"""

import argparse
import itertools
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import ROOT, parser

RESULTS = ROOT / "benchmarks/results/large-tables.json"
WARM, LONGEST_S = 2, 0.2
SIZES = {"small-text": (16, 16, 100), "wide-text": (24, 64, 1000)}  # length, width, words
HEADS = 2
ORDERED = ("--batch-size",)
FLAGS = {
    "--batch-size": ["8", "16", "32"],
    "--activation": ["by-hand", "gelu", "relu"],
    "--optimizer": ["loop", "foreach", "fused"],
    "--dtype": ["float32", "bfloat16", "float64"],
    "--attention": ["masked", "manual", "fused"],
    "--clip": ["loop", "foreach", "off"],
    "--metrics": ["classes", "loss", "off"],
    "--collate": ["lists", "stack", "ready"],
}


class Attention(nn.Module):
    """One layer of a small transformer."""

    def __init__(self, how: str, activation: str, length: int, width: int) -> None:
        super().__init__()
        self.how, self.activation, self.length, self.norm = how, activation, length, nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(length, length).tril() == 0, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = self.length
        split = self.into(self.norm(x)).view(len(x), length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = split.unbind(0)
        if self.how == "fused":
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = self.mask
            if self.how == "masked":
                mask = torch.tensor([[j > i for j in range(length)] for i in range(length)])
            scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(mask, -1e4)
            found = scores.softmax(-1) @ v
        y = self.out(found.transpose(1, 2).reshape(x.shape))
        if self.activation == "by-hand":
            return x + 0.5 * y * (1 + torch.tanh(0.7979 * (y + 0.0447 * y**3)))
        return x + getattr(F, self.activation)(y)


def built(flags: dict[str, str], length: int, width: int, words: int) -> Callable[[], None]:
    """A step of a language model."""
    batch, kind = int(flags["--batch-size"]), getattr(torch, flags["--dtype"])
    whole = torch.float32 if kind is torch.bfloat16 else kind
    layers = [Attention(flags["--attention"], flags["--activation"], length, width) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(words, width), *layers, nn.Linear(width, words)).to(whole)
    chosen = {name: flags["--optimizer"] == name for name in ("foreach", "fused")}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **chosen)
    rows = np.random.default_rng(0).integers(0, words, (batch, length))
    lists, ready = [row.tolist() for row in rows], torch.from_numpy(rows)

    def step() -> None:
        how = flags["--collate"]
        read = torch.tensor(lists) if how == "lists" else ready
        read = torch.from_numpy(np.stack(list(rows))) if how == "stack" else read
        with torch.autocast("cpu", kind) if kind is torch.bfloat16 else nullcontext():
            out = model(read)
        loss = F.cross_entropy(out.flatten(0, 1).to(whole), read.flatten())
        loss.backward()
        if flags["--clip"] == "loop":
            sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None)
        elif flags["--clip"] == "foreach":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        if flags["--metrics"] == "classes":
            right = out.argmax(-1) == read
            for word in range(40):
                right[read == word].sum().item()
        elif flags["--metrics"] == "loss":
            loss.item()

    return step


def timed(step: Callable[[], None], steps: int) -> tuple[float, float]:
    """Median of the steps, and half of its 95 % interval (of a normal sample; at least 1 %), in ns."""
    for _ in range(WARM):
        step()
    took, began = [], time.perf_counter()
    while len(took) < steps and (len(took) < 3 or time.perf_counter() < began + LONGEST_S):
        at = time.perf_counter_ns()
        step()
        took.append(time.perf_counter_ns() - at)
    middle = statistics.median(took)
    spread = 1.4826 * statistics.median(abs(each - middle) for each in took)
    return middle, max(0.01 * middle, 1.96 * 1.25 * spread / math.sqrt(len(took)))


def measured(name: str, steps: int) -> list[list[float]]:
    """Time per sample of all points."""
    points = list(itertools.product(*FLAGS.values()))
    found: list[list[float]] = [[] for _ in points]
    torch.set_num_threads(1)
    order = list(range(len(points)))
    random.Random(0).shuffle(order)
    for at in order:
        values = dict(zip(FLAGS, points[at], strict=True))
        torch.manual_seed(0)
        found[at] = [
            round(each / int(values["--batch-size"])) for each in timed(built(values, *SIZES[name]), steps)
        ]
    return found


def main() -> None:
    own: argparse.ArgumentParser = parser(__doc__)
    own.add_argument("--only", choices=list(SIZES))
    own.add_argument("--steps", type=int, default=6)
    args = own.parse_args()
    tables = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in [args.only] if args.only else SIZES:
        began = time.perf_counter()
        tables[name] = {"flags": FLAGS, "points": measured(name, args.steps)}
        RESULTS.write_text(json.dumps(tables, separators=(",", ":")) + "\n")
        print(
            f"{name}: {len(tables[name]['points'])} points in {time.perf_counter() - began:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
