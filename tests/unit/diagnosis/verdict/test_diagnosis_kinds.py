"""The kinds of jobs of the study: each is named rightly, or not at all."""

import dataclasses

import msgspec
import pytest

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.signals.dispatch import op_cost
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.diagnosis.verdict.undecided_reason import WITHHELD
from autobrrr.records import ShadowProbe, TracedSteps, Verdict
from support.judged import diagnosis
from support.judged.diagnosis import MS

replace = msgspec.structs.replace


def verdict(measured: Measurements) -> Verdict:
    return judge(measured).verdict


def test_a_tiny_mlp_is_overhead_with_high_confidence() -> None:
    found = verdict(diagnosis.tiny_mlp())
    assert (found.regime, found.confidence) == ("overhead", "high")
    assert found.reason.startswith("72 % of a step is Python and dispatch: 780 operators")
    assert found.decide_with is None


def test_python_in_forward_is_overhead_though_hardly_an_operator_is_counted() -> None:
    measured = diagnosis.python_heavy()
    found = verdict(measured)
    assert (found.regime, found.confidence) == ("overhead", "high")
    op_cost = next(one for one in found.evidence if one.signal == "op_cost")
    assert op_cost.says is None
    assert op_cost.against == []


@pytest.mark.parametrize(
    "kind",
    [diagnosis.big_matmul, diagnosis.lstm, diagnosis.optimizer_bound, diagnosis.dense_embedding],
    ids=lambda kind: kind.__name__,
)
def test_full_kernels_are_never_overhead(kind) -> None:
    found = verdict(kind())
    assert found.regime == "unknown"
    assert "of a step is" in found.reason
    assert "no second signal confirms the regime (kernel time: " in found.reason
    assert found.decide_with == "autobrrr tune 4242 --for 2m"
    assert "overhead" in found.evidence[0].against


def in_a_feed(measured: Measurements) -> Measurements:
    """The same job, whose own code between the phases is a generator that the loop reads from."""
    places = [replace(one, in_feed=one.phase == "other") for one in measured.frames.places]
    return dataclasses.replace(measured, frames=replace(measured.frames, places=places))


def test_what_a_generator_of_the_scripts_own_takes_is_input_never_host_and_never_sure() -> None:
    plain = verdict(diagnosis.metrics_loop())
    assert plain.regime == "host"
    assert "train.py:77 log_metrics" in plain.reason
    found = verdict(in_a_feed(diagnosis.metrics_loop()))
    assert (found.regime, found.confidence) == ("input", "low")
    assert (found.limit, found.limit_confidence) == ("input", "low")
    assert found.shares.host == pytest.approx(0.0, abs=0.01)
    assert "log_metrics" in found.reason
    wait = next(one for one in found.evidence if one.signal == "loader_wait")
    assert "in a generator of the script's own" in wait.note


def test_a_feed_moves_no_more_than_the_clock_leaves_between_the_phases() -> None:
    fed = in_a_feed(diagnosis.replaced(diagnosis.tiny_mlp(), frames=diagnosis.frames(host=140, model=10)))
    plain, found = verdict(diagnosis.tiny_mlp()).shares, verdict(fed).shares
    assert found.overhead == plain.overhead
    assert (found.input or 0.0) + (found.host or 0.0) == pytest.approx(
        (plain.input or 0.0) + (plain.host or 0.0)
    )


def in_library(measured: Measurements, of: float = 1.0) -> Measurements:
    """The same job, in which a framework's or torch's code stands where its own did, or a part of it."""
    places = [
        replace(one, in_between=int(of * one.samples)) if one.phase == "other" else one
        for one in measured.frames.places
    ]
    return dataclasses.replace(measured, frames=replace(measured.frames, places=places))


def test_a_frameworks_code_between_the_phases_is_overhead_and_not_the_users() -> None:
    plain = verdict(diagnosis.metrics_loop())
    found = verdict(in_library(diagnosis.metrics_loop()))
    assert plain.regime == "host"
    assert found.regime != "host"
    assert found.limit == plain.limit == "host"
    assert (found.shares.overhead or 0.0) > (plain.shares.overhead or 0.0) + 0.3
    assert (found.shares.overhead or 0.0) + (found.shares.host or 0.0) == pytest.approx(
        (plain.shares.overhead or 0.0) + (plain.shares.host or 0.0)
    )


