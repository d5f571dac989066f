"""One rank of a job under torchrun: DDP averages gradients, or the loop itself does; one rank may be late.

By environment: BY_HAND, LATE_RANK and LATE_MS (its own work in each step), EACH_MS (everybody's).
"""

import os
import time

import pace
import torch
import torch.distributed as dist
from digest import fingerprint
from torch import nn
from torch.distributed import all_reduce  # a name that nobody can replace from outside
from torch.nn.parallel import DistributedDataParallel

args = pace.parse()
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
by_hand = os.environ.get("BY_HAND") == "1"
late = int(os.environ.get("LATE_RANK", "-1")) == rank
sleep_s = (float(os.environ.get("EACH_MS", "2")) + late * float(os.environ.get("LATE_MS", "30"))) / 1000
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64))
if not by_hand:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
for number in pace.steps(args):
    optimizer.zero_grad()
    time.sleep(sleep_s)
    model(torch.randn(16, 64)).square().mean().backward()
    if by_hand:
        gradients = [parameter.grad for parameter in model.parameters()]
        if number % 2:
            for gradient in gradients:
                all_reduce(gradient)
        else:
            for work in [dist.all_reduce(gradient, async_op=True) for gradient in gradients]:
                work.wait()
        for gradient in gradients:
            gradient.div_(world_size)
    optimizer.step()
print(f"rank {rank} {fingerprint(model)}", flush=True)
dist.barrier()
dist.destroy_process_group()
