"""What the machine and Python themselves take of a step: told, never named alone."""

import msgspec
import numpy as np
import pytest

from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals.signal_table import read_all
from autobrrr.diagnosis.verdict.judge import judge
from support.judged import diagnosis
from support.judged.diagnosis import MS


def reading(measured: diagnosis.Measurements, signal: str) -> Reading:
    return read_all(measured)[signal]


def test_garbage_collections_are_told_with_their_share() -> None:
    found = reading(diagnosis.replaced(diagnosis.tiny_mlp(), garbage_ns=0.26 * MS), "garbage")
    assert found.value == pytest.approx(0.1, rel=0.02)
    assert "260 us a step, 10 % of it" in found.note
    assert found.says is None


def test_busy_workers_are_told_by_the_core_that_each_uses() -> None:
    busy = diagnosis.replaced(
        diagnosis.starved_with_workers(), host=diagnosis.machine(children_cpu_share=1.9)
    )
    assert reading(busy, "loader_cpu").value == pytest.approx(0.95)
    assert "each of 2 workers uses 95 % of a core" in reading(busy, "loader_cpu").note
    assert reading(diagnosis.starved_without_workers(), "loader_cpu").abstained


def test_a_few_long_steps_are_told_apart_from_the_usual_one() -> None:
    steps = diagnosis.steady(2.0 * MS, 100)
    steps[[20, 60]] = 50 * MS
    found = reading(diagnosis.replaced(diagnosis.tiny_mlp(), step_ns=steps), "uneven_steps")
    assert found.value == pytest.approx(96 / 296, rel=0.02)
    assert "2 of 100 steps take 50 ms instead of 2 ms" in found.note


def with_rollouts(long_ms: float) -> diagnosis.Measurements:
    """A tiny net: 100 steps of 2.6 ms, some of them with a rollout before."""
    steps = diagnosis.steady(2.6 * MS, 100)
    steps[::12] = int(long_ms * MS)
    return diagnosis.replaced(diagnosis.tiny_mlp(), step_ns=steps)


@pytest.mark.parametrize(
    ("host", "loader", "limit"), [(90, 0, "host"), (0, 90, "input"), (0, 0, "mixed"), (55, 0, "mixed")]
)
def test_where_long_steps_take_most_of_the_time_the_stacks_name_who_has_them_and_not_the_usual_one(
    host: int, loader: int, limit: str
) -> None:
    mixture = diagnosis.kernel_bound(
        diagnosis.worked("aten.mm.default", 0.45, 20 * MS, rate=0.8, bandwidth=0.1),
        diagnosis.worked("aten.mul.Tensor", 0.45, 20 * MS, rate=0.01, bandwidth=0.9),
    )
    assert judge(mixture).verdict.limit == "kernels"
    steps = np.where(np.arange(60) % 6 == 0, 400 * MS, 20 * MS).astype(np.int64)
    stacks = diagnosis.frames(host=host, loader=loader, model=100 - host - loader)
    found = judge(diagnosis.replaced(mixture, step_ns=steps, frames=stacks)).verdict
    assert (found.regime, found.limit, found.limit_confidence) == ("mixed", limit, "low")
    assert "10 of 60 steps take 400 ms instead of 20 ms" in found.reason
    if limit != "mixed":
        assert found.limit_reason.startswith("10 of 60 steps take 400 ms instead of 20 ms: 76 % of the time")
        assert found.adds.startswith("90 % of 100 samples stand in")
    assert "stand in the loop's own code" in found.reason or not host
    others = diagnosis.machine(run_delay_share=0.3)  # who may have made them long
    busy = judge(diagnosis.replaced(mixture, step_ns=steps, frames=stacks, host=others)).verdict
    assert "steps take 400 ms" not in busy.reason


def test_long_steps_that_take_much_of_the_time_are_told_by_where_they_stand() -> None:
    much = with_rollouts(60)
    found = judge(much).verdict
    assert found.regime == "mixed"
    assert "66 % of the time" in found.reason
    assert "the usual step alone is" in found.reason
    places = [
        msgspec.structs.replace(place, long_ns=900 * MS, does="worker start")
        for place in diagnosis.frames(loader=30).places
    ]
    stacks = msgspec.structs.replace(diagnosis.frames(loader=30), places=places)
    note = reading(diagnosis.replaced(much, frames=stacks), "uneven_steps").note
    assert "100 % of the looks into them at train.py:31 make_batch, worker start" in note
    assert judge(with_rollouts(7)).verdict.regime == "overhead"


def test_even_steps_are_of_one_kind_and_steps_of_any_length_have_none() -> None:
    assert reading(diagnosis.tiny_mlp(), "uneven_steps").value == 0.0
    halves = np.array([1 * MS] * 12 + [4 * MS] * 10, dtype=np.int64)
    wild = reading(diagnosis.replaced(diagnosis.tiny_mlp(), step_ns=halves), "uneven_steps")
    assert "no usual length" in wild.note
    assert reading(diagnosis.replaced(diagnosis.tiny_mlp(), step_ns=halves[:4]), "uneven_steps").abstained


def test_a_container_that_stops_the_job_is_a_busy_machine() -> None:
    stopped = diagnosis.tiny_mlp(diagnosis.machine(throttled_share=0.7))
    assert "70 % of the time stopped by the CPU limit" in reading(stopped, "busy_machine").note
    assert judge(stopped).verdict.regime == "unknown"
    assert judge(diagnosis.tiny_mlp(diagnosis.machine(throttled_share=0.0))).verdict.confidence == "high"
