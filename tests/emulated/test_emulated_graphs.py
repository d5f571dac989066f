"""CUDA graphs on the emulated device: captured once, replayed as one entry of the queue."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch


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
