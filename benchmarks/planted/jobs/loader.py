"""A DataLoader in front of a small net: slow items (asleep, or at work in Python), slow collate, heavy
augmentation with torch, by functions or by modules, with and without workers. `--width` turns it
into a job whose loader is quick.
"""

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.planted.loop import Knobs, Loop, planted_job

Item = tuple[Tensor, Tensor]


class Shifted(nn.Module):
    """A transform as torchvision writes them."""

    def forward(self, image: Tensor) -> Tensor:
        """Shape [channels, height, width], before and after."""
        shifted = torch.roll(image.flip(-1), 1, dims=-1) * 0.99 + 0.01
        return (shifted - shifted.mean(dim=(1, 2), keepdim=True)) / shifted.std(dim=(1, 2), keepdim=True)


class Samples(Dataset[Item]):
    """Rows that take their time."""

    def __init__(self, width: int, asleep_us: float, parse: int, augment: int, modules: int) -> None:
        self.transforms = nn.Sequential(*(Shifted() for _ in range(modules)))
        self.width, self.asleep_s = width, asleep_us * 1e-6
        self.parse, self.augment = parse, augment
        self.row = torch.randn(width)
        self.text = " ".join(str(number * 37 % 1009) for number in range(max(1, parse)))
        self.image = torch.rand(3, 64, 64)

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> Item:
        row = self.row
        if self.asleep_s:
            time.sleep(self.asleep_s)
        if self.parse:
            row = row + sum(int(word) for word in self.text.split()) * 1e-9
        if self.augment:
            image = self.image
            for turn in range(self.augment):
                image = torch.roll(image.flip(-1), turn, dims=-1) * 0.99 + 0.01
                image = (image - image.mean(dim=(1, 2), keepdim=True)) / image.std(dim=(1, 2), keepdim=True)
            row = row + image.mean()
        if len(self.transforms):
            row = row + self.transforms(self.image).mean()
        return row, torch.tensor(index % 4)


class Collate:
    """Stacks rows, after a pause."""

    def __init__(self, asleep_us: float) -> None:
        self.asleep_s = asleep_us * 1e-6

    def __call__(self, items: list[Item]) -> Item:
        if self.asleep_s:
            time.sleep(self.asleep_s)
        return torch.stack([item[0] for item in items]), torch.stack([item[1] for item in items])


@planted_job(
    asleep_us=0.0, parse=0, augment=0, modules=0, collate_us=0.0, workers=0, batch=16, width=32, depth=3
)
def main(loop: Loop, args: Knobs) -> None:
    width = loop.size(args.width, 2)
    layers = [layer for _ in range(args.depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 4)).to(loop.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Samples(width, args.asleep_us, args.parse, args.augment, args.modules),
        batch_size=loop.size(args.batch, 1) if args.width > 256 else args.batch,
        num_workers=args.workers,
        collate_fn=Collate(args.collate_us),
    )
    batches = iter(loader)
    weights = args.depth * width * width
    loop.works(flops=6 * args.batch * weights, traffic_bytes=4 * weights * 6)
    for _ in loop:
        x, labels = next(batches)
        x, labels = x.to(loop.device), labels.to(loop.device)
        loop.mark("input")
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loop.learn(loss, optimizer)
