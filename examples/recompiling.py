"""A compiled model meets sequences of many lengths with `dynamic=False`: each length is compiled anew."""

import argparse
import random
import time

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.head = nn.Linear(64, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + nn.functional.gelu(layer(x))
        return self.head(x.mean(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--multiple", type=int, default=1, help="lengths are padded to a multiple of this")
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    torch._dynamo.config.recompile_limit = 256
    model = torch.compile(Classifier(), dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters())
    began_s = time.perf_counter()
    for _ in range(args.steps):
        length = -(-random.randrange(8, 200) // args.multiple) * args.multiple
        tokens, labels = torch.randint(0, 1000, (16, length)), torch.randint(0, 2, (16,))
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{args.steps / (time.perf_counter() - began_s):.1f} steps/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
