"""A click model whose calibration and AUC, over its latest scores, NumPy computes at each step."""

import numpy as np
import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(kept=50_000, batch=32, width=16)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    luck = np.random.default_rng(2)
    said, clicked = luck.random(args.kept), luck.random(args.kept) > 0.8
    edges = np.linspace(0, 1, 21)
    for step in loop:
        x = torch.randn(batch, 8)
        y = (x[:, :1] > 0.8).float()
        optimizer.zero_grad()
        scores = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, y)
        loop.learn(loss, optimizer)
        at = step * batch % (args.kept - batch)
        said[at : at + batch] = scores.detach().sigmoid().numpy()[:, 0]
        clicked[at : at + batch] = y.numpy()[:, 0] > 0
        ranks = np.argsort(np.argsort(said))
        ones = int(clicked.sum())
        auc = (ranks[clicked].sum() - ones * (ones - 1) / 2) / (ones * (args.kept - ones) + 1)
        bins = np.digitize(said, edges)
        gap = [abs(said[bins == one].mean() - clicked[bins == one].mean()) for one in np.unique(bins)]
        if not 0 <= auc <= 1 or max(gap) > 1:
            raise ValueError("not a probability")
        loop.mark("host")
