"""The emulated device's memory, and what NVML tells of it in another process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.nightly  # of the emulated device itself
GIB = 1 << 30
ASK = """
import pynvml as nvml

nvml.nvmlInit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
users = {{one.pid: one.usedGpuMemory for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}}
total = nvml.nvmlDeviceGetMemoryInfo(handle).total
print(users.get({pid}, 0), nvml.nvmlDeviceGetUtilizationRates(handle).gpu, total)
"""


def test_memory_ends_at_the_devices_size(device):
    held: list[torch.Tensor] = []
    with pytest.raises(torch.cuda.OutOfMemoryError):
        held.extend(torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(81))
    free, total = torch.cuda.mem_get_info()
    assert total == 80 * GIB
    assert free < GIB
    assert len(held) == 79  # a context of half a GiB has the rest
    held.clear()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > 78 * GIB


def test_freed_memory_is_given_out_again_empty(device):
    full = torch.empty(1 << 24, device="cuda")
    full[:4].fill_(5.0)
    assert full[:4].tolist() == [5.0] * 4
    del full
    torch.cuda.empty_cache()
    fresh = torch.empty(1 << 24, device="cuda")
    assert fresh[:4].tolist() == [0.0] * 4


def test_nvml_tells_another_process_who_uses_the_device(device):
    held = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    torch.cuda._sleep(int(0.5 * 1.98e9))
    asked = subprocess.run(
        [sys.executable, "-c", ASK.format(pid=os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    )
    used, busy, total = map(int, asked.stdout.split())
    assert used >= held.numel()
    assert busy > 0
    assert total == 80 * GIB


def test_the_runtime_and_nvml_know_a_device_by_the_same_uuid(device):
    import pynvml

    pynvml.nvmlInit()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == uuid
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == 0
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
