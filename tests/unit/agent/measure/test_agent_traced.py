"""Traced steps: which ones count, when there are enough, and that the profiler comes off."""

import threading
from array import array
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.loop.task_runner import OVERRUN, PAUSE_NS, Boundary, Measuring
from autobrrr.agent.measure import traced_steps
from autobrrr.agent.measure.cpu_profiler import ProfiledStep
from autobrrr.agent.measure.kernel_times import KernelTimes, TakenStep
from autobrrr.agent.measure.traced_steps import SHORT_STEPS, TraceTask
from autobrrr.agent.phases.phase_clock import PhaseClock
from autobrrr.agent.wire import ring_layout


@pytest.fixture
def told() -> list[dict[str, object]]:
    return []


@pytest.fixture
def task(told: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceTask]:
    """About to begin its first step; nothing of its own keeps it from doing so."""
    loop = SimpleNamespace(torch=torch, phases=PhaseClock(), train_tid=1, last_phases={"forward": 500_000})
    loop.job, loop.last_sample, loop.measuring = Job(torch), (), SimpleNamespace(spent_ns=0)
    made = TraceTask(loop, 6, told.append)
    made._calls = torch.autograd._get_sequence_nr()
    monkeypatch.setattr(TraceTask, "_prepare", lambda self, boundary: None)
    monkeypatch.setattr(TraceTask, "_check", lambda self, job: None)
    yield made
    made.cancel()
    assert not torch.autograd._profiler_enabled()


def boundary(flags: int = 0, seq: int = 9, step_ns: int = 1_000_000) -> Boundary:
    return Boundary(job=Job(torch), seq=seq, now_ns=0, last_step_ns=step_ns, last_flags=flags)


def step(kernel_ns: int = 1_000) -> ProfiledStep:
    """Of one product."""
    one = array("q", [0])
    spent = array("q", [kernel_ns])
    return ProfiledStep(
        names=["aten::mm"], began_ns=one, spent_ns=spent, within=one, where=bytearray(b"\2"), operators=[0]
    )


def profiling() -> bool:
    return bool(torch.autograd._profiler_enabled())


def test_steps_come_in_turn_and_are_recorded_once_there_are_enough(
    task: TraceTask, told: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TraceTask, "_worth_more", lambda self, every: False)
    kinds = list[str]()
    at = boundary()
    while task.at_boundary(at):
        kinds.append(task._kind)
        assert bool(at.mark & ring_layout.TRACED) == (task._kind in ("timed", "recorded"))
        torch.ones(4) + 1
        # A record shows no times: hooks may settle in its step.
        at = boundary(at.mark | (ring_layout.SETTLING if task._kind == "recorded" else 0))
    assert kinds == [*list(SHORT_STEPS) * 5, "timed", "recorded"]
    traced, recorded = told
    found = traced["traced"]
    assert found["status"] == "ok"
    assert [row["op"] for row in found["by_op"]]
    assert "finish" in recorded


def test_a_step_whose_record_would_hold_training_up_is_not_recorded(
    task: TraceTask, told: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traced_steps, "NODE_NS", 1 << 40)
    monkeypatch.setattr(TraceTask, "_worth_more", lambda self, every: False)
    while task.at_boundary(boundary()):
        torch.ones(4) + 1
    assert [event["event"] for event in told] == ["traced", "recorded"]
    assert "would pause training for about" in str(told[1])


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_operators_that_would_end_the_process_under_the_recorder_are_not_recorded(
    layout: torch.layout, task: TraceTask, told: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TraceTask, "_worth_more", lambda self, every: False)
    blocks = {"blocksize": (2, 2)} if layout == torch.sparse_bsr else {}
    graph = torch.eye(8).to_sparse(layout=layout, **blocks)
    while task.at_boundary(boundary()):
        torch.sparse.mm(graph, torch.ones(8, 2))
    assert "compressed sparse" in str(told[1])


@pytest.mark.parametrize(("paused_ms", "timed", "quiet"), [(200, 6, 0), (400, 3, 3)])
def test_once_training_has_stood_still_for_long_fewer_steps_are_enough(
    paused_ms: int, timed: int, quiet: int, task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task._loop.measuring.spent_ns = paused_ms * 1_000_000
    kinds = list[str]()
    while task._kind != "recorded":
        task.at_boundary(boundary())
        kinds.append(task._kind)
        torch.ones(4) + 1
    assert kinds.count("timed") == timed
    task._watch.end()
    task._taken = []
    run_steps(task, [0, 600_000, 20_000, 0], monkeypatch)
    assert len(task._found()["kernel_ns"]) == (quiet or 4), "the quiet ones, where they are enough"


def test_what_another_thread_can_not_take_off_comes_off_at_the_next_boundary(task: TraceTask) -> None:
    measuring = Measuring(lambda event: None, lambda: 0)
    measuring.begin(task)
    assert not measuring.slice(boundary())
    other = threading.Thread(target=measuring.stop)
    other.start()
    other.join()
    assert profiling()
    assert measuring.unfinished is task, "the training thread has a part in it"
    measuring.stop()
    assert not profiling()
    assert measuring.unfinished is None


def test_a_step_that_lasts_too_long_is_cut_off_and_dropped_and_the_task_goes_on(task: TraceTask) -> None:
    now, told = [0], list[object]()
    measuring = Measuring(told.append, lambda: now[0])
    measuring.begin(task)
    plain, traced = boundary(), boundary(ring_layout.TRACED, seq=10)
    assert not measuring.slice(plain)
    assert (plain.mark, profiling()) == (ring_layout.TRACED, True)
    now[0] = OVERRUN * PAUSE_NS
    measuring.cut_off()
    assert not profiling()
    assert not measuring.slice(traced)
    assert (task._taken, told) == ([], [])


def run_steps(task: TraceTask, delays_ns: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """So many rounds of a timed, a sampled and a plain step of 1 ms, with their waits for a CPU."""
    waited_ns = 0
    monkeypatch.setattr(traced_steps, "run_delay_ns", lambda tid: waited_ns)
    monkeypatch.setattr(traced_steps, "read_step", lambda *args, **kwargs: step())
    for delay_ns in delays_ns:
        for kind in ("timed", "phases", "plain"):
            task._step_delay_ns = waited_ns
            waited_ns += delay_ns
            task._ended(kind, ([], 0), boundary())


def test_of_steps_that_others_disturbed_only_the_quiet_ones_count(
    task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_steps(task, [600_000, 0, 20_000] * 6, monkeypatch)
    found = task._found()
    assert len(found["kernel_ns"]) == 12
    assert found["run_delay_share"] == pytest.approx(0.01)


def test_where_too_few_were_quiet_all_count_and_the_wait_is_told(
    task: TraceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traced_steps, "perf_counter_ns", lambda: 27_000_000)
    run_steps(task, [600_000, 600_000, 0] * 3, monkeypatch)
    found = task._found()
    assert len(found["kernel_ns"]) == 9
    assert found["run_delay_share"] == pytest.approx(0.4)


def test_operators_that_take_another_part_of_each_step_are_seen_and_of_the_same_no_more_is_needed() -> None:
    def results(kernels: list[int]) -> KernelTimes:
        return KernelTimes([TakenStep(ns=100 * at, timed=step(ns)) for at, ns in enumerate(kernels, 1)])

    assert results([10, 20, 30, 40, 50, 60]).steady
    assert not results([10, 160, 30, 320, 50, 480]).steady
