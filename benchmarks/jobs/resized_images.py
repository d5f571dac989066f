"""As images.py, but items are resized by torch on all cores: workers have nothing left to give."""

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.raw = torch.randint(0, 256, (256, 3, 160, 160), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = self.raw[index].float().unsqueeze(0)
        small = nn.functional.interpolate(picture, size=(64, 64), mode="bicubic", antialias=True)[0]
        return (small - small.mean((1, 2), keepdim=True)) / small.std((1, 2), keepdim=True), index % 10


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
    loader = DataLoader(Pictures(), batch_size=16, shuffle=True)
    batches = iter(loader)
    for _ in pace.steps(pace.arguments()):
        try:
            pictures, labels = next(batches)
        except StopIteration:
            batches = iter(loader)
            pictures, labels = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
