"""Who limits the step of a live job: sure over a mixture of regimes, silent where clocks disagree."""

import dataclasses

import msgspec
import pytest

from autobrrr.diagnosis.advice.advice import treated_regimes
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.leading import limit_leads
from autobrrr.diagnosis.signals.signal_table import SIGNALS
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.diagnosis.verdict.step_limit import BESIDE_A_WINDOW, CLOCK_OF, SECONDS, WINDOW
from autobrrr.records import FrameCount, FrameSamples, Limit, Shares, Verdict, WindowOp
from support.judged import diagnosis
from support.judged.diagnosis import MS, compiled, frames

GRAPHS = [WindowOp(op="CompiledFxGraph", count=2.0, self_ns=32.0 * MS)]
UPDATES = FrameSamples(
    samples=300,
    places=[
        FrameCount(where="train.py:15 main", phase="forward", in_loader=False, samples=75),
        FrameCount(where="train.py:16 main", phase="backward", in_loader=False, samples=129),
        FrameCount(where="train.py:17 main", phase="optimizer", in_loader=False, samples=96),
    ],
)
HALVES = {"data_wait": 0.02, "forward": 0.2, "backward": 0.2, "optimizer": 0.1, "other": 0.48}


def verdict(measured: Measurements) -> Verdict:
    return judge(measured).verdict


def dispatch_and_own_code() -> Measurements:
    """Half of the step is Python inside the phases, half between them: no regime leads."""
    kernels = dict.fromkeys(HALVES, 0.05)
    return diagnosis.measured(
        4 * MS,
        HALVES,
        kernels=kernels,
        operations=900,
        stacks=diagnosis.frames(host=80, model=70),
        fixed=0.95,
    )


def two_kinds_of_kernels() -> Measurements:
    step_ns = 20.0 * MS
    return diagnosis.kernel_bound(
        diagnosis.worked("aten.mm.default", 0.45, step_ns, rate=0.8, bandwidth=0.1),
        diagnosis.worked("aten.mul.Tensor", 0.45, step_ns, rate=0.01, bandwidth=0.9),
    )


def short_operators(
    fixed: float | None, each_ns: float = 5_000.0, moved: float = 0.15, short: float = 0.5
) -> Measurements:
    """Half of the step in calls far below both roofs, some in kernels that move tensors."""
    step_ns = 0.6 * MS
    probe = None if fixed is None else diagnosis.probed(step_ns, fixed=fixed)
    return diagnosis.kernel_bound(
        diagnosis.worked("aten.add.Tensor", short, step_ns, bandwidth=0.02, count=short * step_ns / each_ns),
        diagnosis.worked("aten.mul.Tensor", moved, step_ns, bandwidth=0.9),
        step_ns=step_ns,
        probe=probe,
    )


def test_short_calls_are_no_kernels_that_limit_and_the_host_s_where_they_do_not_grow() -> None:
    assert verdict(short_operators(fixed=None)).limit not in ("host", "kernels")
    assert verdict(short_operators(fixed=0.3)).limit not in ("host", "kernels")
    fixed = verdict(short_operators(fixed=0.97))
    assert (fixed.limit, fixed.limit_confidence) == ("host", "low")
    assert "50 % short operators that don't grow with the batch" in fixed.limit_reason
    assert verdict(short_operators(fixed=0.97, moved=0.35)).limit not in ("host", "kernels")
    longer = verdict(short_operators(fixed=None, each_ns=40_000.0))
    assert longer.limit == "kernels"
    assert "50 % kernels far below both roofs" in longer.limit_reason


def test_short_calls_do_not_hide_a_host_that_takes_most_of_the_step_and_leads_the_kernels() -> None:
    found = verdict(short_operators(fixed=None, short=0.3, moved=0.1))
    assert (found.limit, found.limit_confidence) == ("host", "low")
    for growing in (
        short_operators(fixed=None, short=0.1, moved=0.35),
        short_operators(fixed=0.1, short=0.3, moved=0.1),
    ):
        assert verdict(growing).limit not in ("host", "kernels")


def test_short_calls_of_a_step_that_does_not_grow_are_overhead_by_name_and_with_little_confidence() -> None:
    # Sparse tables: 19 % idle, 50 % in calls of 6 us far below both roofs, 22 % moved, 98 % fixed.
    found = verdict(short_operators(fixed=0.976, moved=0.225))
    assert (found.regime, found.confidence) == ("overhead", "low")
    assert found.shares.overhead == pytest.approx(0.775, abs=0.01)
    assert "calls too short to be kernels" in SIGNALS["traced_steps"](short_operators(fixed=0.976)).note
    for other in (
        short_operators(fixed=None),
        short_operators(fixed=0.3),
        short_operators(fixed=0.976, each_ns=40_000.0),
        short_operators(fixed=0.976, moved=0.35),
        short_operators(fixed=0.65, moved=0.2),
    ):
        assert verdict(other).regime != "overhead"


