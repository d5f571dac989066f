"""Host slack on a virtual GPU: for whom the device waits, and what that makes of a window's verdict."""

from dataclasses import replace
from statistics import fmean

import msgspec
import numpy as np
import pytest

from autobrrr.agent.measure.host_holds import HOLDS, LEAST_NS, MOST_NS
from autobrrr.agent.wire import ring_layout
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.signals.device import Awaited, awaited, host_slack, idle_by_place
from autobrrr.diagnosis.signals.machine import busy_machine
from autobrrr.diagnosis.verdict.gpu_verdict import device_verdict
from autobrrr.records import CollectiveWaits, HostHold, HostSlack, ProfilerWindow, Shares, Verdict
from support.judged.diagnosis import waiting_rank
from support.simulated.virtual_gpu import MS, US
from support.simulated.virtual_slack import WARM_STEPS, PartedStep, VirtualSlack

KERNEL_BOUND = PartedStep()
HOST_BOUND = PartedStep(launches=1500, kernels_ns=3 * MS)
FED_SLOWLY = PartedStep(launches=1500, kernels_ns=1 * MS, batch_every_ns=12 * MS)
ROWS = (
    ("kernels, a full queue", KERNEL_BOUND, Awaited.NOBODY),
    ("kernels, 20 ms", PartedStep(launches=1500, kernels_ns=20 * MS), Awaited.NOBODY),
    ("kernels, the loss read after the step", PartedStep(reads=("optimizer",)), None),
    ("kernels, the loss read before the backward", PartedStep(reads=("forward",)), None),
    ("kernels, a loss scale read before the update", PartedStep(reads=("backward",)), Awaited.NOBODY),
    ("the host", HOST_BOUND, Awaited.HOST),
    ("the host, the loss read each step", PartedStep(launches=1500, kernels_ns=3 * MS, reads=("forward",)),
     Awaited.HOST),
    ("reads at both ends of the backward", PartedStep(optimizer_share=0.004, reads=("forward", "backward")),
     Awaited.HOST),
    ("a loader's workers", FED_SLOWLY, Awaited.OTHERS),
    ("workers, a host far ahead", PartedStep(launches=100, kernels_ns=2 * MS, batch_every_ns=8 * MS),
     Awaited.NOBODY),
)  # fmt: skip


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.integration)])
@pytest.mark.parametrize(("step", "who"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_for_whom_the_device_waits(step: PartedStep, who: Awaited | None, seed: int) -> None:
    told = VirtualSlack(step, seed=seed, noise=0.005 if who is Awaited.OTHERS else 0.02).run()
    assert (told.status, told.why, len(told.holds)) == ("ok", None, len(HOLDS))
    assert awaited(told) is who, idle_by_place(told.holds)


@pytest.mark.parametrize(("step", "grows"), [(HOST_BOUND, 1.0), (KERNEL_BOUND, 0.0), (FED_SLOWLY, 0.0)])
def test_a_step_grows_by_the_hold_where_the_host_limits_it_and_not_at_all_elsewhere(
    step: PartedStep, grows: float
) -> None:
    told = VirtualSlack(step, noise=0.0).run()
    held = [hold for hold in told.holds if hold.place == "step"]
    growths = [(hold.step_ns - fmean(hold.beside_ns)) / hold.held_ns for hold in held]
    assert fmean(growths) == pytest.approx(grows, abs=0.05)


def test_the_host_is_held_up_for_a_twentieth_of_a_step_within_bounds_and_it_is_booked() -> None:
    run = VirtualSlack(HOST_BOUND, noise=0.0)
    told = run.run()
    assert told.hold_ns == pytest.approx(6 * MS / 20, rel=0.02)
    assert all(told.hold_ns <= hold.held_ns < told.hold_ns + 2 * US for hold in told.holds)
    assert run.measuring.spent_ns >= sum(hold.held_ns for hold in told.holds if hold.place == "step")
    assert VirtualSlack(PartedStep(launches=10, kernels_ns=20 * US)).run().hold_ns == LEAST_NS
    assert VirtualSlack(PartedStep(launches=100, kernels_ns=900 * MS)).run().hold_ns == MOST_NS


def test_nothing_stays_on_and_every_other_step_is_left_alone() -> None:
    run = VirtualSlack(KERNEL_BOUND)
    told = run.run()
    assert (run.hooks.before_backward, run.stamps.kept) == (None, None)
    assert {hold.place for hold in told.holds} == {"step", "backward"}
    assert all(len(hold.beside_ns) == 2 for hold in told.holds)


def test_without_a_backward_of_torch_s_the_host_is_held_up_between_steps_alone() -> None:
    told = VirtualSlack(PartedStep(backward=False)).run()
    assert [hold.place for hold in told.holds] == ["step"] * 4
    assert awaited(told) is Awaited.NOBODY


def test_a_step_with_an_evaluation_does_not_count() -> None:
    def evaluates(seq: int) -> int:
        return ring_layout.EVALUATION if seq % 7 == 0 else 0

    told = VirtualSlack(HOST_BOUND, flags=evaluates).run()
    assert (told.status, len(told.holds)) == ("ok", len(HOLDS))
    never = VirtualSlack(HOST_BOUND, flags=lambda seq: ring_layout.EVALUATION).run()
    assert never.status == "abstained"
    assert "no ordinary steps" in (never.why or "")


def test_a_stream_that_is_captured_is_left_alone() -> None:
    run = VirtualSlack(KERNEL_BOUND)
    run.flags = lambda seq: setattr(run, "capturing", seq >= WARM_STEPS + 6) or 0  # type: ignore[func-returns-value]
    told = run.run()
    assert (told.status, told.why) == ("abstained", "the job captures a CUDA graph")
    assert run.hooks.before_backward is None


def slack(step_idle: float, backward_idle: float, growth: float) -> HostSlack:
    holds = [
        HostHold(
            place=place,
            held_ns=100_000,
            idle_ns=int(100_000 * idle),
            step_ns=int(2_000_000 + growth * 100_000),
            beside_ns=[2_000_000, 2_000_000],
        )
        for place, idle in (("step", step_idle), ("backward", backward_idle))
        for _ in range(4)
    ]
    return HostSlack(status="ok", hold_ns=100_000, holds=holds)


HOST, NOBODY, OTHERS = slack(1, 1, 1), slack(0, 0, 0), slack(1, 1, 0)


def measured(verdict: Verdict, held: HostSlack | None, longer: float = 1.0) -> Measurements:
    window = ProfilerWindow(
        status="ok",
        plain_step_ns=[1_000_000] * 5,
        profiled_step_ns=[int(1_000_000 * longer)] * 4,
        verdict=verdict,
    )
    return Measurements(pid=7, profile=window, slack=held)


def said(limit: str, regime: str, **shares: float) -> Verdict:
    return Verdict(
        regime=regime,  # type: ignore[arg-type]
        confidence="high",
        reason="as profiled",
        shares=Shares(**shares),
        evidence=[],
        decide_with=None,
        limit=limit,  # type: ignore[arg-type]
        limit_confidence="low",
        limit_reason="as profiled",
    )


LAUNCHES = said("host", "overhead", overhead=0.8, memory=0.2)
MIXED_HOST = said("host", "mixed", overhead=0.45, host=0.3, memory=0.25)  # half of it is none of both
READS = said("sync", "sync", sync=0.6, overhead=0.2, memory=0.2)
FED = said("input", "input", input=0.7, memory=0.3)
PRODUCTS = said("kernels", "unknown", compute=0.62, overhead=0.25, memory=0.13)
NOTHING = said("mixed", "mixed", overhead=0.45, compute=0.5, memory=0.05)


@pytest.mark.parametrize(
    ("verdict", "held", "longer", "limit"),
    [
        (LAUNCHES, HOST, 1.2, ("host", "high")),
        (LAUNCHES, HOST, 5.0, ("host", "high")),  # nothing else that it can wait for
        (LAUNCHES, None, 5.0, ("unknown", "low")),
        (LAUNCHES, NOBODY, 1.0, ("unknown", "low")),
        (LAUNCHES, OTHERS, 1.0, ("unknown", "low")),
        (MIXED_HOST, HOST, 1.0, ("host", "high")),
        (MIXED_HOST, NOBODY, 1.0, ("unknown", "low")),  # without the dispatch 30 % are left
        (MIXED_HOST, OTHERS, 1.0, ("unknown", "low")),
        (
            said("host", "overhead", overhead=0.7, sync=0.2, memory=0.1),
            HOST,
            5.0,
            ("unknown", "low"),
        ),  # of a plain step all
        (READS, HOST, 1.0, ("sync", "high")),
        (FED, HOST, 1.0, ("input", "high")),  # a loader in the training thread
        (FED, OTHERS, 1.0, ("input", "high")),
        (FED, NOBODY, 1.0, ("input", "low")),  # it waits, but elsewhere in the step
        (PRODUCTS, NOBODY, 1.0, ("kernels", "high")),
        (PRODUCTS, slack(1, 0, 0.5), 1.0, ("kernels", "low")),
        (NOTHING, NOBODY, 1.5, ("kernels", "low")),
        (NOTHING, NOBODY, 1.0, ("kernels", "low")),
        (NOTHING, HOST, 1.5, ("mixed", "low")),
    ],
)
def test_plain_steps_make_a_limit_sure_or_contradict_it(
    verdict: Verdict, held: HostSlack | None, longer: float, limit: tuple[str, str]
) -> None:
    taken = measured(verdict, held, longer)
    found = device_verdict(taken, busy_machine(taken))
    assert (found.limit, found.limit_confidence) == limit
    assert found.regime != "overhead" or held not in (NOBODY, OTHERS)


@pytest.mark.parametrize(
    "verdict", [LAUNCHES, FED, MIXED_HOST, said("input", "unknown", input=0.7, memory=0.3)]
)
def test_a_device_that_is_steps_behind_the_host_waits_for_nothing_of_its_doing(verdict: Verdict) -> None:
    taken = replace(measured(verdict, None), ahead=np.ones(40, dtype=np.bool_))
    found = device_verdict(taken, busy_machine(taken))
    assert (found.regime, found.limit) == ("unknown", "unknown")
    confirmed = replace(measured(PRODUCTS, None), ahead=np.ones(40, dtype=np.bool_))
    sure = device_verdict(confirmed, busy_machine(confirmed))
    assert (sure.limit, sure.limit_confidence) == ("kernels", "high")


def test_a_device_with_work_at_one_place_alone_excludes_nothing() -> None:
    reading = host_slack(measured(PRODUCTS, slack(1, 0, 0.5)))
    assert (reading.says, reading.against, reading.firm) == (None, (), False)
    assert "0 % of the holds before the backward" in reading.note


PYTHON = said("host", "host", host=0.8, memory=0.2)
UNTIMED = CollectiveWaits(status="abstained", why="torch has no events with a time for this device")


@pytest.mark.parametrize(
    ("rank", "verdict", "limit"),
    [
        (waiting_rank(), LAUNCHES, ("communication", "high")),
        (waiting_rank(blocked=0.2), LAUNCHES, ("unknown", "low")),  # one clock alone
        (waiting_rank(exposed=0.05, blocked=0.1), LAUNCHES, ("host", "high")),
        (replace(waiting_rank(), collectives=UNTIMED), PYTHON, ("unknown", "low")),
        (replace(waiting_rank(), collectives=None), PYTHON, ("unknown", "low")),
        (replace(waiting_rank(), collectives=None), LAUNCHES, ("host", "high")),  # dispatch waits for nobody
        (replace(waiting_rank(), collectives=None, facts=None), PYTHON, ("host", "high")),
    ],
)
def test_a_host_that_waits_for_other_ranks_limits_nothing(
    rank: Measurements, verdict: Verdict, limit: tuple[str, str]
) -> None:
    window = measured(verdict, None).profile
    taken = replace(rank, profile=window, slack=HOST)
    found = device_verdict(taken, busy_machine(taken))
    assert (found.limit, found.limit_confidence) == limit
    assert limit[0] == "host" or found.advice == []


ALONE = msgspec.structs.replace(
    said("communication", "mixed", communication=0.6, compute=0.4), limit_confidence="high", confidence="low"
)


@pytest.mark.parametrize(
    ("rank", "regime"),
    [
        (waiting_rank(blocked=0.0), ("communication", "high")),  # the host of a device need not sleep
        (waiting_rank(exposed=0.5, blocked=0.0), ("communication", "low")),
        (waiting_rank(exposed=0.3, blocked=0.0), ("mixed", "low")),
        (replace(waiting_rank(), collectives=UNTIMED), ("mixed", "low")),
    ],
)
def test_collectives_that_stand_alone_on_the_timeline_carry_a_regime_where_events_around_the_calls_agree(
    rank: Measurements, regime: tuple[str, str]
) -> None:
    taken = replace(rank, profile=measured(ALONE, None).profile)
    found = device_verdict(taken, busy_machine(taken))
    assert (found.regime, found.confidence) == regime
    assert found.limit == "communication"
