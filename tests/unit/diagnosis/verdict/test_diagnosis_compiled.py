"""Compiled jobs: the profiler window and the sampled stacks name who limits the step, or nobody."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import FrameCount, FrameSamples, Verdict, WindowOp
from support.judged import diagnosis
from support.judged.diagnosis import MS, compiled, frames

FUSED = [WindowOp(op="CompiledFxGraph", count=2.0, self_ns=32.0 * MS)]
UPDATES = FrameSamples(
    samples=300,
    places=[
        FrameCount(where="train.py:15 main", phase="forward", in_loader=False, samples=75),
        FrameCount(where="train.py:16 main", phase="backward", in_loader=False, samples=129),
        FrameCount(where="train.py:17 main", phase="optimizer", in_loader=False, samples=96),
    ],
)


def verdict(measured: Measurements) -> Verdict:
    return judge(measured).verdict


def limit(measured: Measurements) -> tuple[str, str]:
    found = verdict(measured)
    return found.limit, found.limit_confidence


def test_kernels_limit_for_sure_and_are_listed_by_what_they_are() -> None:
    found = verdict(compiled(UPDATES))
    assert (found.limit, found.limit_confidence, found.regime) == ("kernels", "high", "unknown")
    assert found.limit_reason.startswith("53 % matrix products, 10 % other operators")
    fused = next(one for one in found.advice if one.remedy == "optimizer.fused")
    assert fused.why.startswith("the optimizer takes 27 % of the step over 40 tensors")  # at least
    assert fused.expected == pytest.approx(1 / (1 - 0.266 * 0.7 + 60 * 0.01 / 36), abs=0.01)


def test_an_optimizer_that_is_fused_or_compiled_is_left_alone() -> None:
    fused = [WindowOp(op="aten::_fused_adamw_", count=1.0, self_ns=5.0 * MS)]
    for job in (compiled(UPDATES, by_op=fused), compiled(frames(model=300))):
        assert not [one for one in verdict(job).advice if one.remedy.startswith("optimizer.")]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (compiled(frames(model=300), by_op=FUSED, graph_kernels=20, operators=60.0), ("kernels", "high")),
        (compiled(frames(model=300), by_op=FUSED, graph_kernels=None, operators=60.0), ("unknown", "low")),
        (compiled(frames(model=300), by_op=FUSED, graph_kernels=1200, operators=60.0), ("unknown", "low")),
        (compiled(frames(model=300), operators=2500.0, by_op=[]), ("unknown", "low")),
        (compiled(frames(model=220, host=80)), ("unknown", "low")),  # the window has not seen so much of it
        (compiled(frames(model=200, loader=100)), ("unknown", "low")),
        (compiled(frames(model=300), waits=0.5), ("mixed", "low")),
        (compiled(frames(model=60, host=240), inside_share=0.2, operators=90.0, by_op=[]), ("host", "high")),
        (compiled(frames(model=300), inside_share=0.2, operators=90.0, by_op=[]), ("host", "low")),
        (compiled(frames(model=150, loader=150), inside_share=0.2, operators=90.0), ("unknown", "low")),
        (compiled(UPDATES, status="abstained"), ("unknown", "low")),
    ],
    ids=map(str, range(11)),
)
def test_both_instruments_name_who_limits_or_nobody_does(
    job: Measurements, expected: tuple[str, str]
) -> None:
    assert limit(job) == expected


def test_nobody_is_named_beside_ranks_with_too_many_threads_or_in_steps_of_two_kinds() -> None:
    rank = msgspec.structs.replace(diagnosis.facts(), rank=0, world_size=2)
    for job in (rank, diagnosis.facts(threads=8)):
        assert limit(dataclasses.replace(compiled(UPDATES), facts=job)) == ("unknown", "low")
    bursts = compiled(UPDATES)
    bursts.step_ns[::10] *= 6  # a third of the time, which four steps may not hold
    assert limit(bursts) == ("unknown", "low")


def test_a_generator_that_the_loop_reads_from_is_input() -> None:
    stacks = frames(host=240, model=60)
    fed = [msgspec.structs.replace(one, in_feed=one.phase == "other") for one in stacks.places]
    stacks = msgspec.structs.replace(stacks, places=fed)
    assert limit(compiled(stacks, inside_share=0.2, operators=90.0, by_op=[])) == ("input", "low")
