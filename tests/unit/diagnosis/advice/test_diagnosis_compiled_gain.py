"""What compiling would bring is told from the traced operators, as an estimate."""

import math
import statistics

import msgspec
import pytest

from autobrrr.diagnosis.advice.compiled_gain import PRIOR, PRIOR_INTERVAL, compiled_gain
from autobrrr.diagnosis.advice.predicted_gains import predicted_gain
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import OpWork
from support.judged import diagnosis
from support.judged.diagnosis import MS, an_op, anatomy, measured, traced

SHARES = {"data_wait": 0.0, "forward": 0.45, "backward": 0.5, "optimizer": 0.05, "other": 0.0}


def job(
    kernels: float, operators: list[OpWork], *, step_ns: float = 2.0 * MS, compiled: bool = False
) -> Measurements:
    trace = traced(step_ns, SHARES, kernels=kernels, operations=900, work=operators, op_cost_ns=2_000)
    return measured(step_ns, SHARES, trace=trace, fixed=0.95, build=anatomy(compiled=compiled), steps=60)


def gain(found: Measurements) -> float:
    parts = step_parts(found)
    assert parts is not None
    compiled = compiled_gain(found, parts)
    return compiled.estimate


def test_dispatch_of_forward_and_backward_goes_but_for_the_products_and_one_call() -> None:
    found = job(0.1, [an_op("aten.addmm.default", 1e5), an_op("aten.gelu.default", 0.0, count=300)])
    idle_ns, left_ns = 0.9 * 0.95 * 2.0 * MS, (60 + 10) * 2_000
    assert gain(found) == pytest.approx(2.0 * MS / (2.0 * MS - idle_ns + left_ns), rel=0.02)


def test_matrix_products_are_left_as_they_are() -> None:
    products = job(0.95, [an_op("aten.mm.default", 9e5), an_op("aten.mm.default", 9e5, phase="backward")])
    pointwise = job(0.95, [an_op("aten.mul.Tensor", 9e5), an_op("aten.mul.Tensor", 9e5, phase="backward")])
    assert gain(products) < 1.06
    assert gain(pointwise) > 1.8


def test_what_the_optimizer_does_is_not_compiled() -> None:
    inside = [an_op("aten.mm.default", 9e5), an_op("aten.mul.Tensor", 9e5, phase="optimizer")]
    assert gain(job(0.95, inside)) == gain(job(0.95, inside[:1]))


@pytest.mark.parametrize("found", [job(0.1, []), job(0.1, [an_op("aten.mm.default", 1e5)], compiled=True)])
def test_nothing_is_predicted_without_operators_or_of_a_compiled_job(found: Measurements) -> None:
    assert "compile.default" not in predicted_gain(found)


def test_the_advice_says_that_it_is_an_estimate() -> None:
    found = job(0.1, [an_op("aten.addmm.default", 1e5), an_op("aten.gelu.default", 0.0, count=300)])
    said = {one.remedy: one for one in judge(found).verdict.advice}["compile.default"]
    assert said.why.startswith("an estimate: ")
    assert said.expected == pytest.approx(PRIOR * gain(found), abs=1e-3)
    assert said.interval == pytest.approx([end * gain(found) for end in PRIOR_INTERVAL], abs=1e-3)
    low, high = (end * gain(found) for end in PRIOR_INTERVAL)
    assert f"{low:.2f} to {high:.2f} times as fast" in said.why


def test_an_estimate_that_other_scripts_did_not_reach_is_not_advised() -> None:
    got = {1.16: 0.52, 1.45: 1.02, 1.06: 0.71, 1.59: 0.77, 1.72: 1.59, 1.27: 1.13, 1.08: 1.10}
    logs = [math.log(reached / estimated) for estimated, reached in got.items()]
    centre, spread = statistics.mean(logs), statistics.stdev(logs)
    width = 2.447 * spread * math.sqrt(1 + 1 / len(logs))  # Student's t for six degrees of freedom
    assert pytest.approx(math.exp(centre), rel=0.02) == PRIOR
    assert (math.exp(centre - width), math.exp(centre + width)) == pytest.approx(PRIOR_INTERVAL, rel=0.03)
    pointwise = [an_op("aten.mul.Tensor", 5e5), an_op("aten.mm.default", 5e5, phase="backward")]
    found = job(0.95, pointwise)
    assert 1.2 < gain(found) < 1.45
    assert "compile.default" not in {one.remedy for one in judge(found).verdict.advice}


def test_waiting_for_other_ranks_is_no_dispatch() -> None:
    alone = diagnosis.waiting_rank()
    parts = step_parts(alone)
    assert parts is not None
    traced = alone.traced
    products = msgspec.structs.replace(traced, work=[an_op("aten.mm.default", 1e5, count=500)])
    rank = diagnosis.replaced(alone, traced=products)
    waiting = compiled_gain(rank, parts)
    unwatched = compiled_gain(diagnosis.replaced(rank, collectives=None), parts)
    assert waiting.dispatch < unwatched.dispatch