def test_code_of_a_framework_moves_no_more_than_the_phases_leave_of_its_samples() -> None:
    plain, found = verdict(diagnosis.metrics_loop()), verdict(in_library(diagnosis.metrics_loop(), 0.2))
    assert found.shares.host == pytest.approx(plain.shares.host)


def test_a_third_of_dispatch_confirms_half_of_overhead_but_never_surely() -> None:
    measured = diagnosis.replaced(diagnosis.tiny_mlp(), probe=None)
    cost_ns = 0.4 * 2.6 * MS / 800
    fewer = dataclasses.replace(measured, traced=replace(measured.traced, op_cost_ns=int(cost_ns)))
    reading = op_cost(fewer)
    assert reading.value == pytest.approx(0.4, abs=0.02)
    assert (reading.says, reading.firm) == ("overhead", False)
    assert (verdict(fewer).regime, verdict(fewer).confidence) == ("overhead", "low")


def test_batches_made_on_the_training_thread_are_input() -> None:
    found = verdict(diagnosis.starved_without_workers())
    assert (found.regime, found.confidence) == ("input", "high")
    assert "make_batch" in found.reason


@pytest.mark.parametrize(
    ("delay", "foreign_cores", "named"),
    [
        (0.02, 2.0, ("input", "high")),
        (0.25, 2.0, ("input", "low")),
        (0.5, 2.0, ("unknown", "low")),
        (0.9, 2.0, ("unknown", "low")),
        (0.5, 1.25, ("input", "high")),  # they are in each other's way: nobody else has so much of a core
        (0.5, None, ("unknown", "low")),
    ],
)
def test_workers_that_others_keep_from_a_cpu_are_no_sure_input(
    delay: float, foreign_cores: float | None, named: tuple[str, str]
) -> None:
    looks = diagnosis.machine(children_cpu_share=1.2, foreign_cores=foreign_cores)
    host = tuple(msgspec.structs.replace(one, children_delay_share=delay) for one in looks)
    found = verdict(dataclasses.replace(diagnosis.starved_with_workers(), host=host))
    assert (found.regime, found.confidence) == named
    assert (found.limit_confidence == "high") is (named[1] == "high")
    (busy,) = (one for one in found.evidence if one.signal == "busy_machine")
    assert "of the time training waited for workers that had no CPU" in busy.note
    assert busy.note.startswith("machine busy") is (named[1] == "low")


@pytest.mark.parametrize(
    ("workers", "foreign_cores", "named"),
    [(1.2, 1.25, "input"), (1.2, 2.0, "unknown"), (0.0, 1.25, "unknown")],
)
def test_a_job_whose_own_workers_take_its_cpus_is_not_beside_others(
    workers: float, foreign_cores: float, named: str
) -> None:
    host = diagnosis.machine(run_delay_share=0.65, children_cpu_share=workers, foreign_cores=foreign_cores)
    found = verdict(dataclasses.replace(diagnosis.starved_with_workers(), host=host))
    assert found.regime == named


def test_workers_that_keep_up_leave_the_handing_over_as_the_wait() -> None:
    stacks = diagnosis.frames(loader=105, model=45, queue_empty_share=0.0)
    found = verdict(diagnosis.measured(3 * MS, diagnosis.STARVED, stacks=stacks, workers=2))
    assert (found.regime, found.confidence) == ("input", "high")
    assert "the 2 workers keep up" in found.reason
    assert "loader.workers" not in {one.remedy for one in found.advice}


def test_starving_workers_are_input_however_their_steps_vary() -> None:
    measured = diagnosis.starved_with_workers()
    found = verdict(dataclasses.replace(measured, step_ns=measured.step_ns * ([1, 3] * 30)))
    assert (found.regime, found.confidence) == ("input", "high")
    assert "2 workers leave their queue empty 80 % of the time" in found.reason


def test_half_overhead_that_the_probe_does_not_confirm_is_mixed() -> None:
    measured = diagnosis.measured(kernels=0.3, operations=700, fixed=0.4)
    found = verdict(measured)
    assert found.regime == "mixed"
    assert (
        "40 % of the step does not grow" in found.reason or "41 % of the step does not grow" in found.reason
    )


def test_a_probe_that_contradicts_the_trace_makes_it_mixed() -> None:
    measured = diagnosis.measured(kernels=0.1, fixed=0.1)
    found = verdict(measured)
    assert found.regime == "mixed"
    assert "traced_steps says overhead" in found.reason
    assert "batch_probe excludes it" in found.reason


