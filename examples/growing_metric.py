"""The area under the curve is computed over the whole epoch at every step: each step costs more."""

import argparse
import time

import torch
from torch import nn


def area_under_curve(scores: list[torch.Tensor], labels: list[torch.Tensor]) -> float:
    order = torch.cat(scores).argsort()
    ranked = torch.cat(labels)[order]
    below = (1 - ranked).cumsum(0)
    return float((ranked * below).sum() / (ranked.sum() * (1 - ranked).sum()).clamp(min=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=1, help="steps from one metric to the next")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs, targets = torch.randn(8192, 64), torch.randint(0, 2, (8192,)).float()
    scores: list[torch.Tensor] = []
    labels: list[torch.Tensor] = []
    began_s = time.perf_counter()
    for step in range(args.steps):
        picked = torch.arange(step * 128, step * 128 + 128) % 8192
        found = model(inputs[picked])[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(found, targets[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.append(found.detach())
        labels.append(targets[picked])
        if step % args.every == 0:
            area_under_curve(scores, labels)
    print(f"{args.steps / (time.perf_counter() - began_s):.1f} steps/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
