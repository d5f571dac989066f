"""Torch's profiler and recorder: what they show, quiet logs, and when they step aside for the job's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest
import torch
import torch.autograd.profiler  # a window needs it loaded
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate
from torch.utils.flop_counter import FlopCounterMode

from autobrrr.agent.live_torch.dispatch_modes import unwatched
from autobrrr.agent.live_torch.torch_log import PROFILER, RECORDER, LogLevel, level_of, quiet
from autobrrr.agent.measure import profiler_window
from autobrrr.agent.measure.cpu_profiler import (
    HELD_NS,
    PAUSE_NS,
    ProfiledStep,
    StepWatch,
    profiled,
    read_step,
)
from autobrrr.agent.measure.kernel_times import FloorMeter
from autobrrr.agent.measure.profiler_window import TEARDOWN, WindowTask, cupti_user, why_no_window
from autobrrr.agent.phases.phase_clock import BACKWARD, FORWARD, OTHER
from autobrrr.agent.wire.recording import COLLATING

MS = 1_000_000


def seen(program: Callable[[], object]) -> ProfiledStep:
    end = profiled(torch)
    try:
        program()
    finally:
        found = end()
    assert found is not None
    return read_step(torch, *found)


def names(step: ProfiledStep) -> list[str]:
    return [step.names[at].removeprefix("aten::") for at in step.operators]


class Event:
    """One of the profiler's."""

    def __init__(self, kind: str, at_ns: int, name: str = "") -> None:
        self._kind, self._at_ns, self._name = kind, at_ns, name

    def kind(self) -> str:
        return self._kind

    def name(self) -> str:
        return self._name

    def cpu_elapsed_us(self, later: Event) -> float:
        return (later._at_ns - self._at_ns) / 1000


class AtOnce(TensorDataset):
    def __getitems__(self, places: list[int]) -> list[tuple[Tensor, ...]]:
        return [self[at] for at in places]


@pytest.mark.parametrize(
    ("data", "size", "by_items"), [(TensorDataset, 4, True), (TensorDataset, None, False), (AtOnce, 4, False)]
)
def test_what_is_no_loader_s_item_is_a_range(
    data: type[TensorDataset], size: int | None, by_items: bool
) -> None:
    items = Subset(data(torch.ones(8, 3)), range(8))
    iterator = iter(DataLoader(items, batch_size=size, collate_fn=default_collate))
    end = profiled(torch, iterator)
    next(iterator)
    found = end()
    assert found is not None
    assert (COLLATING in read_step(torch, *found).names) == by_items
    assert iterator._dataset_fetcher.collate_fn is default_collate


def calls(*spans: tuple[int, int]) -> list[Event]:
    """A product in each span of time."""
    found = [Event("mark", 0, "__start_profile")]
    for began, ended in spans:
        found += [Event("push", began, "aten::mm"), Event("pop", ended)]
    return found


@pytest.fixture
def watch() -> Iterator[StepWatch]:
    made = StepWatch()
    yield made
    made.end()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda: nn.functional.linear(torch.ones(2, 4), torch.ones(3, 4)), ["ones", "ones", "t", "mm"]),
        (lambda: torch.ones(2).to(torch.float32), ["ones"]),  # nothing to do: autograd never hears of it
        (lambda: torch.ones(2).double(), ["ones", "_to_copy"]),
        (lambda: torch.ones(2).reshape(2, 1), ["ones", "view"]),
        (lambda: torch.ones(2) * 3, ["ones", "mul"]),
    ],
)
def test_operators_are_those_that_autograd_sees(program: Callable[[], object], expected: list[str]) -> None:
    assert names(seen(program)) == expected


def test_each_operator_gets_the_phase_in_which_it_began() -> None:
    events = calls((10, 20), (30, 40), (50, 60))
    step = read_step(torch, events, 1_000, moves=[(1_025, FORWARD), (1_045, BACKWARD)])
    assert [step.where[at] for at in step.operators] == [OTHER, FORWARD, BACKWARD]