def test_where_the_probe_abstains_the_count_of_operators_may_confirm() -> None:
    abstained = ShadowProbe(status="abstained", why="forward is not repeatable")
    found = verdict(diagnosis.measured(operations=900, probe=abstained))
    assert (found.regime, found.confidence) == ("overhead", "high")
    few = verdict(diagnosis.measured(operations=100, probe=abstained))
    assert few.regime == "unknown"
    assert few.decide_with == "autobrrr diagnose 4242 --probe --for 60s"


def test_more_dispatch_than_step_is_a_calibration_to_distrust() -> None:
    abstained = ShadowProbe(status="abstained", why="forward is not repeatable")
    found = verdict(diagnosis.measured(operations=2_000, probe=abstained))
    assert found.regime == "unknown"
    assert "calibration is off" in found.reason


def test_two_that_agree_firmly_wait_for_no_probe() -> None:
    traces = [diagnosis.traced(operations=count) for count in (900, 600)]
    assert [verdict(diagnosis.measured(trace=each)).confidence for each in traces] == ["high", "low"]


@pytest.mark.parametrize(("delay", "regime"), [(0.05, "overhead"), (0.15, "overhead"), (0.4, "unknown")])
def test_a_busy_machine_lowers_a_verdict_then_withholds_it(delay: float, regime: str) -> None:
    found = verdict(diagnosis.tiny_mlp(host=diagnosis.machine(delay)))
    assert found.regime == regime
    assert found.confidence == ("high" if delay < 0.1 else "low")
    if regime == "unknown":
        assert found.reason == WITHHELD
        assert found.decide_with


def test_even_a_clear_case_is_withheld_on_a_crowded_machine() -> None:
    crowded = dataclasses.replace(diagnosis.python_heavy(), host=diagnosis.machine(0.62))
    assert verdict(crowded).regime == "unknown"
    stolen = diagnosis.tiny_mlp(host=diagnosis.machine(0.0, steal_share=0.4))
    assert "stolen by other guests" in next(
        one.note for one in verdict(stolen).evidence if one.signal == "busy_machine"
    )


def test_a_share_that_the_delay_could_explain_is_withheld() -> None:
    # 57 % overhead with 15 % delay: without the delay it might be 49 %.
    measured = diagnosis.measured(kernels=0.415, fixed=0.9, host=diagnosis.machine(0.15))
    assert verdict(measured).regime == "unknown"
    assert verdict(measured).reason == WITHHELD


def traced_while_busy(delay: float, kernels: float = 0.15) -> Measurements:
    return diagnosis.measured(operations=900, kernels=kernels, run_delay_share=delay, fixed=0.95)


@pytest.mark.parametrize(("delay", "kernels"), [(0.2, 0.4), (0.4, 0.3), (0.55, 0.35), (0.7, 0.0)])
def test_a_trace_taken_while_the_machine_was_busy_carries_nothing_that_the_delay_could_explain(
    delay: float, kernels: float
) -> None:
    found = verdict(traced_while_busy(delay, kernels))
    assert found.regime == "unknown"
    assert not found.provisional
    assert "machine busy" in found.reason


@pytest.mark.parametrize("delay", [0.1, 0.2, 0.45])
def test_what_leads_even_without_all_of_the_delay_is_named_provisionally(delay: float) -> None:
    found = verdict(traced_while_busy(delay, 0.08))
    assert (found.regime, found.confidence, found.provisional) == ("overhead", "low", True)
    assert f"provisional: machine busy while tracing ({100 * delay:.0f} % of the time" in found.reason
    assert "machine busy" in next(one.note for one in found.evidence if one.signal == "traced_steps")
    assert found.decide_with


@pytest.mark.parametrize(("threads", "regime"), [(1, "compute"), (2, "unknown")])
def test_kernels_on_several_threads_are_not_named_provisionally(threads: int, regime: str) -> None:
    job = diagnosis.products_at_peak()
    found = verdict(
        diagnosis.replaced(
            job,
            traced=msgspec.structs.replace(job.traced, run_delay_share=0.2),
            facts=msgspec.structs.replace(job.facts, threads=threads),
            peaks=msgspec.structs.replace(job.peaks, threads=threads),
        )
    )
    assert (found.regime, found.provisional) == (regime, threads == 1), found.reason


def test_kernels_that_are_slow_beside_their_roof_are_not_named_provisionally() -> None:
    job = diagnosis.small_kernels()
    busy = msgspec.structs.replace(job.traced, run_delay_share=0.15)
    assert verdict(diagnosis.replaced(job, traced=busy)).regime == "unknown"


