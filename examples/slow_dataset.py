"""Images are augmented in Python, one by one, in the training process: training waits for its data."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count: int) -> None:
        self.images = torch.rand(count, 3, 48, 48)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return augment(self.images[index]), index % 10


def augment(image: torch.Tensor) -> torch.Tensor:
    """Flip, crop, jitter and erase: small operators, and Python between them."""
    if random.random() < 0.5:
        image = image.flip(2)
    image = nn.functional.pad(image[None], (4, 4, 4, 4), mode="reflect")[0]
    top, left = random.randrange(8), random.randrange(8)
    image = image[:, top : top + 48, left : left + 48]
    for channel in range(3):
        image[channel] = (image[channel] * random.uniform(0.8, 1.2)).clamp(0, 1)
    for _ in range(8):
        row, column = random.randrange(40), random.randrange(40)
        image[:, row : row + 8, column : column + 8] = random.random()
    return (image - image.mean((1, 2), keepdim=True)) / (image.std((1, 2), keepdim=True) + 1e-5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--num-workers", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    loader = DataLoader(Images(3200), batch_size=32, shuffle=True, num_workers=args.num_workers)
    model(next(iter(loader))[0])
    optimizer = torch.optim.AdamW(model.parameters())
    step, began_s = 0, time.perf_counter()
    while step < args.steps:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= args.steps:
                break
    print(f"{step / (time.perf_counter() - began_s):.1f} steps/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
