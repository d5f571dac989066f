"""Small training jobs with the flags that people have, for studies that start them again and again.

With `--seconds` it trains for a second, then for so long, and prints its samples a second.
"""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--work", default="mlp", choices=["mlp", "conv", "embed", "pointwise", "images"])
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--depth", type=int, default=8)
parser.add_argument("--foreach", type=int, default=1)
parser.add_argument("--seconds", type=float, default=0.0)
args = parser.parse_args()


class Images(torch.utils.data.Dataset):
    """Decoding and augmenting, as work on a CPU."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        image = torch.full((3, 96, 96), float(i % 7))
        for shift in range(6):
            image = torch.roll(image, shift, dims=-1).mul_(0.9).add_(0.01)
        return image[:, ::3, ::3].contiguous(), i % 10


class Block(nn.Module):
    def forward(self, x):
        for _ in range(args.depth):
            x = torch.sigmoid(x * 1.01 + 0.1) * torch.tanh(x)
        return x


def build():
    if args.work in ("conv", "images"):
        wide = args.width // 4 if args.work == "images" else args.width
        layers = [nn.Conv2d(3, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
        for _ in range(args.depth // 4):
            layers += [nn.Conv2d(wide, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 10))
    if args.work == "embed":
        return nn.Sequential(nn.Embedding(20000, args.width), nn.Flatten(), nn.Linear(8 * args.width, 10))
    if args.work == "pointwise":
        return nn.Sequential(nn.Linear(64, 4096), Block(), nn.Linear(4096, 10))
    layers = [nn.Linear(64, args.width), nn.ReLU()]
    for _ in range(args.depth):
        layers += [nn.Linear(args.width, args.width), nn.LayerNorm(args.width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(args.width, 10))


def batches():
    if args.work == "images":
        yield from torch.utils.data.DataLoader(Images(), args.batch_size, num_workers=args.num_workers)
    if args.work == "conv":
        data = torch.randn(args.batch_size, 3, 32, 32)
    elif args.work == "embed":
        data = torch.randint(0, 20000, (args.batch_size, 8))
    else:
        data = torch.randn(args.batch_size, 64)
    target = torch.randint(0, 10, (args.batch_size,))
    while True:
        yield data, target


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=bool(args.foreach))
    began = counted_from = time.perf_counter()
    samples = 0
    for data, target in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
        samples += len(data)
        now = time.perf_counter()
        if args.seconds and counted_from == began and now > began + 1.0:
            counted_from, samples = now, 0
        elif args.seconds and now > counted_from + args.seconds and counted_from > began:
            print(f"rate {samples / (now - counted_from):.3f}", flush=True)
            return


if __name__ == "__main__":
    main()
