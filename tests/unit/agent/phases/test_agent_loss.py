"""A loss is read from memory, or from a device without a wait: right for any scalar, silent where none is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from autobrrr.agent.phases.sampled_step import FINITE, NOT_FINITE, UNKNOWN, DeviceLoss, loss_finite


@dataclass
class Queue:
    """A device that does its work when it is told to; waiting for it is a mistake."""

    waiting: list[Callable[[], object]] = field(default_factory=list)
    done: int = 0
    capturing: bool = False
    recorded: bool = True  # by a profiler

    def drain(self) -> None:
        for work in self.waiting:
            work()
        self.done += len(self.waiting)
        self.waiting.clear()


class Tensor:
    """A scalar on the device; `Tensor` by name, as torch's own."""

    is_cuda = True
    device = "cuda:1"  # not the current one

    def __init__(self, value: float, kind: torch.dtype = torch.float32, count: int = 1) -> None:
        self.value, self.dtype, self._count = value, kind, count

    def numel(self) -> int:
        return self._count

    def detach(self) -> Tensor:
        return self

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        return self

    def item(self) -> float:
        raise AssertionError("this would wait for the device")


def on(queue: Queue, *, modes: int = 0) -> SimpleNamespace:
    """As much of torch as is used, on this device."""

    class Event:
        def __init__(self) -> None:
            self.after = 0

        def record(self, stream: object) -> None:
            assert stream == "stream of cuda:1"
            self.after = queue.done + len(queue.waiting)

        def query(self) -> bool:
            assert not queue.capturing, "asking would break the job's capture"
            return queue.done >= self.after

        def synchronize(self) -> None:
            raise AssertionError("this would wait for the device")

    class Pinned:
        def __init__(self, kind: torch.dtype) -> None:
            self.real = torch.zeros((), dtype=kind)

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

        def zero_(self) -> None:
            self.real.zero_()

        def copy_(self, other: Tensor, *, non_blocking: bool) -> None:
            assert non_blocking
            assert not queue.recorded, "a profile of the job would show it"
            queue.waiting.append(lambda: self.real.fill_(other.value))

    Pinned.__name__ = "Tensor"

    def empty(shape: tuple[int, ...], *, dtype: torch.dtype, pin_memory: bool) -> Pinned:
        assert shape == ()
        assert pin_memory
        return Pinned(dtype)

    def current_stream(device: str) -> str:
        return f"stream of {device}"

    cuda = SimpleNamespace(
        Event=Event,
        current_stream=current_stream,
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: queue.capturing,
    )
    inside = SimpleNamespace(_len_torch_dispatch_stack=lambda: modes)
    autograd = SimpleNamespace(_enable_record_function=partial(setattr, queue, "recorded"))
    return SimpleNamespace(empty=empty, cuda=cuda, autograd=autograd, _C=inside)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("value", "expected"), [(2.5, FINITE), (float("nan"), NOT_FINITE)])
def test_the_answer_comes_with_the_next_step(kind: torch.dtype, value: float, expected: int) -> None:
    queue = Queue()
    loss = DeviceLoss(on(queue))
    assert loss.finite(Tensor(value, kind)) == UNKNOWN
    queue.drain()
    assert loss.finite(Tensor(1.0, kind)) == expected


@pytest.mark.parametrize(
    ("capturing", "modes", "given"),
    [
        (True, 0, Tensor(1.0)),
        (False, 1, Tensor(1.0)),
        (False, 0, Tensor(1.0, count=2)),
        (False, 0, Tensor(1.0, torch.int64)),
    ],
    ids=["a graph is captured", "a mode looks on", "not a scalar", "not a float"],
)
def test_where_the_copy_would_be_seen_or_mean_nothing_none_is_made(
    capturing: bool, modes: int, given: Tensor
) -> None:
    queue = Queue(capturing=capturing)
    loss = DeviceLoss(on(queue, modes=modes))
    assert loss.finite(given) == UNKNOWN
    assert queue.waiting == []


def test_an_error_of_the_device_ends_it_quietly() -> None:
    class Lost(Tensor):
        def detach(self) -> Tensor:
            raise RuntimeError("CUDA error: device-side assert triggered")

    Lost.__name__ = "Tensor"
    queue = Queue()
    loss = DeviceLoss(on(queue))
    assert loss.finite(Lost(1.0)) == UNKNOWN
    assert loss.broken
    assert loss.finite(Tensor(1.0)) == UNKNOWN
    assert queue.waiting == []


KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_scalar_is_told_apart(kind: torch.dtype) -> None:
    largest = torch.finfo(kind).max
    for value in (0.0, -0.0, 2.5, -largest, largest, torch.finfo(kind).tiny):
        assert loss_finite(torch.tensor(value, dtype=kind)) == FINITE
    for value in (float("nan"), float("inf"), -float("inf")):
        assert loss_finite(torch.tensor(value, dtype=kind)) == NOT_FINITE


class Wrapped(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "thing",
    [
        None,
        (),
        1.0,
        torch.ones(2),
        torch.tensor(1),
        torch.ones((), device="meta"),
        torch.ones(1).to_sparse(),
        torch.ones(()).as_subclass(Wrapped),
    ],
    ids=repr,
)
def test_anything_else_is_not_known(thing: object) -> None:
    assert loss_finite(thing) == UNKNOWN
