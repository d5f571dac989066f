"""A recurrence written as a Python loop over tiny tensors; `--arithmetic` adds plain Python per turn.

Wider states turn the same operators into pointwise traffic.
"""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Recurrence(nn.Module):
    """h <- tanh(a * h + x_t), turn by turn."""

    def __init__(self, width: int, turns: int, arithmetic: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((width,), 0.9))
        self.turns = turns
        self.arithmetic = arithmetic

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[0])
        for turn in range(self.turns):
            weight = 1.0
            for index in range(self.arithmetic):
                weight += ((index * 7919) % 104729) * 1e-9
            state = torch.tanh(self.gain * state + x[turn % len(x)] * weight)
        return state


@planted_job(turns=40, width=16, batch=8, arithmetic=0)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    model = Recurrence(width, args.turns, args.arithmetic).to(loop.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(4, batch, width, device=loop.device)
    loop.works(traffic_bytes=4 * args.turns * batch * width * 25)
    loop.train(optimizer, lambda: model(x).square().mean())
