"""Views of made-up jobs for the screens: a crawling CPU job, a GPU, eight ranks, a tuning; and a source."""

from dataclasses import replace
from typing import Any

import msgspec

from autobrrr.records import (
    Advice,
    Attach,
    BatchPoint,
    BatchProbe,
    Cost,
    Diagnosis,
    Evidence,
    JobFacts,
    JobLine,
    LateRank,
    OpTime,
    Phases,
    ProfilerWindow,
    RankLine,
    RankTimes,
    Shares,
    StepStats,
    Trial,
    TuneProgress,
    Tuning,
    WindowGaps,
    WindowOp,
)
from autobrrr.records.gain_words import gain_words
from autobrrr.records.session_requests import ApplyRemedies, EndSession, Request
from autobrrr.records.wire_answers import (
    ActiveRemedy,
    Details,
    RecipeNow,
    RemedyOutcome,
    SessionEnding,
    SlowStep,
    StepHistory,
)
from autobrrr_tui.view_state import Publish, ScreenStanding, Tell, View, Work, take
from support.sessions.sidecar import host_sample, job_facts

MS = 1_000_000
REASON = (
    "68 % of a step is Python and dispatch: 1208 operators, about 1.53 us to dispatch one; "
    "doubling the batch would take 1.03 to 1.08 times as long"
)
ADDS = REASON.partition(": ")[2]


def snapshot(**changes: object) -> Diagnosis:
    """A job that is bound by overhead, judged."""
    found = Diagnosis(
        pid=8091,
        limit="host",
        limit_confidence="high",
        limit_reason="68 % Python and dispatch",
        adds=ADDS,
        regime="overhead",
        confidence="high",
        reason=REASON,
        shares=Shares(overhead=0.68, memory=0.23, compute=0.07, host=0.02, other=0.0),
        step_ns=StepStats(count=670, mean=4_220_000, median=4_200_000, p99=4_690_000),
        phases_ns=Phases(
            data_wait=0, forward=900_000, backward=1_200_000, optimizer=2_020_000, other=100_000
        ),
        evidence=[
            Evidence(
                signal="traced_steps",
                says="overhead",
                value=0.68,
                unit="share of step",
                note="kernels work 30 % of a traced step (1208 operators); they leave 68 % of it idle",
            ),
            Evidence(
                signal="batch_probe",
                says="overhead",
                value=0.94,
                unit="share of step",
                note="94 % of the step does not grow with the batch; "
                "doubling the batch would take 1.03 to 1.08x the time",
            ),
            Evidence(
                signal="loader_wait",
                says=None,
                value=0.0,
                unit="share of step",
                note="no loader",
                against=["input"],
            ),
            Evidence(
                signal="sampled_frames", says=None, value=None, unit="share of step", note="not sampled"
            ),
        ],
        batch_probe=BatchProbe(
            status="ok",
            batch=16,
            points=[
                BatchPoint(batch=b, step_ns=ns)
                for b, ns in ((4, 4_010_000), (8, 4_080_000), (16, 4_200_000), (32, 4_430_000))
            ],
            ratio_2x=1.06,
            fixed_ns=3_950_000,
            per_sample_ns=15_000.0,
            ratio_2x_interval=[1.03, 1.08],
        ),
        attach=Attach(method="ptrace", latency_ns=9 * MS, pause_ns=378_000),
        cost=Cost(ns_per_step=18_600, share=0.0044, one_off_ns=308 * MS, session_share=0.0117),
        device=None,
        advice=[
            Advice(
                remedy="optimizer.fused",
                why="the optimizer takes 48 % of the step",
                expected=1.67,
                reach="live",
                class_="rounding",
            ),
            Advice(
                remedy="batch.larger",
                why="what does not grow is shared",
                expected=1.84,
                reach="next_epoch",
                class_="changes-training",
            ),
        ],
        job=job(),
        host=host_sample(rss_bytes=412 << 20, threads=6),
        t_ns=42_000 * MS,
        steps=9_870,
        state="judged",
        activity="watching",
    )
    return msgspec.structs.replace(found, **changes)


def job(**changes: object) -> JobFacts:
    return job_facts(8091, **{"script": "/home/ada/train.py", "method": "ptrace", **changes})


def job_line(pid: int, **more: object) -> JobLine:
    """One process that a session may go to."""
    usual = {
        "script": "train.py",
        "rank": None,
        "torch": "2",
        "attached": False,
        "attachable": True,
        "why": None,
    }
    return JobLine(pid=pid, **{**usual, **more})  # type: ignore[arg-type]


