"""A job that has to share its cores with other processes: nothing true can be said of its step."""

import os
import subprocess
import sys

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job

SPIN = (
    "import ctypes, os, time\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "end = time.monotonic() + float(os.sys.argv[1])\n"
    "while time.monotonic() < end and os.getppid() == int(os.sys.argv[2]): sum(range(20000))\n"
)


@planted_job(siblings=2, depth=20, width=32, batch=8)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    cores = sorted(os.sched_getaffinity(0))[-args.threads :]
    os.sched_setaffinity(0, cores)
    layers = [layer for _ in range(args.depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(batch, width)
    words = [sys.executable, "-S", "-c", SPIN, str(args.seconds + 5), str(os.getpid())]
    others = [subprocess.Popen(words) for _ in range(args.siblings)]
    try:
        for _ in loop:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            loop.mark("model")
    finally:
        for other in others:
            other.kill()
            other.wait()
