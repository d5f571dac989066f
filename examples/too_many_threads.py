"""A thread for each CPU of a larger machine: torch's threads wait for each other's CPUs."""

import argparse
import time

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,))
    began_s = time.perf_counter()
    for step in range(args.steps):
        picked = torch.arange(step * 16, step * 16 + 16) % 512
        loss = nn.functional.cross_entropy(model(images[picked]), labels[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{args.steps / (time.perf_counter() - began_s):.1f} steps/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
