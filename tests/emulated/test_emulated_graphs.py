"""CUDA graphs on the emulated device: captured once, replayed as one entry of the queue."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

from autobrrr.agent.live_torch.graph_capture import capturing, watch_captures
from autobrrr.agent.live_torch.patches import take_off_all


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
