"""An LSTM: one operator that runs many small matmuls, each too small to fill a core."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Tagger(nn.Module):
    """LSTM and a label for every place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        labelled: Tensor = self.head(self.lstm(x)[0])
        return labelled


@planted_job(width=32, length=64, batch=8)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    length = loop.size(args.length, 1)  # on a CPU one operator runs all places, whatever their number
    model = Tagger(width).to(loop.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(length, batch, width, device=loop.device)
    labels = torch.randint(0, 4, (length * batch,), device=loop.device)
    loop.works(
        flops=6 * length * batch * 8 * width * width, traffic_bytes=4 * length * batch * width * 4 * 12
    )
    loop.train(optimizer, lambda: nn.functional.cross_entropy(model(x).reshape(-1, 4), labels))
