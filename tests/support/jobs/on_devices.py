"""DistributedDataParallel over NCCL, a device for each rank: `on_devices.py --until FILE`.

KERNELS plants durations (`part of a kernel's name=us;...`) once the model is made. LATE_RANK's host comes
LATE_MS late to each step, READ=1 reads every loss, WRAP=fsdp2 shards the model instead. Each rank tells what
it holds, early and at its end.
"""

import ctypes
import os
import time

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

args = pace.parse()
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(256, 4)).cuda()
if os.environ.get("WRAP") == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
else:
    model = DistributedDataParallel(model, device_ids=[rank], bucket_cap_mb=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
emulated = ctypes.CDLL(None)
emulated.emu_rule.argtypes = [ctypes.c_char_p, ctypes.c_double]
for planted in filter(None, os.environ.get("KERNELS", "").split(";")):
    name, us = planted.rsplit("=", 1)
    emulated.emu_rule(name.encode(), float(us))
late_s = float(os.environ.get("LATE_MS", "0")) / 1e3 * (os.environ.get("LATE_RANK") == str(rank))
read = os.environ.get("READ") == "1"
data = torch.randn(32, 256, device="cuda")


def held():
    torch.cuda.synchronize()
    descriptors = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    ours = sorted(os.readlink(each) for each in descriptors if os.path.islink(each))
    ours = [each for each in ours if "autobrrr" in each]
    fused = [bool(group["fused"]) for group in optimizer.param_groups]
    return torch.cuda.memory_allocated(), ours, fused, getattr(model, "logger", None) is not None


def all_end(step):
    """Ranks end at one step: each asks the file, and one that has seen it tells all."""
    if step % 50:
        return False
    seen = torch.tensor(float(os.path.exists(args.until)), device="cuda")
    dist.all_reduce(seen, op=dist.ReduceOp.MAX)
    return seen.item() > 0


step = 0
while not all_end(step + 1):
    if late_s:
        time.sleep(late_s)
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    if read:
        loss.item()
    step += 1
    if step == 60:  # what making the model's copies took is gone by then
        print(f"rank {rank} before {held()}", flush=True)
        print("training", flush=True)
print(f"rank {rank} after  {held()}", flush=True)
dist.destroy_process_group()
