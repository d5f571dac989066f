"""Forty narrow layers under plain AdamW: the step is Python and dispatch, not arithmetic."""

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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(48) for _ in range(40)), nn.Linear(48, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, labels = torch.randn(4096, 48), torch.randint(0, 10, (4096,))
    began_s = time.perf_counter()
    for step in range(args.steps):
        picked = torch.arange(step * 32, step * 32 + 32) % 4096
        loss = nn.functional.cross_entropy(model(inputs[picked]), labels[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{args.steps / (time.perf_counter() - began_s):.1f} steps/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
