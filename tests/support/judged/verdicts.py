"""Diagnoses that are made up."""

import msgspec

from autobrrr.records import Advice, Attach, BatchProbe, Cost, Diagnosis, Evidence, Phases, Shares, StepStats
from support.sessions.sidecar import host_sample, job_facts


def diagnosis(**changes: object) -> Diagnosis:
    empty = Diagnosis(
        pid=4242,
        regime="unknown",
        confidence="low",
        reason="nothing has been measured yet",
        shares=Shares(),
        step_ns=StepStats(count=0, mean=None, median=None, p99=None),
        phases_ns=Phases(),
        evidence=[],
        batch_probe=BatchProbe(status="abstained", why="the batch probe has not run"),
        attach=Attach(method="ptrace", latency_ns=3_100_000, pause_ns=430_000),
        cost=Cost(ns_per_step=None, share=None),
        device=None,
        advice=[],
        t_ns=400_000_000,
        steps=0,
        state="watching",
        activity="waiting for the first steps",
    )
    return msgspec.structs.replace(empty, **changes)


OVERHEAD = diagnosis(
    limit="host",
    limit_confidence="high",
    limit_reason="72 % Python and dispatch",
    adds="kernels work 0.40 of 1.42 ms",
    regime="overhead",
    confidence="high",
    reason="72 % of the step is spent in Python and the dispatcher; kernels work 0.40 of 1.42 ms",
    shares=Shares(overhead=0.72, compute=0.18, memory=0.08, host=0.0, other=0.02),
    step_ns=StepStats(count=812, mean=1_450_000, median=1_420_000, p99=2_104_000),
    phases_ns=Phases(data_wait=0, forward=440_000, backward=590_000, optimizer=360_000, other=60_000),
    evidence=[
        Evidence(
            signal="loader_wait", says=None, value=0.0, unit="share", note="no waiting", against=["input"]
        ),
        Evidence(
            signal="traced_steps", says="overhead", value=0.72, unit="share", note="kernels leave 72 % idle"
        ),
        Evidence(
            signal="batch_probe",
            says="overhead",
            value=0.9,
            unit="share",
            note="90 % does not grow with the batch",
        ),
        Evidence(signal="op_cost", says="overhead", value=0.6, unit="share", note="400 operators at 2.0 us"),
        Evidence(signal="busy_machine", says=None, value=0.01, unit="share", note="1 % run-queue delay"),
    ],
    advice=[
        Advice(
            remedy="optimizer.fused",
            why="98 tensors in a for-loop",
            expected=1.28,
            reach="live",
            class_="rounding",
        ),
        Advice(remedy="gc.freeze", why="fewer collections", expected=None, reach="live", class_="bitwise"),
        Advice(remedy="compile.default", why="fuses", expected=2.0, reach="relaunch", class_="rounding"),
    ],
    cost=Cost(ns_per_step=980, share=0.00068, one_off_ns=430_000, session_share=0.0007),
    job=job_facts(4242),
    t_ns=12_300_000_000,
    steps=5120,
    state="judged",
    activity="watching",
)
UNDECIDED = msgspec.structs.replace(
    OVERHEAD,
    limit="mixed",
    limit_confidence="low",
    limit_reason="No single bottleneck: host 42 %, kernels 40 %",
    regime="mixed",
    confidence="low",
    adds="",
    reason="overhead takes 42 % and memory 40 %: neither leads",
    advice=[],
    decide_with="autobrrr diagnose 4242 --for 60s",
    cost=Cost(ns_per_step=None, share=None),
    job=None,
)
OUTSIDE = diagnosis(
    attach=Attach(method="outside", latency_ns=None, pause_ns=0),
    reason="nothing was put into the job, so no regime can be named",
    host=host_sample(cpu_share=1.98, threads=9, run_delay_share=0.02),
    state="judged",
    activity="watching from outside",
    steps=None,
)
TUNED = msgspec.structs.replace(
    OVERHEAD, active=["optimizer.fused", "gc.freeze"], state="tuning", activity="confirmation run"
)

SNAPSHOTS = {
    "first": diagnosis(),
    "overhead": OVERHEAD,
    "mixed": UNDECIDED,
    "outside": OUTSIDE,
    "tuned": TUNED,
    "ended": msgspec.structs.replace(OVERHEAD, state="ended", activity="job ended", final=True),
}
