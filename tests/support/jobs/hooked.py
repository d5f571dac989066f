"""A job with a global module hook of its own: who runs it, and on which thread?"""

import threading

import pace
import torch
from digest import fingerprint
from torch import nn
from torch.nn.modules import module

args = pace.parse()
model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(16, 32)
seen: set[tuple[str, bool]] = set()
calls = 0


def hook(each: nn.Module, _inputs: object, output: torch.Tensor) -> None:
    global calls
    calls += 1
    seen.add((type(each).__name__, threading.current_thread() is threading.main_thread()))
    output.norm().item()


module.register_module_forward_hook(hook)
made = 0
for _ in pace.steps(args, rest_s=0.002):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    made += 4
print("foreign", calls - made, sorted(seen - {(name, True) for name in ("Linear", "ReLU", "Sequential")}))
print("fingerprint", fingerprint(model, optimizer), flush=True)
