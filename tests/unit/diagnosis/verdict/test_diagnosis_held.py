"""Python inside a phase that operators don't explain: named by its line, and not called dispatch."""

import statistics

import msgspec
import pytest

from autobrrr.agent.measure.stack_sampler import Place, Sleeps
from autobrrr.diagnosis.models.held_phase import held_phase
from autobrrr.diagnosis.verdict.judge import judge
from support.judged import diagnosis
from support.judged.diagnosis import MS, held, held_stacks, replaced


def test_a_backward_that_sleeps_is_named_by_its_line_and_not_called_dispatch() -> None:
    found = judge(held()).verdict
    assert found.regime == "overhead"
    assert "Python inside backward, not dispatch" in found.reason
    assert "most at train.py:31 backward, where the thread sleeps" in found.reason
    assert "to dispatch one" not in found.reason


def test_one_that_works_runs_and_one_that_nobody_could_watch_is_neither() -> None:
    assert "where it runs" in judge(held(stacks=held_stacks(asleep=2))).verdict.reason
    unwatched = [msgspec.structs.replace(one, stayed=0) for one in held_stacks(0).places]
    found = judge(held(stacks=msgspec.structs.replace(held_stacks(0), places=unwatched))).verdict
    assert found.reason.endswith("train.py:31 backward")


def test_neither_compiling_nor_a_hundredfold_gain_is_advised_for_it() -> None:
    assert not [one.remedy for one in judge(held()).verdict.advice if one.remedy.startswith("compile.")]


def test_where_operators_explain_half_of_it_it_is_dispatch() -> None:
    tiny = diagnosis.tiny_mlp()
    assert held_phase(tiny) is None
    reason = judge(tiny).verdict.reason
    assert "Python and dispatch" in reason
    cost_ns = tiny.traced.op_cost_ns if tiny.traced else None
    assert cost_ns
    assert held_phase(held(operations=int(0.6 * 53.0 * MS / cost_ns / 0.6))) is None


def test_operators_that_cost_more_than_the_least_in_every_phase_are_dispatch() -> None:
    tiny = diagnosis.tiny_mlp()
    spread = {"forward": 300.0, "backward": 330.0, "optimizer": 150.0}
    cheap = msgspec.structs.replace(tiny.traced, operations_by_phase=spread, op_cost_ns=900)
    measured = replaced(tiny, traced=cheap)
    step_ns = statistics.median(cheap.plain_step_ns)
    assert 780 * 900 / step_ns < 0.5 * 0.72  # of the overhead, as forward, backward and optimizer have it
    assert held_phase(measured) is None
    assert "not dispatch" not in judge(measured).verdict.reason


def test_stacks_that_stand_in_no_one_function_carry_nothing() -> None:
    scattered = judge(held(stacks=held_stacks(20, elsewhere=200))).verdict
    assert scattered.regime == "unknown"
    assert judge(replaced(held(), frames=None)).verdict.regime == "unknown"


@pytest.mark.parametrize(("busy_ns", "asleep"), [(1_000_000, 1), (9_000_000, 0)])
def test_a_thread_that_stays_and_hardly_runs_is_asleep(busy_ns: int, asleep: int) -> None:
    clock = iter([0, busy_ns, 2 * busy_ns])
    sleeps = Sleeps(lambda: next(clock))
    here = Place("a.py:1 f", "backward", in_loader=False, in_collective=False, does="", own=True)
    assert sleeps.see(here, 0) == (False, False)
    assert sleeps.see(here, 10_000_000) == (True, asleep)
    assert sleeps.see(here._replace(where="a.py:9 g"), 20_000_000) == (False, False)


def test_a_thread_whose_clock_cannot_be_read_is_neither_awake_nor_asleep() -> None:
    sleeps = Sleeps(lambda: None)
    place = Place("a.py:1 f", "forward", in_loader=False, in_collective=False, does="", own=True)
    assert sleeps.see(place, 0) == (False, False)
    assert sleeps.see(place, 10) == (False, False)
