"""A small convolution network on images that are unpacked and normalised in the training process.

`resized`: they are resized by torch on all cores instead, and workers have nothing left to give.
"""

import zlib

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 160


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Packed pictures, as a file format would hold them: smooth, so that they pack."""

    def __init__(self) -> None:
        rows, columns = torch.arange(SIDE)[:, None], torch.arange(SIDE)[None, :]
        self.packed = [
            zlib.compress(
                bytes(((rows * (k + 1) + columns * 3) % 251).to(torch.uint8).flatten().tolist()) * 3
            )
            for k in range(256)
        ]

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        raw = bytearray(zlib.decompress(self.packed[index]))
        # One channel after the other, as decoders written in Python do.
        channels = [raw[at : at + SIDE * SIDE].translate(GAMMA) for at in range(0, len(raw), SIDE * SIDE)]
        picture = torch.frombuffer(bytearray(b"".join(channels)), dtype=torch.uint8).view(3, SIDE, SIDE)
        small = nn.functional.avg_pool2d(picture.float().unsqueeze(0), 2)[0]
        return (small - small.mean((1, 2), keepdim=True)) / small.std((1, 2), keepdim=True), index % 10


class Resized(Dataset[tuple[torch.Tensor, int]]):
    """Raw pictures."""

    def __init__(self) -> None:
        self.raw = torch.randint(0, 256, (256, 3, SIDE, SIDE), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = self.raw[index].float().unsqueeze(0)
        small = nn.functional.interpolate(picture, size=(64, 64), mode="bicubic", antialias=True)[0]
        return (small - small.mean((1, 2), keepdim=True)) / small.std((1, 2), keepdim=True), index % 10


GAMMA = bytes(round(255 * (value / 255) ** 0.8) for value in range(256))


def stage(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(
        *stage(3, 16),
        *stage(16, 32),
        *stage(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    args = pace.arguments(("packed", "resized"))
    packed = args.kind == "packed"
    loader = DataLoader(Pictures() if packed else Resized(), batch_size=32 if packed else 16, shuffle=True)
    batches = iter(loader)
    for _ in pace.steps(args):
        try:
            pictures, labels = next(batches)
        except StopIteration:
            batches = iter(loader)
            pictures, labels = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
