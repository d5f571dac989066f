"""CUPTI's records of the emulated device, as Kineto writes them, against what was planted."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

pytestmark = pytest.mark.nightly  # of the emulated device itself


def recorded(path: Path, work) -> list[dict[str, object]]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        work()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    return [each for each in json.loads(path.read_text())["traceEvents"] if "cat" in each]


def of_kind(events: list[dict[str, object]], kind: str) -> list[dict[str, object]]:
    return sorted((each for each in events if each["cat"] == kind), key=lambda each: each["ts"])


def test_kernels_lie_one_behind_the_other_and_last_as_planted(device, tmp_path):
    x = torch.zeros(1000, device="cuda")
    device.plant("elementwise", 250.0)

    def work() -> None:
        torch.cuda._sleep(int(0.05 * 1.98e9))
        for _ in range(12):
            x.add_(1)

    kernels = of_kind(recorded(tmp_path / "trace.json", work), "kernel")
    ours = [each for each in kernels if "elementwise" in each["name"]]
    assert len(ours) == 12
    assert [each["dur"] for each in ours] == pytest.approx([250.0] * 12, rel=1e-3)
    gaps = [b["ts"] - a["ts"] - a["dur"] for a, b in itertools.pairwise(ours)]
    assert max(map(abs, gaps)) < 1.0


def test_each_kernel_leads_to_the_call_that_launched_it(device, tmp_path):
    model = torch.nn.Linear(64, 64).cuda()
    given = torch.randn(16, 64, device="cuda")

    def work() -> None:
        model(given).sum().backward()

    events = recorded(tmp_path / "trace.json", work)
    calls = {each["args"]["correlation"]: each for each in of_kind(events, "cuda_runtime")}
    kernels = of_kind(events, "kernel")
    assert len(kernels) >= 5
    for kernel in kernels:
        call = calls[kernel["args"]["correlation"]]
        assert "LaunchKernel" in call["name"]
        assert call["ts"] < kernel["ts"]
        assert "External id" in kernel["args"]


def test_copies_and_the_calls_that_wait_for_them_are_recorded(device, tmp_path):
    x = torch.zeros(1 << 20)

    def work() -> None:
        x.cuda()[0].item()

    events = recorded(tmp_path / "trace.json", work)
    copies = of_kind(events, "gpu_memcpy")
    assert [each["args"]["bytes"] for each in copies] == [4 << 20, 4]
    waits = [each for each in of_kind(events, "cuda_runtime") if "Synchronize" in each["name"]]
    assert any(each["ts"] + each["dur"] >= copies[1]["ts"] + copies[1]["dur"] for each in waits)


@pytest.mark.parametrize("teardown", ["0", "1"])
def test_profiling_is_over_only_once_cupti_is_torn_down(device, tmp_path, teardown, monkeypatch):
    monkeypatch.setenv("TEARDOWN_CUPTI", teardown)
    x = torch.zeros(1000, device="cuda")
    for _ in range(2):
        assert of_kind(recorded(tmp_path / "trace.json", lambda: x.add_(1)), "kernel")
        calls, until = (
            0,
            time.monotonic() + (60 if teardown == "1" else 0),
        )  # a thread of its own lets go of it
        while device.cupti_attached() and (calls < 2000 or time.monotonic() < until):
            x.add_(1)
            calls += 1
        assert device.cupti_attached() == (teardown == "0")
