"""Images coded like JPEG: zlib over 8 x 8 cosine coefficients, which workers unpack and turn back."""

import zlib

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.planted.loop import Knobs, Loop, planted_job

BLOCK = 8
_AT = np.arange(BLOCK)
COSINES = np.cos((2 * _AT[None] + 1) * _AT[:, None] * np.pi / (2 * BLOCK)).astype(np.float32)
COSINES *= np.where(_AT[:, None] == 0, np.sqrt(1 / BLOCK), np.sqrt(2 / BLOCK)).astype(np.float32)


class CodedImages(Dataset[tuple[Tensor, int]]):
    """Grey images, coded when this is made."""

    def __init__(self, side: int) -> None:
        luck = np.random.default_rng(4)
        self.blocks = side // BLOCK
        shape = (self.blocks, self.blocks, BLOCK, BLOCK)
        images = [luck.normal(0, 3, shape).round().astype(np.int16) for _ in range(16)]
        self.coded = [zlib.compress(image.tobytes(), 6) for image in images]
        self.side = side

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        raw = np.frombuffer(zlib.decompress(self.coded[index % len(self.coded)]), dtype=np.int16)
        blocks = raw.reshape(self.blocks, self.blocks, BLOCK, BLOCK)
        image = np.zeros((self.side, self.side), dtype=np.float32)
        for row in range(self.blocks):
            for column in range(self.blocks):
                y, x = row * BLOCK, column * BLOCK
                image[y : y + BLOCK, x : x + BLOCK] = COSINES.T @ (blocks[row, column] * 4.0) @ COSINES
        pooled = image.reshape(16, self.side // 16, 16, self.side // 16).mean((1, 3))
        return torch.from_numpy(pooled)[None], index % 10


@planted_job(side=96, batch=8, workers=1)
def main(loop: Loop, args: Knobs) -> None:
    channels = loop.size(4, 1)
    model = nn.Sequential(nn.Conv2d(1, channels, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    batches = iter(DataLoader(CodedImages(args.side), batch_size=args.batch, num_workers=args.workers))
    model(next(batches)[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in loop:
        images, labels = next(batches)
        loop.mark("input")
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loop.learn(loss, optimizer)
