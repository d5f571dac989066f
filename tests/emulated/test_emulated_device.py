"""The emulated device itself: what is planted on it is exact, and Kineto and NVML tell of it as it was."""

import itertools
import json
import os
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from support.training import ran

pytestmark = pytest.mark.nightly

GIB = 1 << 30
BACKLOG = int(0.3 * 1.98e9)  # cycles of torch's sleeping kernel: what is measured begins after it
ASK = """
import pynvml as nvml

nvml.nvmlInit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
users = {{one.pid: one.usedGpuMemory for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}}
total = nvml.nvmlDeviceGetMemoryInfo(handle).total
print(users.get({pid}, 0), nvml.nvmlDeviceGetUtilizationRates(handle).gpu, total)
"""


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def test_a_stream_waits_for_an_event_of_another(device):
    x = torch.zeros(1000, device="cuda")
    device.plant("elementwise", 1000.0)
    other = torch.cuda.Stream()
    first, last = events()
    torch.cuda._sleep(BACKLOG)
    first.record()
    other.wait_event(first)
    with torch.cuda.stream(other):
        for _ in range(5):
            x.add_(1)
        half = other.record_event()
    torch.cuda.current_stream().wait_event(half)
    x.add_(1)
    last.record()
    torch.cuda.synchronize()
    assert first.elapsed_time(last) == 6.0


def test_what_goes_to_the_device_comes_back(device):
    sent = torch.arange(4096.0)
    assert torch.equal(sent.cuda().cpu(), sent)
    assert torch.equal(sent.pin_memory().cuda(non_blocking=True).cpu(), sent)
    assert torch.full((3,), 7.5, device="cuda").tolist() == [7.5] * 3


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


def test_nvml_tells_another_process_who_uses_the_device(device):
    held = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    torch.cuda._sleep(int(0.5 * 1.98e9))
    asked = ran([sys.executable, "-c", ASK.format(pid=os.getpid())], check=True)
    used, busy, total = map(int, asked.stdout.split())
    assert used >= held.numel()
    assert busy > 0
    assert total == 80 * GIB


def test_kernels_are_recorded_one_behind_the_other_as_planted_with_the_calls_that_launched_them(
    device, tmp_path
):
    x = torch.zeros(1000, device="cuda")
    device.plant("elementwise", 250.0)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        torch.cuda._sleep(int(0.05 * 1.98e9))
        for _ in range(12):
            x.add_(1)
        torch.cuda.synchronize()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = [each for each in json.loads(path.read_text())["traceEvents"] if "cat" in each]
    calls = {each["args"]["correlation"]: each for each in events if each["cat"] == "cuda_runtime"}
    kernels = sorted((each for each in events if each["cat"] == "kernel"), key=lambda each: each["ts"])
    ours = [each for each in kernels if "elementwise" in each["name"]]
    assert [each["dur"] for each in ours] == pytest.approx([250.0] * 12, rel=1e-3)
    gaps = [b["ts"] - a["ts"] - a["dur"] for a, b in itertools.pairwise(ours)]
    assert max(map(abs, gaps)) < 1.0
    for kernel in ours:
        call = calls[kernel["args"]["correlation"]]
        assert "LaunchKernel" in call["name"]
        assert call["ts"] < kernel["ts"]
