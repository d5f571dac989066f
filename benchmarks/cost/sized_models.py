"""Eight kinds of model with their training step, at any batch size."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

Step = Callable[[], None]


class LanguageModel(nn.Module):
    def __init__(self, words: int, width: int, length: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 2, 24, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.body(self.embed(tokens) + self.place[: tokens.shape[1]], mask, is_causal=True))


class Recurrent(nn.Module):
    """Time first, batch second."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 10, num_layers=2, dropout=0.1)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


def supervised(
    model: nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
    *,
    optimizer: torch.optim.Optimizer | None = None,
) -> Step:
    """The plain loop: `inputs` and `labels` hold some batches, used in turn."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    turn = itertools.cycle(range(len(inputs)))

    def step() -> None:
        at = next(turn)
        optimizer.zero_grad()
        loss(model(inputs[at]), labels[at]).backward()
        optimizer.step()

    return step


def chain(widths: list[int], between: Callable[[], nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for one, other in itertools.pairwise(widths):
        layers += [nn.Linear(one, other), between()]
    return nn.Sequential(*layers[:-1])


def rows(batch: int, width: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, batch, width), torch.randint(0, classes, (2, batch))


def mlp_tiny(batch: int) -> Step:
    return supervised(chain([32, 64, 64, 4], nn.ReLU), *rows(batch, 32, 4))


def mlp_wide(batch: int) -> Step:
    model = chain([512, 1024, 1024, 10], nn.ReLU)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    return supervised(model, *rows(batch, 512, 10), optimizer=sgd)


def deep(batch: int) -> Step:
    return supervised(chain([16] * 20 + [4], lambda: nn.LayerNorm(16)), *rows(batch, 16, 4))


def cnn(batch: int) -> Step:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    return supervised(
        model, torch.randn(2, batch, 3, 24, 24), torch.randint(0, 10, (2, batch)), optimizer=sgd
    )


def lstm(batch: int) -> Step:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.reshape(-1, 3), labels.reshape(-1))

    return supervised(Recurrent(), torch.randn(2, 12, batch, 6), torch.randint(0, 3, (2, 12, batch)), loss)


def language_model(batch: int) -> Step:
    model = LanguageModel(words=200, width=64, length=32)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.reshape(-1, 200), labels.reshape(-1))

    tokens = torch.randint(0, 200, (2, batch, 32))
    return supervised(model, tokens, tokens.roll(-1, 2), loss)


def optimizer_bound(batch: int) -> Step:
    model = chain([1024, 1024, 1024, 10], nn.ReLU)
    return supervised(model, *rows(batch, 1024, 10))


def two_towers(batch: int) -> Step:
    left, right = nn.Linear(128, 64), nn.Linear(96, 64)
    adam = torch.optim.AdamW([*left.parameters(), *right.parameters()], lr=1e-3)
    one, other = torch.randn(batch, 128), torch.randn(batch, 96)

    def step() -> None:
        adam.zero_grad()
        logits = functional.normalize(left(one)) @ functional.normalize(right(other)).T * 10
        labels = torch.arange(batch)
        (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)).backward()
        adam.step()

    return step


KINDS: dict[str, tuple[Callable[[int], Step], int]] = {
    "mlp_tiny": (mlp_tiny, 8),
    "deep": (deep, 4),
    "mlp_wide": (mlp_wide, 256),
    "cnn": (cnn, 16),
    "lstm": (lstm, 16),
    "language_model": (language_model, 8),
    "optimizer_bound": (optimizer_bound, 8),
    "two_towers": (two_towers, 256),
}
