"""The timing mode of traced steps comes off, whoever ends them and however long a step takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from autobrrr.injected.live_torch.dispatch_modes import modes_on_stack
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.live_torch.torch_types import Abstain
from autobrrr.injected.loop.boundary_task import Boundary
from autobrrr.injected.loop.task_runner import OVERRUN, PAUSE_NS, Measuring
from autobrrr.injected.loop.train_loop import TrainLoop
from autobrrr.injected.measure import dispatch_timer, traced_steps
from autobrrr.injected.measure.op_work import Work
from autobrrr.injected.measure.traced_steps import TraceTask
from autobrrr.injected.wire import ring_layout


@pytest.fixture
def task() -> Iterator[TraceTask]:
    """In the middle of a traced step."""
    loop = SimpleNamespace(torch=torch, hooks=SimpleNamespace(overdue=None), phases=None)
    loop.train_tid, loop.last_phases = 1, {"forward": 500_000}
    made = TraceTask(cast(TrainLoop, loop), 6, lambda event: None)
    made._kind = "traced"
    made._mode = dispatch_timer.enter(torch, None)
    yield made
    while modes_on_stack(torch):
        torch._C._pop_torch_dispatch_stack(None)


def boundary(flags: int = 0, seq: int = 9) -> Boundary:
    return Boundary(job=Job(torch), seq=seq, now_ns=0, last_step_ns=1_000_000, last_flags=flags)


def test_a_mode_that_another_thread_can_not_take_off_comes_off_at_the_next_boundary(task: TraceTask) -> None:
    measuring = Measuring(lambda event: None, lambda: 0)
    measuring.begin(task)
    other = threading.Thread(target=measuring.stop)
    other.start()
    other.join()
    assert modes_on_stack(torch) == 1
    assert measuring.unfinished is task, "the training thread has a part in it"
    measuring.stop()
    assert modes_on_stack(torch) == 0
    assert measuring.unfinished is None


def test_a_step_that_lasts_too_long_is_cut_off_and_dropped_and_the_task_goes_on(task: TraceTask) -> None:
    task.cancel()
    task._kind = ""
    task._prepared = lambda boundary: True  # type: ignore[method-assign]
    task._check = lambda job: None  # type: ignore[method-assign]
    now, told = [0], list[object]()
    measuring = Measuring(told.append, lambda: now[0])
    measuring.begin(task)
    plain, traced = boundary(), boundary(ring_layout.TRACED, seq=10)
    assert not measuring.slice(plain)
    assert (plain.mark, modes_on_stack(torch)) == (ring_layout.TRACED, 1)
    now[0] = OVERRUN * PAUSE_NS
    agent = threading.Thread(target=measuring.cut_off)
    agent.start()
    agent.join()
    assert not measuring.slice(traced)
    assert (task._results.traced, told, modes_on_stack(torch)) == ([], [], 0)


def test_the_mode_is_left_before_the_job_switches_a_profiler_of_its_own_on(task: TraceTask) -> None:
    task.cancel()
    task._check = lambda job: None  # type: ignore[method-assign]
    task._begin_step(boundary(), last=False)
    assert modes_on_stack(torch) == 1
    with torch.autograd.profiler.profile() as theirs:
        torch.ones(2)
    assert modes_on_stack(torch) == 0
    assert not any("Mode" in event.name for event in theirs.function_events)
    task._end_step(boundary(ring_layout.TRACED))
    assert not task._results.traced
    assert not task._witnesses


def test_products_run_alone_wait_while_the_job_watches(
    task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come between steps and put nothing on one."""
    task._traced, ran, seen = {"work": []}, [], []  # type: ignore[var-annotated]
    monkeypatch.setattr(task._alone, "slice", lambda work, pause_ns: ran.append(pause_ns))
    measuring = Measuring(lambda event: None, lambda: 0, watches=lambda: seen[0] if seen else None)
    measuring.begin(task)
    assert not measuring.slice(boundary())
    seen.append("its profile")
    assert not measuring.slice(boundary())
    assert len(ran) == 1


def test_a_mode_under_another_that_was_not_left_is_told(task: TraceTask) -> None:
    theirs = dispatch_timer.enter(torch, None)
    with pytest.raises(Abstain, match="another dispatch mode"):
        task._end_step(boundary())
    assert task.pending
    theirs.__exit__(None, None, None)
    task.cancel()
    assert not task.pending
    assert modes_on_stack(torch) == 0


def test_the_mode_is_left_before_the_gradient_of_what_no_logged_step_has_called(task: TraceTask) -> None:
    mode = task._mode
    assert mode is not None
    factors = torch.rand(3, 4, requires_grad=True)
    look = task._doubted(mode)
    product = (1 - factors).prod(-1).sum()
    look()
    assert modes_on_stack(torch) == 0
    product.backward()
    with pytest.raises(Abstain, match="aten::prod another way"):
        task._end_step(boundary(ring_layout.TRACED))
    task.cancel()
    assert not task.pending


def test_what_logged_steps_have_called_without_its_gradient_is_traced(task: TraceTask) -> None:
    with torch.no_grad():
        task._mode.__exit__(None, None, None)  # type: ignore[union-attr]
        task._sensitive.begin_step()
        torch.rand(3, 4).prod(-1)
        task._sensitive.end_step()
        task._mode = dispatch_timer.enter(torch, None)
        look = task._doubted(task._mode)
        torch.rand(3, 4).prod(-1)
    look()
    assert modes_on_stack(torch) == 1
    task._end_step(boundary(ring_layout.TRACED))
    assert not task.pending


