"""CUDA graphs on the emulated device: captured once, replayed as one entry of the queue."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

from autobrrr.agent.live_torch.graph_capture import capturing, watch_captures
from autobrrr.agent.live_torch.patches import take_off_all

BACKLOG = int(0.3 * 1.98e9)


@pytest.mark.nightly
def test_a_replay_takes_its_kernels_one_after_the_other(device):
    x = torch.zeros(1000, device="cuda")
    device.plant("elementwise", 1000.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(7):
            x.add_(1)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(BACKLOG)
    first.record()
    graph.replay()
    last.record()
    torch.cuda.synchronize()
    assert first.elapsed_time(last) == pytest.approx(7.0 + 6 * 0.0008)  # and what lies between its nodes


@pytest.mark.nightly
def test_nothing_runs_while_it_is_captured(device):
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    device.plant("elementwise", 1_000_000.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        assert torch.cuda.is_current_stream_capturing()
    assert device.ahead_us() == 0


@pytest.mark.nightly
def test_a_replay_copies_what_was_captured(device):
    source, target = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        target.copy_(source)
    source.fill_(3.0)
    graph.replay()
    assert target.tolist() == [3.0] * 8


@pytest.mark.nightly
def test_a_call_that_waits_ends_a_capture(device):
    x = torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(graph):
        x.sum().item()
    torch.cuda.synchronize()
    assert not torch.cuda.is_current_stream_capturing()
    assert x.add_(1).sum().item() == 0  # sums are not done here; that it runs again is what counts


@pytest.mark.parametrize(
    "unsafe",
    [
        lambda stream, event: event.query(),
        lambda stream, event: event.synchronize(),
        lambda stream, event: stream.query(),
        lambda stream, event: stream.synchronize(),
        lambda stream, event: event.record(stream),
        lambda stream, event: torch.cuda.synchronize(),
        lambda stream, event: torch.empty(1 << 24, pin_memory=True),
    ],
    ids=["ask an event", "wait for it", "ask a stream", "wait for it too", "record", "wait for all", "pin"],
)
@pytest.mark.parametrize(("mode", "ends"), [("global", True), ("thread_local", False)])
def test_an_unsafe_call_of_another_thread_ends_a_global_capture(
    device, unsafe: Callable[..., object], mode: str, ends: bool
) -> None:
    x, stream, event = torch.zeros(8, device="cuda"), torch.cuda.Stream(), torch.cuda.Event()
    event.record(stream)
    raises = pytest.raises(RuntimeError, match="captur") if ends else nullcontext()
    with raises, torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode=mode):
        x.add_(1)
        with ThreadPoolExecutor(1) as pool:
            refused = pool.submit(unsafe, stream, event).exception()
        assert (refused is not None) == ends
    torch.cuda.synchronize()


def test_the_agent_sees_a_capture_of_another_thread_that_it_watches(device) -> None:
    original = torch.cuda.CUDAGraph.capture_begin
    watch = watch_captures(torch)
    seen = []
    with torch.cuda.graph(torch.cuda.CUDAGraph()), ThreadPoolExecutor(1) as pool:
        seen.append(pool.submit(capturing, torch).result())
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.cuda.synchronize()
    assert take_off_all(watch) == []
    assert (seen, capturing(torch)) == ([True], False)
    assert torch.cuda.CUDAGraph.capture_begin is original


@pytest.mark.nightly
def test_a_model_is_recorded_and_trained(device):
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).cuda()
    given = torch.randn(8, 64, device="cuda", requires_grad=True)
    recorded = torch.cuda.make_graphed_callables(model, (given,))
    recorded(torch.randn(8, 64, device="cuda", requires_grad=True)).sum().backward()
    assert all(each.grad is not None for each in model.parameters())
