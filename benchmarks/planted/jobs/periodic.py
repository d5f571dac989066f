"""A tiny net whose steps differ: every so often an evaluation, every so often a checkpoint."""

import tempfile
from pathlib import Path

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(depth=20, width=32, batch=8, evaluate_every=0, evaluations=10, save_every=0, saved_kib=64)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    layers = [layer for _ in range(args.depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width)
    history = torch.zeros(args.saved_kib * 256)
    loop.works(flops=6 * batch * width * width * args.depth)
    with tempfile.TemporaryDirectory() as folder:
        for step in loop:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loop.learn(loss, optimizer)
            if args.evaluate_every and step % args.evaluate_every == 0:
                model.eval()
                with torch.no_grad():
                    for _ in range(args.evaluations):
                        model(x).square().mean()
                model.train()
            loop.mark("evaluation")
            if args.save_every and step % args.save_every == 0:
                torch.save({"model": model.state_dict(), "history": history}, Path(folder) / "last.pt")
            loop.mark("host")
