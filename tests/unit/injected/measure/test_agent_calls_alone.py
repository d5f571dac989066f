"""The dearest products run by themselves: the same operator on the same makes of tensors, not the job's."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autobrrr.injected.live_torch.dispatch_modes import foreign_mode
from autobrrr.injected.measure import calls_alone, dispatch_timer
from autobrrr.injected.measure.calls_alone import MOST_CALLS, RUNS, CallsAlone

ENOUGH_NS = 10**12


class Counted(TorchDispatchMode):
    """Hands every call to the count, as a counted step does."""

    def __init__(self, alone: CallsAlone) -> None:
        super().__init__()
        self._count = alone.noting(dispatch_timer.counter(step_ns=ENOUGH_NS))
        self.rows: list[dict[str, object]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        work = self._count(func, args, kwargs or {}, out)
        if work is not None and work.flops:
            row = {
                "op": str(func),
                "shapes": work.shapes,
                "dtype": work.dtype,
                "count": 1.0,
                "kernel_ns": 1e9,
            }
            self.rows.append(row)
        return out


def counted(alone: CallsAlone, step) -> list[dict[str, object]]:  # type: ignore[no-untyped-def]
    mode = Counted(alone)
    with mode:
        step()
    return mode.rows


def convolution() -> None:
    layer = torch.nn.Conv1d(4, 4, 3, groups=4, padding=1)
    layer(torch.randn(2, 4, 64)).sum().backward()


def test_a_convolution_and_its_backward_are_run_as_they_came() -> None:
    alone = CallsAlone(torch)
    rows = counted(alone, convolution)
    assert alone.slice(rows, ENOUGH_NS)
    alone.fill_in(rows)
    assert {row["op"] for row in rows} == {"aten.convolution.default", "aten.convolution_backward.default"}
    assert all(isinstance(row["alone_ns"], int) for row in rows)


def test_nothing_random_is_drawn_and_no_gradient_is_left() -> None:
    alone, layer = CallsAlone(torch), torch.nn.Linear(8, 8)
    rows = counted(alone, lambda: layer(torch.randn(4, 8)))
    state = torch.get_rng_state()
    assert alone.slice(rows, ENOUGH_NS)
    assert torch.equal(torch.get_rng_state(), state)
    assert layer.weight.grad is None
    assert alone.best_ns


class Seen(TorchFunctionMode):
    """A mode of the job's that counts what runs."""

    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_a_mode_or_a_profiler_of_the_job_s_sees_nothing_of_it() -> None:
    layer = torch.nn.Linear(8, 8)
    rows = counted(alone := CallsAlone(torch), lambda: layer(torch.randn(4, 8)))
    with Seen() as seen:
        assert alone.slice(rows, ENOUGH_NS)
    assert (seen.calls, alone.best_ns) == (0, {})
    with Seen() as seen:
        assert "(Seen)" in str(foreign_mode(torch))
    assert foreign_mode(torch) is None
    assert seen.calls == 0
    rows = counted(alone := CallsAlone(torch), lambda: layer(torch.randn(4, 8)))
    with torch.autograd.profiler.profile() as profile:
        assert alone.slice(rows, ENOUGH_NS)
    assert not [event for event in profile.function_events if "mm" in event.name]
    assert alone.best_ns == {}


def test_one_run_is_made_at_a_boundary_where_there_is_no_time_for_more() -> None:
    alone = CallsAlone(torch)
    rows = counted(alone, lambda: torch.randn(4, 8) @ torch.randn(8, 4))
    slices = 1
    while not alone.slice(rows, 0):
        slices += 1
    assert slices == RUNS + 1
    assert len(alone.best_ns) == 1


def test_a_long_call_is_run_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_alone, "LONG_NS", 0)
    alone = CallsAlone(torch)
    rows = counted(alone, lambda: torch.randn(4, 8) @ torch.randn(8, 4))
    slices = 1
    while not alone.slice(rows, 0):
        slices += 1
    assert slices == calls_alone.LONG_RUNS + 1 < RUNS
    assert len(alone.best_ns) == 1


@pytest.mark.parametrize(
    ("kernel_ns", "count", "runs"),
    [(1e9, 1.0, True), (1e9, 1e5, False), (1e3, 1.0, False)],
    ids=["long", "many short ones", "next to nothing"],
)
def test_only_long_calls_that_weigh_are_run(kernel_ns: float, count: float, runs: bool) -> None:
    alone = CallsAlone(torch)
    (row,) = counted(alone, lambda: torch.randn(4, 8) @ torch.randn(8, 4))
    rest: dict[str, object] = {"op": "aten.add", "shapes": "", "dtype": "", "count": 1.0, "kernel_ns": 1e9}
    row |= {"kernel_ns": kernel_ns, "count": count}
    assert alone.slice([row, rest], ENOUGH_NS)
    alone.fill_in([row])
    assert (row["alone_ns"] is not None) == runs


def test_the_dearest_few_are_run() -> None:
    alone = CallsAlone(torch)

    def several() -> None:
        for width in (8, 9, 10, 11, 12):
            torch.randn(4, width) @ torch.randn(width, 4)

    rows = counted(alone, several)
    for at, row in enumerate(rows):
        row["kernel_ns"] = (1 + at) * 1e8
    assert alone.slice(rows, ENOUGH_NS)
    alone.fill_in(rows)
    assert [row["alone_ns"] is not None for row in rows] == [at >= 5 - MOST_CALLS for at in range(5)]


def strided_twice() -> None:
    source = torch.randn(1, 1, 9, 9)
    for stride in (1, 2):
        torch.nn.functional.conv2d(source, torch.randn(1, 1, 3, 3), stride=stride)


def sparse() -> None:
    torch.sparse.mm(torch.eye(8).to_sparse(), torch.randn(8, 8))


@pytest.mark.parametrize("step", [strided_twice, sparse])
def test_calls_that_can_not_be_told_apart_or_made_again_are_left_out(step) -> None:  # type: ignore[no-untyped-def]
    alone = CallsAlone(torch)
    rows = counted(alone, step)
    assert alone.slice(rows, ENOUGH_NS)
    alone.fill_in(rows)
    assert all(row["alone_ns"] is None for row in rows)


def test_tensors_that_are_too_large_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_alone, "MOST_BYTES", 4 * 8 * 4)
    alone = CallsAlone(torch)
    rows = counted(alone, lambda: torch.randn(4, 8) @ torch.randn(8, 4))
    assert alone.slice(rows, ENOUGH_NS)
    assert not alone.best_ns
