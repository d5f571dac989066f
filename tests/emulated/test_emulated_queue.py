"""The emulated device's queue: who waits for whom is exact, since every kernel's duration is planted."""

from __future__ import annotations

import time

import pytest
import torch

pytestmark = pytest.mark.nightly  # of the emulated device itself

US = 1e-6
BACKLOG = int(
    0.3 * 1.98e9
)  # cycles of torch's own sleeping kernel: nothing measured begins before the host is done


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def test_kernels_of_a_stream_run_one_after_the_other(device):
    x = torch.zeros(1000, device="cuda")
    device.plant("elementwise", 1000.0)
    first, last = events()
    torch.cuda._sleep(BACKLOG)
    first.record()
    for _ in range(10):
        x.add_(1)
    last.record()
    assert not last.query()
    torch.cuda.synchronize()
    assert last.query()
    assert first.elapsed_time(last) == 10.0


def test_kernels_of_two_streams_run_side_by_side(device):
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
    for _ in range(3):
        x.add_(1)
    last.record()
    last_of_other = other.record_event(torch.cuda.Event(enable_timing=True))
    torch.cuda.synchronize()
    assert (first.elapsed_time(last), first.elapsed_time(last_of_other)) == (3.0, 5.0)


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


def test_a_launch_into_a_full_queue_waits(device):
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    device.plant("elementwise", 500.0)
    began = time.perf_counter()
    for _ in range(1100):
        x.add_(1)
    host_s = time.perf_counter() - began
    torch.cuda.synchronize()
    assert host_s >= (1100 - 1024 - 1) * 500 * US


def test_reading_a_result_waits_for_all_that_was_queued_before(device):
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    device.plant("elementwise", 1000.0)
    began = time.perf_counter()
    for _ in range(20):
        x.add_(1)
    assert device.ahead_us() > 0
    x[0].item()
    assert time.perf_counter() - began >= 20e-3
    assert device.ahead_us() == 0


def test_what_goes_to_the_device_comes_back(device):
    sent = torch.arange(4096.0)
    assert torch.equal(sent.cuda().cpu(), sent)
    assert torch.equal(sent.pin_memory().cuda(non_blocking=True).cpu(), sent)
    assert torch.full((3,), 7.5, device="cuda").tolist() == [7.5] * 3
