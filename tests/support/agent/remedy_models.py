"""Small models that a remedy has something to do in; nothing of the product is needed to load one."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """A block that a net repeats."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(functional.gelu(self.up(self.norm(x)))))


class Attention(nn.Module):
    """Sequences made of features, that look at each other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(len(x), 4, -1).chunk(3, dim=-1)
        return functional.scaled_dot_product_attention(q, k, v).flatten(1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4)),
    "blocks": lambda: nn.Sequential(*(Residual(16) for _ in range(3)), nn.Linear(16, 4)),
    "attention": lambda: nn.Sequential(Attention(16), nn.Linear(16, 4)),
    "images": lambda: nn.Sequential(
        nn.Unflatten(1, (4, 2, 2)),
        nn.Conv2d(4, 8, 3, padding=1, bias=False),  # under a norm its gradient would be noise
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Flatten(),
        nn.Linear(32, 4),
    ),
}