def read(ops: str, work: list[int | None]) -> dispatch_timer.TimingMode:
    """A counted step of these operators; None where shapes were not read."""
    return cast(
        dispatch_timer.TimingMode,
        SimpleNamespace(
            ops=list(ops), work=[None if one is None else Work(one, one, "2x2", "float32") for one in work]
        ),
    )


def works(results: dispatch_timer.Results) -> list[int | None]:
    assert results.counted is not None
    return [None if one is None else one.flops for one in results.counted.work]


def test_shapes_of_a_step_with_many_operators_are_read_over_several_steps() -> None:
    results = dispatch_timer.Results()
    results.add_counted(read("abcdef", [1, 2, None, None, None, None]))
    assert (results.read_to, results.read_on) == (2, True)
    results.add_counted(read("abcdef", [None, None, 3, None, 5, None]))
    assert (works(results), results.read_to, results.read_on) == ([1, 2, 3, None, 5, None], 5, True)
    results.add_counted(read("abcdef", [None] * 6))  # the last can't be read: no further step is spent
    assert (results.read_to, results.read_on) == (5, False)


def test_a_step_of_other_operators_counts_only_where_more_of_it_was_read() -> None:
    results = dispatch_timer.Results()
    results.add_counted(read("abcd", [1, 2, None, None]))
    results.add_counted(read("xyz", [None, None, 3]))
    assert works(results) == [1, 2, None, None]
    assert not results.read_on
    results.add_counted(read("xyz", [1, 2, 3]))
    assert works(results) == [1, 2, 3]


def test_a_reader_begins_where_the_last_one_ended() -> None:
    tensor = torch.ones(2, 2)
    count = dispatch_timer.counter(begin_at=1)
    found = [count(torch.ops.aten.mm.default, (tensor, tensor), {}, tensor) for _ in range(2)]
    assert [one is None for one in found] == [True, False]


def run_steps(task: TraceTask, delays_ns: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """So many rounds of a traced, a sampled and a plain step of 1 ms, with their waits for a CPU."""
    waited_ns = 0
    monkeypatch.setattr(traced_steps, "run_delay_ns", lambda tid: waited_ns)
    task._mode, mode = None, task._mode
    assert mode is not None
    mode.over = True
    torch._C._pop_torch_dispatch_stack(None)
    for delay_ns in delays_ns:
        for kind in ("traced", "phases", "plain"):
            task._kind, task._step_delay_ns = kind, waited_ns
            if kind == "traced":
                task._mode = dispatch_timer.enter(torch, None)
                torch.ones(4)
            waited_ns += delay_ns
            task._end_step(boundary())


def test_of_steps_that_others_disturbed_only_the_quiet_ones_count(
    task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_steps(task, [600_000, 0, 20_000] * 6, monkeypatch)
    found = task._found()
    assert len(task._results.traced) == 18
    assert len(cast("list[int]", found["kernel_ns"])) == 12 - 1  # the first is dropped
    assert found["run_delay_share"] == pytest.approx(0.01)


def test_where_too_few_were_quiet_all_count_and_the_wait_is_told(
    task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0
    monkeypatch.setattr(traced_steps, "perf_counter_ns", lambda: now_ns)
    run_steps(task, [600_000, 600_000, 0] * 3, monkeypatch)
    now_ns = 27_000_000
    found = task._found()
    assert len(cast("list[int]", found["kernel_ns"])) == 9 - 1
    assert found["run_delay_share"] == pytest.approx(0.4)


def test_a_busy_machine_is_worth_more_steps_while_some_are_quiet(
    task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task._began_ns = traced_steps.perf_counter_ns()
    task._results.dropped = task._quiet.dropped = 0
    run_steps(task, [600_000] * 6, monkeypatch)
    assert task._complete(task._results)
    assert not task._worth_more()
    run_steps_again = [0] + [600_000] * 3
    task._mode = dispatch_timer.enter(torch, None)
    run_steps(task, run_steps_again, monkeypatch)
    assert task._worth_more()


@pytest.mark.parametrize("step_ns", [1_000_000, 700_000_000])
def test_the_times_of_long_steps_are_told_once_before_their_shapes_are_read(
    step_ns: int, task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, object]] = []
    begun: list[bool] = []
    task._emit = told.append
    run_steps(task, [0] * 8, monkeypatch)
    monkeypatch.setattr(TraceTask, "_worth_more", lambda self: False)
    monkeypatch.setattr(TraceTask, "_begin_step", lambda self, boundary, last: begun.append(last))
    for _ in range(2):
        at = Boundary(job=Job(torch), seq=9, now_ns=0, last_step_ns=step_ns, last_flags=0)
        assert task.at_boundary(at) == 1
    assert begun == [True, True]
    assert [event["event"] for event in told] == (["tracing"] if step_ns > 50_000_000 else [])
    for event in told:
        found = cast("dict[str, list[int]]", event["tracing"])
        assert len(found["kernel_ns"]) == 8 - 1
        assert found["work"] == []


def test_where_threads_outnumber_the_cpus_their_waits_are_the_jobs_own(
    task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task._foreign = traced_steps.ForeignLoad()
    run_steps(task, [600_000, 0, 0] * 6, monkeypatch)
    assert not task._quiet.traced
    assert len(cast("list[int]", task._found()["kernel_ns"])) == 18 - 1