@pytest.mark.parametrize(("delay", "limit"), [(0.15, "host"), (0.55, "host"), (0.62, "unknown")])
def test_who_limits_a_mixture_is_named_provisionally_too(delay: float, limit: str) -> None:
    job = in_library(diagnosis.metrics_loop(), 0.5)
    quiet = verdict(job)
    assert (quiet.regime, quiet.limit) == ("unknown", "host")
    busy = diagnosis.replaced(job, traced=replace(job.traced, run_delay_share=delay))
    found = verdict(busy)
    assert (found.limit, found.limit_confidence, found.provisional) == (limit, "low", limit == "host")
    assert ("provisional: machine busy while tracing" in found.reason) == found.provisional


def test_kernels_of_several_threads_limit_nothing_provisionally() -> None:
    job = diagnosis.small_kernels()
    assert job.facts is not None
    busy = replace(job.traced, run_delay_share=0.15)
    for threads, limit in ((1, "kernels"), (2, "unknown")):
        facts = replace(job.facts, threads=threads)
        found = verdict(diagnosis.replaced(job, traced=busy, facts=facts))
        assert (found.regime, found.limit, found.provisional) == ("unknown", limit, threads == 1)


def test_uneven_steps_never_give_high_confidence() -> None:
    measured = diagnosis.tiny_mlp()
    uneven = dataclasses.replace(measured, step_ns=measured.step_ns * ([1, 2] * 30))
    assert (verdict(uneven).regime, verdict(uneven).confidence) == ("overhead", "low")


def test_few_steps_give_a_low_verdict_and_a_machine_never_looked_at_too() -> None:
    trace, probe = diagnosis.traced(), diagnosis.probed()
    assert verdict(diagnosis.measured(trace=trace, probe=probe, steps=8)).confidence == "low"
    assert verdict(diagnosis.measured(trace=trace, probe=probe, host=())).confidence == "low"


def test_stacks_that_deny_the_loaders_clock_make_it_mixed() -> None:
    measured = diagnosis.measured(
        10 * MS, diagnosis.STARVED, stacks=diagnosis.frames(loader=5, model=145), workers=0
    )
    assert verdict(measured).regime == "mixed"


def test_samples_and_queues_say_nothing_against_the_clock_of_the_loop() -> None:
    # Stacks are taken where the thread gives the interpreter away, which the loader does first of all.
    sampled = diagnosis.frames(loader=140, model=10, queue_empty_share=0.9)
    small = diagnosis.measured(trace=diagnosis.traced(), fixed=0.95, stacks=sampled, workers=2)
    assert verdict(small).regime == "overhead"
    large = diagnosis.big_matmul()
    full = diagnosis.measured(46 * MS, trace=large.traced, probe=large.probe, stacks=sampled, workers=2)
    assert "of a step is matrix products" in verdict(full).reason


def test_shares_that_their_own_error_could_bring_below_half_are_low() -> None:
    stacks = diagnosis.frames(loader=105, model=45)
    shares = diagnosis.STARVED | {"data_wait": 0.66, "forward": 0.16}
    rare = diagnosis.measured(10 * MS, shares, stacks=stacks, workers=0)
    assert verdict(rare).confidence == "high"
    wide = replace(rare.phases.error, data_wait=3 * MS)
    uneven = dataclasses.replace(rare, phases=dataclasses.replace(rare.phases, error=wide))
    assert (verdict(uneven).regime, verdict(uneven).confidence) == ("input", "low")

    def wobbling(width: float) -> Measurements:
        kernel = [int(0.85 * MS * (1 + width * i)) for i in (-1, 0, 1, -1, 0, 1)]
        trace = replace(diagnosis.traced(kernels=0.85 / 2.6, operations=900), kernel_ns=kernel)
        shares = diagnosis.PHASE_SHARES | {"data_wait": 0.2, "forward": 0.2}
        even = diagnosis.traced(shares=shares, kernels=0.85 / 2.6)
        trace = replace(
            trace, plain_by_phase_ns=even.plain_by_phase_ns, kernel_by_phase_ns=even.kernel_by_phase_ns
        )
        return diagnosis.measured(shares=shares, trace=trace, fixed=0.95)

    assert verdict(wobbling(0.01)).confidence == "high"
    assert (verdict(wobbling(0.2)).regime, verdict(wobbling(0.2)).confidence) == ("overhead", "low")


