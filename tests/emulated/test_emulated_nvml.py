"""Which of several devices NVML is asked about: the one that the job itself names."""

import os
import sys

import pytest

from support.training import ran

pytestmark = pytest.mark.usefixtures("device")

ON_THE_THIRD = """
import os, time, torch
from pathlib import Path
from autobrrr.agent.loop_anatomy import _gpu_uuids
from autobrrr.machine.nvml import NvmlDevice
model = torch.nn.Linear(64, 64).to("cuda:2")
small = torch.nn.Linear(2, 2).to("cuda:1")
named = _gpu_uuids(torch, [*small.parameters(), *model.parameters()])
assert len(named) == 2, named
assert _gpu_uuids(torch, [torch.zeros(1)]) == []
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:2")
other = torch.empty(1 << 33, dtype=torch.uint8, device="cuda:0")
device = NvmlDevice(os.getpid(), lambda: True, proc=Path("nowhere"), named=lambda: named)
sample = device.sample()
assert sample is not None and (1 << 30) < sample.memory_used_bytes < 1 << 32, sample
assert NvmlDevice(os.getpid(), lambda: True, proc=Path("nowhere")).sample() is None
print("found")
"""


def test_in_a_container_with_several_devices_it_is_the_one_with_the_jobs_parameters() -> None:
    environment = {**os.environ, "EMU_DEVICES": "3"}
    done = ran([sys.executable, "-c", ON_THE_THIRD], env=environment)
    assert done.stdout == "found\n", done.stderr[-2000:]