def test_kernels_of_more_threads_than_cpus_limit_only_where_they_come_near_a_roof() -> None:
    asleep = diagnosis.machine(run_delay_share=0.03)  # threads that sleep for each other wait for no CPU
    slow = diagnosis.replaced(diagnosis.crowded_threads(bandwidth=0.2), host=asleep)
    slow = diagnosis.replaced(slow, traced=msgspec.structs.replace(slow.traced, run_delay_share=0.03))
    found = verdict(slow)
    assert (found.regime, found.limit) == ("unknown", "unknown")
    assert "8 threads on 2 CPUs, and kernels reach 20 % of the nearer roof" in found.reason
    assert "threads.intra_op" in found.decide_with
    near = diagnosis.replaced(diagnosis.crowded_threads(bandwidth=0.8), host=asleep)
    near = diagnosis.replaced(near, traced=msgspec.structs.replace(near.traced, run_delay_share=0.03))
    assert verdict(near).limit == "kernels"
    few = diagnosis.replaced(slow, facts=diagnosis.facts(threads=2))
    assert verdict(few).limit == "kernels"


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (diagnosis.tiny_mlp, "host"),
        (diagnosis.python_heavy, "host"),
        (diagnosis.metrics_loop, "host"),
        (diagnosis.compiled_rollout, "host"),
        (diagnosis.starved_with_workers, "input"),
        (diagnosis.starved_without_workers, "input"),
        (diagnosis.waiting_rank, "communication"),
        (diagnosis.products_at_peak, "kernels"),
        (diagnosis.pointwise_chain, "kernels"),
        (diagnosis.small_kernels, "kernels"),
        (dispatch_and_own_code, "host"),
        (two_kinds_of_kernels, "kernels"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_each_kind_of_job_is_limited_by_who_takes_its_step(kind, limit: Limit) -> None:
    found = verdict(kind())
    assert (found.limit, found.limit_confidence) == (limit, "high"), found.limit_reason


@pytest.mark.parametrize("kind", [dispatch_and_own_code, two_kinds_of_kernels])
def test_a_limit_is_high_over_a_mixture_and_lists_its_parts(kind) -> None:
    found = verdict(kind())
    assert found.regime in ("mixed", "unknown")
    assert found.limit_confidence == "high"
    assert found.limit_reason.count(" %") >= 2


@pytest.mark.parametrize(
    "kind",
    [
        diagnosis.tiny_mlp,
        diagnosis.metrics_loop,
        diagnosis.starved_without_workers,
        diagnosis.pointwise_chain,
        diagnosis.products_at_peak,
        diagnosis.big_matmul,
        diagnosis.waiting_rank,
        diagnosis.blend,
        two_kinds_of_kernels,
        dispatch_and_own_code,
    ],
    ids=lambda each: each.__name__,
)
def test_what_is_said_below_the_limit_does_not_repeat_it(kind) -> None:
    found = verdict(kind())
    assert found.limit_reason
    assert " step is " not in found.adds
    assert found.reason.endswith(found.adds)
    if found.limit == found.regime == "mixed":
        assert not found.adds
    elif found.regime not in ("mixed", "unknown"):
        assert found.adds


def test_kernels_that_no_second_signal_names_are_kernels_all_the_same() -> None:
    found = verdict(diagnosis.big_matmul())
    assert (found.regime, found.limit) == ("unknown", "kernels")


def test_a_blend_has_no_limit_and_says_what_it_is_made_of() -> None:
    found = verdict(diagnosis.blend())
    assert (found.regime, found.limit, found.limit_confidence) == ("mixed", "mixed", "low")
    assert found.limit_reason == "No single bottleneck: kernels 59 %, host 39 %"
    assert "38 % Python and dispatch" in found.reason
    assert found.decide_with


def test_clocks_that_contradict_each_other_name_nobody() -> None:
    dispatching = diagnosis.measured(kernels=0.1, fixed=0.1)
    found = verdict(dispatching)
    assert (found.limit, found.limit_reason) == ("mixed", found.reason)
    working = diagnosis.measured(kernels=0.8, operations=800, op_cost_ns=2_000, fixed=0.5)
    assert verdict(working).limit not in ("host", "kernels")


@pytest.mark.parametrize("delay", [0.65, 0.8, 0.95])
def test_a_busy_machine_names_nobody(delay: float) -> None:
    host = diagnosis.machine(delay)
    for job in (two_kinds_of_kernels(), dispatch_and_own_code()):
        found = verdict(dataclasses.replace(job, host=host))
        assert found.limit in ("mixed", "unknown")


def test_a_somewhat_busy_machine_makes_a_limit_low() -> None:
    found = verdict(dataclasses.replace(two_kinds_of_kernels(), host=diagnosis.machine(0.15)))
    assert (found.limit, found.limit_confidence) == ("kernels", "low")


def test_few_or_uneven_steps_make_a_limit_low() -> None:
    job = two_kinds_of_kernels()
    assert verdict(dataclasses.replace(job, step_ns=job.step_ns[:10])).limit_confidence == "low"
    uneven = dataclasses.replace(job, step_ns=job.step_ns * ([1, 3] * (len(job.step_ns) // 2)))
    assert verdict(uneven).limit_confidence == "low"


def test_one_clock_alone_is_no_high_limit() -> None:
    assert verdict(diagnosis.kernel_bound()).limit_confidence == "low"


def test_remedies_of_what_weighs_in_a_named_limit_are_advised() -> None:
    found = verdict(two_kinds_of_kernels())
    assert treated_regimes(found) >= {"memory", "compute"}
    assert found.advice
    expected = [one.expected or 1.0 for one in found.advice]
    assert expected == sorted(expected, reverse=True)


def test_a_limit_that_is_no_one_treats_nothing_more() -> None:
    shares = Shares(overhead=0.5, memory=0.5)
    for limit in ("mixed", "unknown"):
        found = Verdict(
            regime="mixed",
            confidence="low",
            reason="",
            shares=shares,
            evidence=[],
            limit=limit,  # type: ignore[arg-type]
        )
        assert treated_regimes(found) == {"mixed"}


def test_every_second_signal_exists_and_is_not_the_clock_of_its_limit() -> None:
    for limit, seconds in (*SECONDS.items(), *BESIDE_A_WINDOW.items()):
        assert {one.signal for one in seconds} <= set(SIGNALS)
        assert not {CLOCK_OF[limit], WINDOW} & {one.signal for one in seconds}
        assert all(bool(one.says) != (one.within is not None) for one in seconds)


@pytest.mark.parametrize(
    ("shares", "leads"),
    [
        ({"input": 0.6, "communication": 0.3}, True),
        ({"input": 0.56, "communication": 0.43}, False),
        ({"input": 0.5, "communication": 0.1}, False),
    ],
)
def test_whoever_limits_holds_half_of_the_step_and_leads(shares: dict[str, float], leads: bool) -> None:
    assert limit_leads("input", shares) is leads


def limit_of(measured: Measurements) -> tuple[str, str]:
    found = verdict(measured)
    return found.limit, found.limit_confidence


def test_kernels_limit_for_sure_and_are_listed_by_what_they_are() -> None:
    found = verdict(compiled(UPDATES))
    assert (found.limit, found.limit_confidence, found.regime) == ("kernels", "high", "unknown")
    assert found.limit_reason.startswith("53 % matrix products, 10 % other operators")
    backward = sum(one.share for one in found.ledger if one.phase == "backward")
    assert backward == pytest.approx(0.3 * 0.98, abs=0.01)  # by its clock, not by 43 % of the looks
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
        (compiled(frames(model=300), by_op=GRAPHS, graph_kernels=20, operators=60.0), ("kernels", "high")),
        (compiled(frames(model=300), by_op=GRAPHS, graph_kernels=None, operators=60.0), ("unknown", "low")),
        (compiled(frames(model=300), by_op=GRAPHS, graph_kernels=1200, operators=60.0), ("unknown", "low")),
        (compiled(frames(model=300), operators=2500.0, by_op=[]), ("unknown", "low")),
        (compiled(frames(model=220, host=80)), ("unknown", "low")),  # the window has not seen so much of it
        (compiled(frames(model=200, loader=100)), ("unknown", "low")),
        (compiled(frames(model=300), waits=0.5), ("mixed", "low")),
        (compiled(frames(model=60, host=240), inside_share=0.2, operators=90.0, by_op=[]), ("host", "high")),
        (compiled(frames(model=300), inside_share=0.2, operators=1400.0, by_op=[]), ("host", "low")),
        (compiled(frames(model=300), inside_share=0.2, operators=90.0, by_op=[]), ("unknown", "low")),
        (compiled(frames(model=150, loader=150), inside_share=0.2, operators=90.0), ("unknown", "low")),
        (compiled(UPDATES, status="abstained"), ("unknown", "low")),
    ],
    ids=map(str, range(12)),
)
def test_both_instruments_name_who_limits_or_none(job: Measurements, expected: tuple[str, str]) -> None:
    assert limit_of(job) == expected


def test_nobody_is_named_beside_ranks_with_too_many_threads_or_in_steps_of_two_kinds() -> None:
    rank = diagnosis.facts(rank=0, world_size=2)
    for job in (rank, diagnosis.facts(threads=8)):
        assert limit_of(dataclasses.replace(compiled(UPDATES), facts=job)) == ("unknown", "low")
    bursts = compiled(UPDATES)
    bursts.step_ns[::10] *= 6  # a third of the time, which four steps may not hold
    assert limit_of(bursts) == ("unknown", "low")


def test_a_generator_that_the_loop_reads_from_is_input() -> None:
    stacks = frames(host=240, model=60)
    fed = [msgspec.structs.replace(one, in_feed=one.phase == "other") for one in stacks.places]
    stacks = msgspec.structs.replace(stacks, places=fed)
    assert limit_of(compiled(stacks, inside_share=0.2, operators=90.0, by_op=[])) == ("input", "low")
