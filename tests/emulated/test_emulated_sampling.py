"""What the agent reads of a device in a sampled step: the allocator's figures, a finite loss."""

import os
import subprocess
import sys

import pytest
import torch

from autobrrr.agent.phases.phase_clock import PhaseClock
from autobrrr.agent.phases.sampled_step import MEMORY_EVERY_NS, Sampling, accelerator_bytes

TWO_DEVICES = """
import torch
from autobrrr.agent.phases.sampled_step import DeviceLoss, FINITE, UNKNOWN
loss = torch.full((), 2.5, device="cuda:1")
watched = DeviceLoss(torch)
assert torch.cuda.current_device() == 0
with torch.cuda.device(1): torch.cuda._sleep(int(0.5 * 1.98e9))
assert watched.finite(loss) == UNKNOWN
torch.cuda.synchronize(0)
assert watched.finite(loss) == UNKNOWN, "the copy is still to come"
torch.cuda.synchronize(1)
assert watched.finite(loss) == FINITE
torch.cuda.synchronize(1)
assert watched.finite(torch.full((), 1.0, device="cuda:0")) == FINITE, "that of the step before"
torch.cuda.synchronize(0)
assert watched.finite(loss) == FINITE
assert not watched.broken
"""


def test_the_allocators_figures_come_out_of_one_call(device, monkeypatch: pytest.MonkeyPatch) -> None:
    held = torch.empty(1 << 20, device="cuda")
    assert accelerator_bytes() == (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    assert accelerator_bytes()[0] >= held.numel() * 4
    asked = []
    ask = torch._C._cuda_memoryStats
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", lambda which: asked.append(which) or ask(which))
    sampling = Sampling(torch, PhaseClock())
    for step in range(8):  # two bursts
        now = step // 4 * MEMORY_EVERY_NS + step
        sampling.begin(now)
        fields = sampling.finish(now, fires=1, forward_measured=True, optimizer_measured=True)
        assert (fields[8] >= held.numel() * 4) == (step in (0, 4))
    assert len(asked) == 2


def test_the_loss_of_another_device_is_waited_for_on_that_device(device) -> None:
    environment = {**os.environ, "EMU_DEVICES": "2"}
    subprocess.run([sys.executable, "-c", TWO_DEVICES], check=True, env=environment, timeout=60)