def history(step_ns: int = 4_200_000, seconds: int = 40) -> StepHistory:
    """Quiet, with one bad second."""
    medians: list[int | None] = [step_ns + (index * 7919 % 100) * 1000 for index in range(seconds)]
    medians[seconds // 2] = 6 * MS
    return StepHistory(
        bucket_ns=1_000_000_000,
        median_ns=medians,
        longest_ns=[
            None if each is None else (each * 5 if index == seconds // 2 else each)
            for index, each in enumerate(medians)
        ],
        last_ns=4_180_000,
        edges_ns=[4_000_000, 4_200_000, 4_400_000, 4_700_000],
        counts=[300, 350, 20],
        slow=[
            SlowStep(
                seq=2730, before_ns=30_000 * MS, ns=19 * MS, usual_ns=4_200_000, why="autobrrr: measuring"
            ),
            SlowStep(seq=5120, before_ns=20_000 * MS, ns=30 * MS, usual_ns=4_200_000),
        ],
    )


def history_after() -> StepHistory:
    """Steps of 4.2 ms, of 2.7 ms in the last quarter."""
    before, now = history(), history(2_700_000)
    at = len(before.median_ns) * 3 // 4
    return msgspec.structs.replace(
        before,
        median_ns=[*before.median_ns[:at], *now.median_ns[at:]],
        longest_ns=[*before.longest_ns[:at], *now.longest_ns[at:]],
        last_ns=2_690_000,
        edges_ns=[2_600_000, 2_700_000, 2_800_000, 3_050_000],
    )


def known(
    remedy: str, why: str, class_: str, expected: float | None = None, reach: str = "live", **options: object
) -> Advice:
    told = {"why": why, "class_": class_, "expected": expected, "reach": reach}
    return Advice(remedy=remedy, options=options, **told)  # type: ignore[arg-type]


def details(**changes: object) -> Details:
    found = Details(
        history=history(),
        remedies=[
            known("optimizer.fused", "one kernel updates all parameters", "rounding", 1.67),
            known("optimizer.foreach", "parameters in lists", "bitwise", 1.2),
            known("threads.intra_op", "another thread count", "rounding", threads=2),
        ],
        later=[
            known("precision.autocast_bf16", "bf16 in matmuls", "changes-training", reach="relaunch"),
            known("batch.larger", "a larger batch", "changes-training", 1.84, "next_epoch"),
        ],
        operators=[
            OpTime(op="aten::addmm", count=26, kernel_ns=410_000.0),
            OpTime(op="aten::gelu", count=12, kernel_ns=90_000.0),
        ],
    )
    return msgspec.structs.replace(found, **changes)


def trial(remedy: str = "optimizer.fused", outcome: str = "kept", achieved: float = 1.56) -> Trial:
    why = "faster" if outcome == "kept" else "throughput falls"
    return Trial(
        remedy=remedy,
        options={},
        outcome=outcome,  # type: ignore[arg-type]
        why=f"{why}: {gain_words(achieved, [achieved - 0.1, achieved + 0.11])}",
        class_="rounding" if remedy == "optimizer.fused" else "bitwise",
        predicted=1.67 if remedy == "optimizer.fused" else 1.2,
        achieved=achieved,
        interval=[achieved - 0.1, achieved + 0.11],
        blocks=8,
        steps=80,
        duration_ns=4_200 * MS,
    )


def tuned() -> Tuning:
    return Tuning(
        objective="step_ns",
        baseline=4.2e6,
        best=2.7e6,
        speedup=1.56,
        interval=[1.52, 1.6],
        class_="rounding",
        kept=["optimizer.fused"],
        reverted=[],
        trials=[trial(), trial("optimizer.foreach", "undone", 0.75)],
        recipe=None,
    )


def fused_on() -> dict[str, object]:
    """The changes to `details` once a remedy is on."""
    text = 'schema = 1\n\n[match]\nscript = "train.py"\n\n[remedies]\n"optimizer.fused" = true\n'
    return {
        "active": [ActiveRemedy(token=1, remedy="optimizer.fused", reach="live", class_="rounding")],
        "recipe": RecipeNow(text=text),
    }


def judged(**changes: object) -> View:
    """The CPU job, live."""
    view = take(take(View(standing=ScreenStanding.LIVE), snapshot()), details())
    return replace(view, **changes)  # type: ignore[arg-type]


def measuring() -> View:
    """The first seconds: nothing is named, and nothing can have been tried."""
    unknown = snapshot(
        limit="unknown",
        limit_confidence="low",
        limit_reason="",
        adds="",
        t_ns=3_000 * MS,
        steps=690,
        cost=Cost(ns_per_step=18_600, share=0.0044, one_off_ns=378_000, session_share=0.0044),
        regime="unknown",
        confidence="low",
        reason="measuring steps",
        state="tracing",
        activity="tracing 6 steps",
        evidence=[],
        advice=[],
        shares=Shares(),
        batch_probe=BatchProbe(status="abstained", why="not yet"),
    )
    return take(View(standing=ScreenStanding.LIVE), unknown)


def trying() -> View:
    """In the middle of a tuning."""
    view = take(judged(), trial("optimizer.foreach", "undone", 0.75))
    view = take(view, snapshot(state="tuning", activity="trying optimizer.fused"))
    return take(
        view,
        TuneProgress(
            stage="trial",
            text="trying optimizer.fused: 1.31x [1.27–1.35], 4 A/B pairs",
            remedy="optimizer.fused",
            achieved=1.31,
            interval=[1.27, 1.35],
            pairs=4,
            elapsed_ns=12_000 * MS,
            budget_ns=60_000 * MS,
        ),
    )


def kept() -> View:
    """After a tuning that has kept something."""
    view = take(judged(), tuned())
    after = snapshot(
        active=["optimizer.fused"],
        step_ns=StepStats(count=670, mean=2_720_000, median=2_700_000, p99=3_010_000),
        phases_ns=Phases(data_wait=0, forward=900_000, backward=1_200_000, optimizer=520_000, other=100_000),
    )
    return take(take(view, after), details(history=history_after(), **fused_on()))


def gpu() -> View:
    """A GPU job with a profiler window."""
    window = ProfilerWindow(
        status="ok",
        plain_step_ns=[22 * MS] * 4,
        profiled_step_ns=[31 * MS] * 4,
        stall_ns=420 * MS,
        inside_share=0.71,
        loader_share=0.04,
        by_op=[
            WindowOp(op="aten::addmm", count=48, self_ns=9.1e6),
            WindowOp(op="aten::copy_", count=96, self_ns=2.2e6),
        ],
        gaps=[
            WindowGaps(
                device="cuda:0",
                span_ns=124 * MS,
                busy_ns=50 * MS,
                idle_by_cause_ns={"host_late": 61 * MS, "in_launch": 9 * MS, "unmatched": 4 * MS},
            )
        ],
    )
    return take(
        judged(),
        snapshot(
            job=job(cuda=True, threads=8),
            device={
                "name": "NVIDIA H100",
                "gpu_util_share": 0.97,
                "memory_used_bytes": 61 << 30,
                "memory_total_bytes": 80 << 30,
                "power_w": 412.0,
                "sm_clock_mhz": 1755,
            },
            window=window,
        ),
    )


def ranks() -> View:
    """Eight ranks, the sixth of them late for its loader."""
    step_ns = 4_200_000
    own_us = [3200, 3100, 3200, 3200, 3100, 4100, 3200, 3200]
    lines = [
        RankLine(
            rank=rank,
            pid=8091 + rank,
            step_ns=step_ns,
            regime="communication",
            slowest=rank == 5,
            phase="data_wait" if rank == 5 else None,
            collectives=RankTimes(
                steps=64, step_ns=step_ns, own_ns=own * 1000, waits_ns=step_ns - own * 1000, error_ns=0
            ),
        )
        for rank, own in enumerate(own_us)
    ]
    late = LateRank(
        rank=5,
        pid=8096,
        cause="loader",
        phase="data_wait",
        when="always",
        costs_ns=900_000,
        step_ns=step_ns,
        steps=64,
        compared=8,
        world_size=8,
    )
    return take(judged(), snapshot(job=job(rank=0, world_size=8), ranks=lines, straggler=late))


class FakeClient:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Request[Any]] = []

    def ask(self, request: Request[Any]) -> object:
        self.asked.append(request)
        return [RemedyOutcome(remedy="", why=None)] if isinstance(request, ApplyRemedies) else None

    def detach(self) -> SessionEnding:
        self.ask(EndSession())
        return SessionEnding(kind="detached", why="detached")


class FakeSource:
    """Publishes what the test hands it; keeps the requests."""

    def __init__(self, first: View) -> None:
        self.first = first
        self.client = FakeClient()
        self.closed = False
        self.publish: Publish = lambda view: None
        self.tell: Tell = lambda text: None

    def start(self, publish: Publish) -> None:
        self.publish = publish
        publish(self.first)

    @property
    def requests(self) -> list[Request[Any]]:
        return self.client.asked

    def request(self, work: Work, tell: Tell, *, at_once: bool = False) -> None:
        work(self.client)  # type: ignore[arg-type]
        self.tell = tell

    def close(self) -> None:
        self.closed = True
