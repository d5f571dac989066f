"""A small, ordinary training script that crawls: many tiny layers, many small parameters.

Trains a residual MLP with dropout on made-up data and prints its own speed. Nothing in here
knows of the tool that is shown on it.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


class ResidualMLP(nn.Module):
    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--log-every", type=int, default=500)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = ResidualMLP(args.width, args.depth, classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, args.batch_size, args.width)
    labels = torch.randint(0, 10, (64, args.batch_size))
    began = logged = time.perf_counter()
    for step in range(1, args.steps + 1):
        batch = step % 64
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0:
            now = time.perf_counter()
            print(
                f"step {step}  loss {loss.item():.3f}  {args.log_every / (now - logged):.0f} steps/s",
                flush=True,
            )
            logged = now
    print(f"trained {args.steps} steps: {args.steps / (time.perf_counter() - began):.1f} steps/s", flush=True)


if __name__ == "__main__":
    main()
