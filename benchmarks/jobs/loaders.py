"""A small convolution network whose DataLoader is the bottleneck, in nine ways.

    python loaders.py KIND [--items N] [--num-workers N] [--batch-size N] [--seconds S]

`--items` is the length of an epoch. It prints `training` once it trains, and the samples a second at the end.
"""

import argparse
import json
import os
import random
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIDE = 48


def waits() -> Callable[[int], Tensor]:
    """A remote store: each item takes 3 ms to come."""

    def load(index: int) -> Tensor:
        time.sleep(3e-3)
        return torch.full((3, SIDE, SIDE), index % 7 / 7)

    return load


def parses() -> Callable[[int], Tensor]:
    text = " ".join(str(number * 37 % 1009) for number in range(12_000))
    return lambda index: torch.full((3, SIDE, SIDE), sum(int(word) for word in text.split()) % 7 / 7)


def augments() -> Callable[[int], Tensor]:
    images = torch.rand(8, 3, 96, 96)

    def load(index: int) -> Tensor:
        image = images[index % 8]
        for turn in range(3):
            image = torch.roll(image.flip(-1), turn, dims=-1) * 0.99 + 0.01
            image = (image - image.mean(dim=(1, 2), keepdim=True)) / image.std(dim=(1, 2), keepdim=True)
        return nn.functional.avg_pool2d(image, 2)

    return load


class Normalized(nn.Module):
    """A transform, as torchvision writes them."""

    def forward(self, image: Tensor) -> Tensor:
        return (image - image.mean(dim=(1, 2), keepdim=True)) / image.std(dim=(1, 2), keepdim=True)


def transforms() -> Callable[[int], Tensor]:
    chain = nn.Sequential(*(Normalized() for _ in range(4)))
    images = torch.rand(8, 3, 96, 96)
    return lambda index: nn.functional.avg_pool2d(chain(images[index % 8]), 2)


def unpacks() -> Callable[[int], Tensor]:
    smooth = (numpy.add.outer(numpy.arange(384), 3 * numpy.arange(384)) % 251).astype(numpy.uint8)
    packed = [zlib.compress(numpy.roll(smooth, turn).tobytes() * 3) for turn in range(16)]

    def load(index: int) -> Tensor:
        raw = numpy.frombuffer(zlib.decompress(packed[index % 16]), numpy.uint8).reshape(3, 384, 384)
        return nn.functional.avg_pool2d(torch.from_numpy(raw.copy()).float() / 255, 8)

    return load


def noises() -> Callable[[int], Tensor]:
    images = numpy.random.default_rng(0).random((8, 3, SIDE, SIDE), numpy.float32)

    def load(index: int) -> Tensor:
        noise = numpy.random.normal(0, 0.1, (3, SIDE * 3, SIDE)).astype(numpy.float32)
        return torch.from_numpy(images[index % 8] + noise[:, :SIDE])

    return load


def records() -> Callable[[int], Tensor]:
    line = json.dumps({"image": [[round(random.random(), 4) for _ in range(SIDE)] for _ in range(3 * SIDE)]})
    return lambda _: torch.tensor(json.loads(line)["image"]).view(3, SIDE, SIDE)


def files() -> Callable[[int], Tensor]:
    folder = Path(tempfile.mkdtemp(prefix="loaders-"))
    for index in range(16):
        numpy.savez_compressed(folder / f"{index}.npz", image=numpy.random.random((3, SIDE * 2, SIDE)))
    return lambda index: torch.from_numpy(numpy.load(folder / f"{index % 16}.npz")["image"][:, :SIDE]).float()


def spells() -> Callable[[int], Tensor]:
    words = {f"w{number}": number for number in range(5000)}
    text = " ".join(f"w{number * 7919 % 5000}" for number in range(7000))

    def load(_: int) -> Tensor:
        ids = [words.get(word.lower(), 0) for word in text.split(" ")][: 3 * SIDE * SIDE]
        return torch.tensor(ids[:6912]).float().view(3, SIDE, SIDE) / 5000

    return load


KINDS = {
    "waits": waits, "parses": parses, "augments": augments, "transforms": transforms, "unpacks": unpacks,
    "noises": noises, "records": records, "files": files, "spells": spells,
}  # fmt: skip


class Items(Dataset[tuple[Tensor, int]]):
    """An image and its label."""

    def __init__(self, kind: str, length: int) -> None:
        self.load, self.length = KINDS[kind](), length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.load(index), index % 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--items", type=int, default=512)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = Items(args.kind, args.items)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=args.num_workers)
    steps, began = 0, time.monotonic()
    while time.monotonic() < began + args.seconds:
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            steps += 1
            if steps == 3:
                print("training", flush=True)
            if time.monotonic() > began + args.seconds:
                break
    print(f"{steps * args.batch_size / (time.monotonic() - began):.1f} samples a second")


if __name__ == "__main__":
    main()
    os._exit(0)
