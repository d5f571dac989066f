"""A job whose optimizer costs, over its fused form, a known share of the step (`--gain`).

Before it trains it weighs both forms of the optimizer on its own parameters, in turn, and pads the step with
products of matrices until the difference is the wanted share. Prints what it found: `truth 1.0301`.
"""

import argparse
import statistics
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--gain", type=float, default=1.03)
parser.add_argument("--seconds", type=float, default=60.0)
args = parser.parse_args()

WEIGHED = 400
PADDING = torch.randn(64, 64)


def took_ns(work):
    began = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - began


def pad(times):
    product = PADDING
    for _ in range(times):
        product = torch.mm(PADDING, product) / 8
    return product


def weigh(*works):
    """Median of each, in turn, in nanoseconds."""
    rounds = [[took_ns(work) for work in works] for _ in range(WEIGHED)]
    return [statistics.median(column) for column in zip(*rounds[WEIGHED // 4 :], strict=True)]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    usual = torch.optim.AdamW(model.parameters(), lr=1e-6, foreach=False)
    fused = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    data = torch.randn(32, 64)

    def learn():
        usual.zero_grad()
        model(data).square().mean().backward()

    def step(times):
        pad(times)
        learn()
        usual.step()

    learn()
    slow_ns, fast_ns, one_ns = weigh(usual.step, fused.step, lambda: step(100))
    bare_ns, _ = weigh(lambda: step(0), learn)
    each_ns = (one_ns - bare_ns) / 100
    wanted_ns = (slow_ns - fast_ns) * args.gain / (args.gain - 1)
    times = max(0, round((wanted_ns - bare_ns) / each_ns))
    full_ns, _ = weigh(lambda: step(times), learn)
    print(f"truth {full_ns / (full_ns - slow_ns + fast_ns):.4f} step_ms {full_ns / 1e6:.3f}", flush=True)
    del fused
    end = time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        step(times)


if __name__ == "__main__":
    main()
