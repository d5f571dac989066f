"""A CUDA training script to be tuned end to end: small, without autobrrr in it, with a stopwatch of its own.

With `--steps` it waits for the device before its first and after its last step, and prints what one took.
"""

import argparse
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

WARM = 20

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=("mlp", "gpt", "conv", "images"))
parser.add_argument("--steps", type=int, default=0, help="timed steps, then the end; 0: by time")
parser.add_argument("--seconds", type=float, default=240.0)
parser.add_argument("--small", action="store_true", help="sizes for a rehearsal")
args = parser.parse_args()


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        many, length, width = x.shape
        parts = self.attend(self.norms[0](x)).view(many, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(many, length, width))
        return x + self.wide(self.norms[1](x))


def built() -> tuple[nn.Module, Iterator[Tensor]]:
    small = args.small
    if args.kind == "mlp":
        layers = [part for _ in range(40) for part in (nn.Linear(64, 64), nn.ReLU())]
        return nn.Sequential(*layers), endless(torch.randn(32, 64, device="cuda"))
    if args.kind == "gpt":
        width, depth, many, length = (128, 2, 2, 64) if small else (768, 12, 8, 1024)
        model = nn.Sequential(*[Block(width, 4 if small else 12) for _ in range(depth)])
        return model, endless(torch.randn(many, length, width, device="cuda"))
    width, side = (16, 32) if small else (64, 224)
    parts: list[nn.Module] = [nn.Conv2d(3, width, 3, stride=2)]
    for _ in range(2 if small else 12):
        parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    if args.kind == "conv":
        return model, endless(torch.randn(8 if small else 64, 3, side, side, device="cuda"))
    return model, loaded(side, 8 if small else 64)


def endless(batch: Tensor) -> Iterator[Tensor]:
    while True:
        yield batch


def loaded(side: int, many: int) -> Iterator[Tensor]:
    """Images of bytes that the training thread itself decodes and crops, one by one."""
    images = TensorDataset(torch.randint(0, 255, (2048, 3, side + 8, side + 8), dtype=torch.uint8))

    def collate(items: list[tuple[Tensor, ...]]) -> Tensor:
        return torch.stack([(item[0][:, 4:-4, 4:-4].float() / 255 - 0.5) / 0.25 for item in items])

    loader = DataLoader(images, batch_size=many, shuffle=True, drop_last=True, collate_fn=collate)
    while True:
        for batch in loader:
            yield batch.cuda()


def main() -> None:
    torch.manual_seed(0)
    model, batches = built()
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=False)
    end, began = time.perf_counter() + args.seconds, 0.0
    for number, batch in enumerate(batches):
        if number == WARM:
            torch.cuda.synchronize()
            began = time.perf_counter()
            print(f"trains {torch.cuda.memory_reserved()}", flush=True)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if args.steps and number + 1 == WARM + args.steps:
            torch.cuda.synchronize()
            print(f"took {(time.perf_counter() - began) / args.steps:.9f}", flush=True)
            return
        if not args.steps and time.perf_counter() > end:
            return


if __name__ == "__main__":
    main()