def test_a_read_only_session_may_name_input_and_says_what_it_can_not() -> None:
    stacks = diagnosis.frames(loader=105, model=45)
    named = verdict(diagnosis.measured(10 * MS, diagnosis.STARVED, stacks=stacks, workers=0, readonly=True))
    assert named.regime == "input"
    assert named.shares.overhead is None
    other = verdict(diagnosis.measured(readonly=True))
    assert other.regime == "unknown"
    assert "read-only" in other.reason
    assert other.decide_with == "autobrrr diagnose 4242"


def test_a_rollout_beside_a_compiled_policy_is_host_where_gaps_and_stacks_must_overlap() -> None:
    found = verdict(diagnosis.compiled_rollout())
    assert (found.regime, found.confidence) == ("host", "high"), found.reason
    least = 0.85 - 20 * 0.01 / 5.5 + 0.9 - 2 * (0.9 * 0.1 / 150) ** 0.5 - 1
    assert found.shares.host == pytest.approx(least, rel=0.01)
    assert found.reason.startswith("at least 66 % of a step is code between the phases")
    assert "train.py:77 log_metrics" in found.reason


@pytest.mark.parametrize(("between", "own"), [(0.6, 135), (0.85, 90), (0.7, 120)])
def test_gaps_and_stacks_that_need_not_be_the_same_time_name_nothing(between: float, own: int) -> None:
    found = verdict(diagnosis.compiled_rollout(between, own))
    assert found.regime == "unknown", found.reason
    assert "between them" in found.reason, "what the window shows is said"
    assert found.decide_with == "autobrrr tune 4242 --for 2m", "a window was there already"


def test_compiled_jobs_gpus_and_sessions_from_outside_name_no_overhead() -> None:
    why = TracedSteps(status="abstained", why="the job runs compiled code")
    compiled = verdict(diagnosis.measured(trace=why, build=diagnosis.anatomy(compiled=True)))
    assert compiled.regime == "unknown"
    assert compiled.decide_with == "autobrrr diagnose 4242 --window"
    assert "tracing would make the job compile its code again" in compiled.reason
    gpu = verdict(diagnosis.measured(job=diagnosis.facts(cuda=True), stacks=diagnosis.frames(loader=100)))
    assert gpu.regime == "unknown"
    assert "GPU" in gpu.reason
    outside = verdict(Measurements(pid=7, outside=True, host=diagnosis.machine()))
    assert outside.regime == "unknown"
    assert outside.decide_with == "autobrrr detach 7 && autobrrr diagnose 7"


def test_before_anything_is_measured_the_verdict_says_so() -> None:
    found = verdict(Measurements(pid=7))
    assert (found.regime, found.confidence) == ("unknown", "low")
    assert "no step has ended since attach" in found.reason
    assert "8 steps so far" in verdict(diagnosis.measured(steps=8)).reason
    compiles = TracedSteps(status="abstained", why="the job runs compiled code")
    compiling = verdict(Measurements(pid=7, traced=compiles, anatomy=diagnosis.anatomy(compiled=True)))
    assert "no step has ended since attach" in compiling.reason


def test_on_a_busy_machine_more_time_is_no_advice() -> None:
    busy = diagnosis.machine(0.8)
    assert verdict(diagnosis.measured(host=busy)).decide_with == "autobrrr diagnose 4242"


def test_steps_of_which_none_counts_are_not_said_to_be_missing() -> None:
    found = verdict(Measurements(pid=7, seen=8))
    assert found.regime == "unknown"
    assert "no step counts yet (8 since attach)" in found.reason
    assert "no step has ended" not in found.reason + found.limit_reason


def test_before_the_first_step_ends_the_verdict_says_where_the_main_thread_stands() -> None:
    stacks = diagnosis.frames(host=300, loader=100)
    for host in ((), diagnosis.machine(0.8)):  # on a busy machine, too
        found = verdict(Measurements(pid=7, frames=stacks, host=host))
        assert (found.regime, found.limit, found.advice) == ("unknown", "unknown", [])
        assert "other code 75 %, waiting for data 25 %" in found.reason
        assert "most at train.py:77 log_metrics" in found.reason


def test_stacks_without_a_number_of_samples_say_nothing_of_where_the_main_thread_stands() -> None:
    stacks = msgspec.structs.replace(diagnosis.frames(host=300), samples=0)
    assert verdict(Measurements(pid=7, frames=stacks)).reason == "no step has ended since attach"


