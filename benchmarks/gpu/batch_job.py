"""A job whose step grows with its batch in a planted way: `batch_job.py KIND`.

Says `truth`, a step at B and at 2B in nanoseconds, each the least of several turns, then trains on at B.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"
TURNS, TURN_S = 4, 0.25
WIDE, LENGTH, WORDS = 8192, 256, 8000
# A batch that is no width of a layer: each size then has one meaning.
BATCHES = {
    "fixed": 16,
    "linear": 6000,
    "between": 1000,
    "launch": 48,
    "small": 48,
    "attention": 48,
    "embedding": 60_000,
    "conv": 500,
    "amp": 96,
    "checkpoint": 48,
    "accumulate": 500,
    "optimizer": 60,
}


class Block(nn.Module):
    """Attention written out, and a feed-forward layer."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.mixed = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, wide = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, self.heads, wide // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / 8).softmax(-1)
        x = x + self.mixed((weights @ v).transpose(1, 2).reshape(rows, length, wide))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Words(nn.Module):
    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.again, self.embed, self.places = again, nn.Embedding(WORDS, 1024), nn.Embedding(LENGTH, 1024)
        self.blocks = nn.ModuleList(Block(1024, 16) for _ in range(6))
        self.head = nn.Linear(1024, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for each in self.blocks:
            hidden = checkpoint(each, hidden, use_reentrant=False) if self.again else each(hidden)
        return self.head(hidden)


def layers(wide: int, count: int) -> nn.Sequential:
    return nn.Sequential(
        *[one for _ in range(count) for one in (nn.Linear(wide, wide), nn.ReLU())], nn.Linear(wide, 16)
    )


def model_of(kind: str) -> nn.Module:
    if kind in ("attention", "amp", "checkpoint"):
        return Words(again=kind == "checkpoint")
    if kind == "embedding":
        bag = nn.EmbeddingBag(200_000, 256, mode="mean")
        return nn.Sequential(bag, nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 16))
    if kind == "conv":
        made, before = [], 3
        for at in range(6):
            made += [nn.Conv2d(before, 128, 3, stride=1 + at % 2, padding=1), nn.BatchNorm2d(128), nn.ReLU()]
            before = 128
        return nn.Sequential(*made, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 16))
    sizes = {"launch": (64, 30), "small": (512, 20), "linear": (WIDE, 6), "fixed": (WIDE, 12)}
    sizes |= {"between": (WIDE, 8), "accumulate": (WIDE, 6), "optimizer": (WIDE, 16)}
    return layers(*sizes[kind])


def data(kind: str, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.zeros(rows, dtype=torch.long, device=DEVICE)
    if kind in ("attention", "amp", "checkpoint"):
        words = torch.zeros(rows, LENGTH, dtype=torch.long, device=DEVICE)
        return words, words
    if kind == "embedding":
        return torch.zeros(rows, 64, dtype=torch.long, device=DEVICE), labels
    if kind == "conv":
        return torch.zeros(rows, 3, 64, 64, device=DEVICE), labels
    wide = {"launch": 64, "small": 512}.get(kind, WIDE)
    return torch.zeros(rows, wide, device=DEVICE), labels


def main(kind: str) -> None:
    torch.set_num_threads(1)
    with torch.device(DEVICE):
        model = model_of(kind)
    if kind == "linear":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=kind == "optimizer")
    scaler = torch.amp.GradScaler(enabled=kind == "amp")

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        for _ in range(4 if kind == "accumulate" else 1):
            with torch.autocast(DEVICE, torch.float16, enabled=kind == "amp"):
                out = model(x)
                loss = functional.cross_entropy(out.flatten(0, -2), y.flatten())
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if kind == "attention":
            loss.item()

    sizes = [data(kind, times * BATCHES[kind]) for times in (1, 2)]
    best = [float("inf")] * 2
    for turn in range(TURNS + 1):
        for at, given in enumerate(sizes):
            steps, began_s = 0, time.perf_counter()
            while time.perf_counter() < began_s + TURN_S:
                for _ in range(4):
                    step(*given)
                torch.cuda.synchronize()
                steps += 4
            if turn:
                best[at] = min(best[at], (time.perf_counter() - began_s) / steps)
    print("truth", *(f"{1e9 * each:.0f}" for each in best), flush=True)
    while True:
        step(*sizes[0])


if __name__ == "__main__":
    main(sys.argv[1])
