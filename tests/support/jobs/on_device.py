"""Small CUDA training loops, each with what one kind of job does on a device: `on_device.py KIND`.

Says at the start, once it trains, and at its end what it holds: device memory, threads, flags.
"""

import os
import sys

kind = sys.argv.pop(1)
import pace  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

args = pace.parse()
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [part for _ in range(8) for part in (nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1))]
model = nn.Sequential(*layers, nn.Linear(64, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, capturable=kind == "recapture")
scaler = torch.amp.GradScaler(enabled=kind == "amp")
data, labels = torch.randn(32, 64), torch.randint(0, 4, (32,))
dataset = torch.utils.data.TensorDataset(data.repeat(512, 1), labels.repeat(512))
loader = torch.utils.data.DataLoader(dataset, batch_size=32, pin_memory=True, num_workers=1)
batches = iter(())
resident = data.cuda(), labels.cuda()


def batch():
    global batches
    if kind != "loader":
        return resident
    found = next(batches, None)
    if found is None:
        batches = iter(loader)
        found = next(batches)
    return found[0].cuda(non_blocking=True), found[1].cuda(non_blocking=True)


def held():
    torch.cuda.synchronize()
    flags = torch.backends.cuda.matmul.fp32_precision, torch._C._get_sdp_priority_order()
    hooks = sum(bool(each._backward_hooks) for each in model.parameters())
    ours = sorted(where(name) for name in os.listdir("/proc/self/fd") if "autobrrr" in where(name))
    fused = [bool(group["fused"]) for group in optimizer.param_groups]
    return torch.cuda.memory_allocated(), torch.is_autocast_enabled("cuda"), flags, hooks, ours, fused


def where(name):
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def train(x, y):
    optimizer.zero_grad()
    for _ in range(2 if kind == "amp" else 1):
        with torch.autocast("cuda", torch.float16, enabled=kind == "amp"):
            loss = cross_entropy(model(x), y)
        scaler.scale(loss).backward()
    if kind == "sync":
        for parameter in model.parameters():
            parameter.grad.norm().item()
    scaler.step(optimizer)
    scaler.update()


for step in pace.steps(args):
    x, y = batch()
    if kind == "recapture" and step % 4 == 3:  # the whole step, update included
        whole = torch.cuda.CUDAGraph()
        with torch.cuda.graph(whole):
            train(x, y)
        whole.replay()
        whole = None
    else:
        train(x, y)
    if step == 10:
        x = y = None
        print("before", held(), flush=True)
x = y = None
print("after ", held(), flush=True)
print("fingerprint", "none: nothing is computed here", flush=True)
