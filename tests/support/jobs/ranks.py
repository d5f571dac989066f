"""DistributedDataParallel on gloo, as torchrun starts it: each rank prints what its model was made with."""

import os

import pace
import torch
import torch.distributed as dist
from digest import fingerprint
from torch import nn
from torch.nn.parallel import DistributedDataParallel

args = pace.parse()
dist.init_process_group("gloo")
layers = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(32, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(dist.get_rank())
for _ in pace.steps(args):
    optimizer.zero_grad()
    model(torch.randn(16, 32)).square().mean().backward()
    optimizer.step()
views = model.gradient_as_bucket_view
cap_mb = model.bucket_bytes_cap // 1024**2
print(f"rank {os.environ['RANK']} bucket {cap_mb} view {views} threads {torch.get_num_threads()}", flush=True)
print("fingerprint", fingerprint(model), flush=True)
dist.destroy_process_group()
