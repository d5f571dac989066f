"""A CUDA job whose optimizer has a known gain: its loop over tensors against its fused form, by a stopwatch.

Before it trains it weighs both forms on itself, in turn and with the device waited for at both ends of each
block: `truth 1.0301 step_ms 3.2`. What runs on the device, how often the host waits, are its arguments.
"""

import argparse
import statistics
import time

import torch
from torch import nn

ROUNDS, STEPS = 8, 40

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=20)
parser.add_argument("--sleep-us", type=float, default=0.0, help="of the device, in each step")
parser.add_argument("--read-every", type=int, default=0, help="steps between two readings of the loss")
parser.add_argument("--seconds", type=float, default=60.0)
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(args.layers)]).cuda()
usual = torch.optim.AdamW(model.parameters(), lr=1e-6, foreach=False)
fused = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
data = torch.randn(32, 64, device="cuda")
CYCLES_A_US = 1980  # about: only that it is the same in both forms counts


def step(number: int, optimizer: torch.optim.Optimizer) -> None:
    if args.sleep_us:
        torch.cuda._sleep(int(args.sleep_us * CYCLES_A_US))
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    if args.read_every and number % args.read_every == 0:
        loss.item()


def block_s(optimizer: torch.optim.Optimizer) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for number in range(STEPS):
        step(number, optimizer)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / STEPS


block_s(usual), block_s(fused)
pairs = []
for turn in range(ROUNDS):
    order = (usual, fused) if turn % 2 else (fused, usual)
    took = {each: block_s(each) for each in order}
    pairs.append((took[usual], took[fused]))
ratio = statistics.median(slow / fast for slow, fast in pairs)
print(f"truth {ratio:.4f} step_ms {statistics.median(slow for slow, _ in pairs) * 1e3:.3f}", flush=True)
del fused
end, count = time.perf_counter() + args.seconds, 0
while time.perf_counter() < end:
    step(count, usual)
    count += 1
