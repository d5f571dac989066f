"""The emulated device itself: what is planted on it is exact, and Kineto and NVML tell of it as it was."""

import itertools
import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

pytestmark = pytest.mark.nightly


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
