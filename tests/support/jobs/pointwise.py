"""Large tensors through pointwise operators, hardly a product: memory-bound by construction."""

import pace
import torch
from digest import fingerprint
from torch import nn

args = pace.parse()


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2048))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = (x * self.scale + 0.1).relu() * 0.9
        return x


model = Chain()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = torch.randn(2, 256, 2048)
for step in pace.steps(args):
    optimizer.zero_grad()
    model(data[step % 2]).square().mean().backward()
    optimizer.step()
print("fingerprint", fingerprint(model, optimizer), flush=True)
