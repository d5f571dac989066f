"""An LSTM over long sequences: one operator, or with `--by-hand 1` a loop of Python over letters."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class HandLSTM(nn.Module):
    """As the formulas stand in a textbook; shape [length, batch, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        state = memory = torch.zeros_like(x[0])
        for letter in x:
            keep, new, out, guess = self.gates(torch.cat([letter, state], -1)).chunk(4, -1)
            memory = keep.sigmoid() * memory + new.sigmoid() * guess.tanh()
            state = out.sigmoid() * memory.tanh()
        return state


@planted_job(length=500, width=24, batch=4, by_hand=0)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    length = args.length if args.by_hand else loop.size(args.length, 2)
    model: nn.Module = HandLSTM(width) if args.by_hand else nn.LSTM(width, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(length, batch, width)
    loop.works(
        flops=3 * 2 * length * batch * 8 * width * width,
        traffic_bytes=4 * 3 * length * (8 * width * width + 12 * batch * width),
    )
    loop.train(optimizer, lambda: (model(x) if args.by_hand else model(x)[0][-1]).square().mean())
