"""One rank under torchrun, of many small layers; all ranks end at the step at which `--until` is there."""

import hashlib
import os
import time

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

args = pace.parse()
dist.init_process_group("gloo")
rank = dist.get_rank()
layers = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(32, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
torch.manual_seed(rank)
over = torch.zeros(1)
until, args.until = args.until, ""
args.steps = 1 << 40
for _ in pace.steps(args):
    time.sleep(0.002)  # the cores are for those who watch
    optimizer.zero_grad()
    model(torch.randn(16, 32)).square().mean().backward()
    optimizer.step()
    over.fill_(float(rank == 0 and os.path.exists(until)))
    dist.all_reduce(over)
    if over.item():
        break
bits = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print(f"rank {rank} {hashlib.md5(bits).hexdigest()}", flush=True)
dist.barrier()
dist.destroy_process_group()