def test_a_trace_that_fails_its_guard_is_given_as_the_reason() -> None:
    trace = diagnosis.traced(wobble=(0.5, 1.5) * 3, kernels=0.9, slowdown=1.2)
    found = verdict(diagnosis.measured(trace=trace))
    assert found.regime == "unknown"
    assert "steps vary by" in found.reason


def test_a_lead_of_less_than_fifteen_points_names_nothing() -> None:
    shares = {"data_wait": 0.42, "forward": 0.3, "backward": 0.26, "optimizer": 0.02, "other": 0.0}
    measured = diagnosis.measured(shares=shares, kernels=0.05, operations=900, fixed=0.9)
    found = verdict(measured)
    assert found.regime == "mixed"
    assert "42 % waiting for data" in found.reason


def test_before_anything_is_traced_the_phases_say_where_the_time_goes() -> None:
    shares = {"data_wait": 0.02, "forward": 0.3, "backward": 0.5, "optimizer": 0.06, "other": 0.12}
    found = verdict(diagnosis.measured(1.2e9, shares, steps=3))
    assert found.regime == "unknown"
    said = "still measuring, 3 steps so far: backward 50 %, forward 30 %, between the phases 12 % of a step"
    assert said in found.reason


def half_asleep(waits: float, delays: tuple[float, ...]) -> Measurements:
    """The planted job that sleeps for half of its step, as it was recorded while others had its CPU.

    Its traced steps were too disturbed to count, so that all but the wait for data is one rival.
    """
    step_ns = 30.3 * MS
    rest = {"forward": 0.095, "backward": 0.334, "optimizer": 0.007, "other": 0.006}
    scale = (1 - waits) / sum(rest.values())
    looks = [diagnosis.machine(run_delay_share=delay)[0] for delay in delays for _ in range(20)]
    return diagnosis.measured(
        step_ns,
        {"data_wait": waits, **{name: share * scale for name, share in rest.items()}},
        trace=diagnosis.traced(step_ns, run_delay_share=0.53),
        stacks=diagnosis.frames(loader=80, model=60),
        workers=0,
        host=tuple(msgspec.structs.replace(look, t_ns=at * 500_000_000) for at, look in enumerate(looks)),
    )


@pytest.mark.parametrize("delays", [(0.44, 0.02), (0.44, 0.02, 0.02), (0.08, 0.08)])
def test_waits_that_others_made_longer_are_no_input_once_those_are_gone(delays: tuple[float, ...]) -> None:
    found = verdict(half_asleep(0.58, delays))
    assert (found.regime, found.limit) == ("unknown", "unknown")
    quiet = verdict(half_asleep(0.58, (0.0, 0.0)))
    assert (quiet.regime, quiet.limit, quiet.confidence) == ("input", "input", "low")


def test_a_clear_wait_is_named_though_others_had_the_machine_before() -> None:
    assert verdict(half_asleep(0.94, (0.44, 0.02))).regime == "input"


def test_stacks_confirm_a_clear_wait_from_two_fifths_on() -> None:
    stacks = [diagnosis.frames(loader=standing, model=139 - standing) for standing in (50, 66)]
    found = [verdict(dataclasses.replace(half_asleep(0.66, (0.0, 0.0)), frames=each)) for each in stacks]
    assert [one.regime for one in found] == ["unknown", "input"]


def test_what_two_signals_carry_is_withheld_for_the_time_that_others_took_and_the_reason_says_so() -> None:
    shares = {"data_wait": 0.68, "forward": 0.07, "backward": 0.07, "optimizer": 0.04, "other": 0.14}
    kernels = {"forward": 0.7, "backward": 0.7, "optimizer": 0.7, "other": 0.0, "data_wait": 0.0}
    one = diagnosis.machine()[0]

    def crowded(delay: float) -> Measurements:
        """Others took so much of the time until ten seconds ago."""
        looks = [
            msgspec.structs.replace(one, t_ns=at * 1000 * MS, run_delay_share=delay if at < 20 else 0.01)
            for at in range(30)
        ]
        return diagnosis.measured(
            20 * MS,
            shares,
            kernels=kernels,
            operations=50,
            stacks=diagnosis.frames(loader=140, host=30, model=30, queue_empty_share=0.95),
            workers=2,
            host=tuple(looks),
        )

    assert verdict(crowded(0.1)).regime == "input"
    for delay in (0.45, 0.8):  # what is left leads the largest rival, or nothing
        found = verdict(crowded(delay))
        assert found.regime == "unknown"
        assert "other programs kept the training thread off the CPU" in found.reason
