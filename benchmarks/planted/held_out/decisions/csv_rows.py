"""A regression that writes what it predicts for each sample to a CSV file, flushed after each step."""

import csv
import tempfile

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

KEPT_BYTES = 4 << 20  # then the file begins anew


@planted_job(rows=1000, width=8)
def main(loop: Loop, args: Knobs) -> None:
    width = args.width
    model = nn.Sequential(nn.Linear(width, loop.size(16, 2)), nn.ReLU(), nn.Linear(loop.size(16, 2), 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(args.rows, width)
    y = x.sum(1, keepdim=True).sin()
    with tempfile.TemporaryFile("w+", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        for step in loop:
            optimizer.zero_grad()
            guess = model(x)
            loss = (guess - y).square().mean()
            loop.learn(loss, optimizer)
            for index, (wanted, got) in enumerate(zip(y[:, 0].tolist(), guess[:, 0].tolist(), strict=True)):
                rows.writerow([step, index, f"{wanted:.5f}", f"{got:.5f}", f"{abs(wanted - got):.3e}"])
            file.flush()
            if file.tell() > KEPT_BYTES:
                file.seek(0)
                file.truncate()
            loop.mark("host")