def test_pauses_count_where_they_are_long_and_an_operator_came_before() -> None:
    events = calls((1, 2 * MS), (4 * MS, 5 * MS), (8 * MS, 9 * MS))
    assert read_step(torch, events, 0, pauses=[(2 * MS, 8 * MS)]).between_ns == (2 + 3) * MS
    assert read_step(torch, events, 0, pauses=[(9 * MS, 9 * MS + PAUSE_NS // 2)]).between_ns == 0
    assert read_step(torch, events, 0, pauses=[(0, 8 * MS)]).between_ns == 0


def test_python_at_length_between_operators_is_told_apart_from_what_they_take() -> None:
    events = calls((10, 5 * MS), (5 * MS + HELD_NS, 6 * MS), (6 * MS + 10, 7 * MS))
    assert read_step(torch, events, 0, step_ns=7 * MS).held_ns == HELD_NS
    assert read_step(torch, events, 0, step_ns=9 * MS).held_ns == HELD_NS + 2 * MS + 10


def test_it_is_off_before_the_job_switches_on_a_profiler_of_its_own(watch: StepWatch) -> None:
    watch.begin(lambda: profiled(torch))
    with torch.autograd.profiler.profile() as theirs:
        torch.ones(2)
    assert any(event.name == "aten::ones" for event in theirs.function_events)
    assert (watch.on, watch.for_kernels) == (False, False)
    assert watch.end() is None


def test_it_tells_whether_the_jobs_profiler_records_kernels(watch: StepWatch) -> None:
    for kinds in ([ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        watch.begin(lambda: profiled(torch))
        watch._make_room(object(), kinds, activity_filter={})  # as torch prepares one; this torch has no CUDA
        assert (watch.on, watch.for_kernels) == (False, ProfilerActivity.CUDA in kinds)


def test_it_is_off_in_a_forked_child(watch: StepWatch) -> None:
    watch.begin(lambda: profiled(torch))
    child = os.fork()
    if child == 0:
        os._exit(int(torch.autograd._profiler_enabled()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (watch.on, watch.for_kernels) == (False, False)


class Sees(TorchFunctionMode):
    """A mode of the job's own."""

    def __torch_function__(self, func: object, types: object, args: tuple = (), kwargs: object = None):
        raise AssertionError("it saw an operator of ours")


def packs(tensor: object) -> object:
    raise AssertionError("it saw a tensor of ours")


@pytest.mark.parametrize(
    "theirs",
    [
        lambda: FlopCounterMode(display=False),
        Sees,
        lambda: torch.autograd.graph.saved_tensors_hooks(packs, packs),
    ],
    ids=["dispatch mode", "function mode", "saved tensor hooks"],
)
def test_nothing_of_the_jobs_sees_what_the_floors_run(
    theirs: Callable[[], AbstractContextManager[object]],
) -> None:
    with theirs() as mode:
        meter = FloorMeter(torch)
        meter.time()
        if isinstance(mode, FlopCounterMode):
            assert mode.get_total_flops() == 0
    assert (meter.op_cost_ns or 0) > 0
    assert meter.floors.of("aten::mm", 2) > 0
    with unwatched(torch):
        assert torch._C._len_torch_dispatch_stack() == 0


def torch_of(cuda: str | None) -> SimpleNamespace:
    return SimpleNamespace(version=SimpleNamespace(cuda=cuda))


@pytest.fixture(autouse=True)
def in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler_window, "cuda_in_use", lambda: True)


@pytest.mark.parametrize(
    ("cuda", "own", "asked", "given"),
    [
        ("12.4", None, False, False),
        ("12.4", None, True, True),
        ("12.4", "1", False, True),
        ("12.6", None, False, True),
        ("13.0", None, False, True),
        ("13.0", "0", False, False),
        (None, None, False, True),
    ],
)
def test_a_window_that_leaves_cupti_in_the_job_is_taken_only_where_the_user_asks(
    cuda: str | None, own: str | None, asked: bool, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TEARDOWN, raising=False)
    if own is not None:
        monkeypatch.setenv(TEARDOWN, own)
    why = why_no_window(torch_of(cuda), asked=asked)
    assert (why is None) == given
    assert given or "--window" in str(why)


def test_beside_another_profiler_no_window_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")
    assert "CUDA_INJECTION64_PATH is set" in str(why_no_window(torch_of("13.0"), asked=True))
    assert cupti_user({}, "7f00 r-xp /opt/nvidia/nsys/libToolsInjection64.so") is not None
    assert cupti_user({}, "7f00 r-xp /site/nvidia/libcupti.so.12") is None


@pytest.mark.parametrize("for_kernels", [False, True])
def test_cupti_stays_for_a_profiler_of_kernels_that_the_job_switches_on(for_kernels: bool) -> None:
    task = WindowTask(SimpleNamespace(torch=torch_of("13.0")), 3, shapes=False, emit=lambda event: None)
    task._watch.for_kernels = for_kernels
    with task._teardown():
        assert (TEARDOWN in os.environ) is not for_kernels
    assert TEARDOWN not in os.environ


@pytest.mark.parametrize("kind", [PROFILER, RECORDER])
def test_nothing_is_told_within_and_the_level_is_put_back(kind: LogLevel) -> None:
    level = level_of(torch, kind)
    before = level.value
    with quiet(torch, kind):
        assert level.value == kind.nothing != before
    assert level.value == before
    try:
        with quiet(torch, kind):
            level.value = before + 1
        assert level.value == before + 1  # it was set within
    finally:
        level.value = before
