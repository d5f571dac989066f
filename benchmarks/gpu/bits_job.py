"""A deterministic CUDA job that says what it trained, to the bit: `bits_job.py KIND STEPS`."""

import hashlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn

kind, steps = sys.argv[1], int(sys.argv[2])
torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
torch.set_num_threads(1)
layers = [part for _ in range(12) for part in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))]
model = nn.Sequential(*layers, nn.Linear(64, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
scaler = torch.amp.GradScaler(enabled=kind == "amp")
data = torch.randn(4096, 64)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data), batch_size=32, pin_memory=True, num_workers=1, shuffle=True
)
batches = iter(())
resident = data[:32].cuda()


def batch() -> torch.Tensor:
    global batches
    if kind != "loader":
        return resident
    found = next(batches, None)
    if found is None:
        batches = iter(loader)
        found = next(batches)
    return found[0].cuda(non_blocking=True)


for step in range(steps):
    optimizer.zero_grad()
    for _ in range(2 if kind == "accumulate" else 1):
        with torch.autocast("cuda", torch.float16, enabled=kind == "amp"):
            loss = model(batch()).float().square().mean()
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step == 50:
        print("trains", flush=True)
digest = hashlib.sha256()
for part in (*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())):
    digest.update(part.detach().cpu().numpy().tobytes())
digest.update(torch.cuda.get_rng_state().numpy().tobytes())
print("bits", digest.hexdigest(), torch.cuda.memory_allocated(), flush=True)
