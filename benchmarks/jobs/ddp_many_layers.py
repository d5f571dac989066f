"""Two gloo ranks on one machine, 12 million parameters in 12 layers: many buckets of gradients."""

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [each for _ in range(12) for each in (nn.Linear(1000, 1000), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(16, 1000)
args = pace.arguments()
args.steps = args.steps or 40  # ranks that stop by their own clocks would wait for each other
for _ in pace.steps(args):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
