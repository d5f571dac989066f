"""One diagnosis from beginning to end, as `autobrrr diagnose` and `autobrrr.diagnose` make it.

In: a pid and what to do to it. The session is started or joined, waited for, and taken off where it was
started here. Out: the verdict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from autobrrr.client.job_peaks import (
    likely_threads,
    make_sure_of_peaks,
    may_use_a_device,
    measuring_python,
    threads_at_once,
)
from autobrrr.client.session_client import Client, left_behind, open_session
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.machine.processors import own_cpu_ns
from autobrrr.quantities import duration
from autobrrr.records import Diagnosis, verdict_head
from autobrrr.records.session_requests import Measure
from autobrrr.sidecar.process.session_options import AWAITS_TURN, Probing, SessionOptions, State, Sweep
from autobrrr.sidecar.sockets.session_socket import find_target

DEFAULT_S = 8.3  # with what attaching and leaving take, an answer within 10 s
UNKNOWN_S = 13.0  # the same while nothing is known to limit the step
DEFAULT_STEPS = 30
ANSWER_S = 20.0  # however long a step is
REPLAY_S = 7.0  # a sure verdict is kept for so long: a replay may bring its advice,
PROMISING = 1.1  # ... but for an edit, or a gain of so much
FIRST_STEPS, LONG_STEP_NS = 3, 500_000_000  # so many steps as long as that: a first word is said
NO_STEP_NS = 12_000_000_000  # without one step: the main thread's stack has been sampled by then
WINDOW_S = 30.0  # a profiler window that is on is waited for so long
STILL_S = 60.0  # without a single step, nothing more will be known
EVERY_S = 0.25
VERDICT_SHARE = 0.25  # of a tuning's budget: how long to wait for a verdict, which orders the trials
VERDICT_S = 15.0
BEFORE_MEASURING = ("watching",)  # states in which nothing but steps has been looked at
BEFORE_TIMED = (*BEFORE_MEASURING, "tracing", "timing")  # states in which collectives are not timed yet
FIRST_LINE_NS = 500_000_000  # no step is timed by then: the first line comes all the same

FIRST_VERDICT_S = 10.0
PROFILER_WINDOW = "profiler window"
PEAKS_SHARE, LEAST_PEAKS_S = 0.2, 4.0  # of a given time, to measure the peaks

Say = Callable[[str], None]
Doing = Callable[[str, float | None], None]  # what happens now, and seconds until its end at most
_MEASURING_PEAKS = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisOptions:
    """What to do to the job, and how long to wait."""

    session: SessionOptions = field(default_factory=SessionOptions)
    for_s: float | None = None  # None: 9 s of measuring or 30 steps, whichever is later, 20 s at most
    window: bool = False  # a profiler window too
    sweep: Sweep | None = None
    probe_again: Probing | None = None  # of a session that is there already


def diagnosed(
    pid: int,
    options: DiagnosisOptions,
    say: Say,
    doing: Doing | None = None,
    *,
    before: Callable[[Client], None] | None = None,
) -> Diagnosis:
    """Attach to one process, wait for its verdict, take off what was put on, unless others use it by then.

    Args:
        say: Gets lines of narration; stages too where `doing` does not take them.
        before: What is done in its session before all else.

    Raises:
        AutobrrrError: it can't be attached, or has ended before anything could be said.
    """
    find_target(pid)  # ours, or nothing of it is looked at
    session, began_cpu_ns = options.session, own_cpu_ns()
    patience = Patience(for_s=options.for_s, window=options.window, sweep=options.sweep is not None)
    if options.for_s is not None and options.for_s < FIRST_VERDICT_S:
        say(f"a verdict takes about {FIRST_VERDICT_S:.0f} s; a shorter --for may name nothing")
    stage = say if doing is None else (lambda text: doing(text, options.for_s))
    peaks = _PeaksOfJob(
        pid,
        say,
        stage,
        wanted=not (session.readonly or session.outside),
        patience_s=None if options.for_s is None else max(LEAST_PEAKS_S, PEAKS_SHARE * options.for_s),
    )
    from autobrrr.attach import job_roles, triage  # not for --help

    on_cpu = job_roles.maps_torch(pid) and not may_use_a_device(pid)
    if on_cpu and triage.refusal(triage.TriageCase(pid=pid)) is None:  # else refused, or joined
        peaks.measure(likely_threads(pid))
    if doing is not None:
        doing(f"attaching to process {pid}", options.for_s)
    with open_session(pid, session, say, owned=True) as client:
        try:
            if not client.started:
                client.ask(Measure("all", options.probe_again))
            if before is not None:
                before(client)
            if options.window:
                client.ask(Measure("window"))
            if options.sweep:
                client.ask(Measure("sweep"))
            found = await_verdict(client, patience, say, peaks.look, doing)
            for name in patience.missing(found):
                say(f"the {name} did not finish")
        finally:
            if client.ending is None:
                ending = client.leave()
                if ending is None and client.started:
                    say("others use the session, which goes on")
                for line in [] if ending is None else left_behind(ending):
                    say(line)
    _refuse_nothing(pid, client)
    if client.ending is not None and client.ending.kind == "job ended":
        say(f"{client.ending.why}: this is what was seen of it")
    cpu_ns = (found.cost.cpu_ns or 0) + own_cpu_ns() - began_cpu_ns  # of the peaks, too
    return msgspec.structs.replace(found, final=None, cost=msgspec.structs.replace(found.cost, cpu_ns=cpu_ns))


@dataclass(slots=True, kw_only=True)
class Patience:
    """When to stop waiting for a better verdict.

    Without `--for`: 9 s from the first measurement or 30 steps, whichever is later; 13 s while no limit is
    known; 20 s at most.
    """

    for_s: float | None = None
    window: bool = False  # what was asked for is not there before a profiler window is
    sweep: bool = False  # ... or a sweep
    clock_s: Callable[[], float] = time.monotonic
    came_s: float | None = field(init=False, default=None)  # the first snapshot
    began_s: float = field(init=False)
    moved_s: float = field(init=False)
    profiled_s: float | None = field(init=False, default=None)
    steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.began_s = self.moved_s = self.clock_s()

    def is_over(self, snapshot: Diagnosis) -> bool:
        """Whether this snapshot is what the user gets."""
        now_s = self.clock_s()
        unmeasured = self.for_s is None and (snapshot.state in BEFORE_MEASURING or not self.steps)
        if (snapshot.steps or 0) > self.steps:
            self.steps, self.moved_s = snapshot.steps or 0, now_s
        waits = snapshot.activity == AWAITS_TURN
        if waits or unmeasured:
            self.began_s = now_s  # its time has not begun
        if waits or self.came_s is None:
            self.came_s = now_s
        missing = self.missing(snapshot)
        timed = snapshot.state not in BEFORE_TIMED or not (snapshot.job and snapshot.job.has_other_ranks)
        spent_s = now_s - self.began_s
        named = any(one.reach == "edit" or (one.expected or 0) >= PROMISING for one in snapshot.advice)
        bare = snapshot.regime == "overhead" or not named
        more = bare and spent_s < REPLAY_S and snapshot.state == State.PROBING.value
        there = not missing and timed and not more
        if ((snapshot.confidence == "high" or is_settled(snapshot)) and there) or snapshot.final:
            return True
        long = self.for_s is None and not missing and now_s - self.came_s >= ANSWER_S
        if snapshot.state == State.PROFILING.value and not long:  # its stall is paid: it comes in a moment
            self.profiled_s = now_s if self.profiled_s is None else self.profiled_s
            if now_s - self.profiled_s < WINDOW_S:
                return False
        if self.for_s is not None:  # a window that was asked for is worth waiting for
            return spent_s >= self.for_s + (WINDOW_S if PROFILER_WINDOW in missing else 0.0)
        stuck = now_s - self.moved_s > STILL_S
        enough_s = UNKNOWN_S if snapshot.limit == "unknown" else DEFAULT_S
        late = not missing and spent_s >= enough_s and self.steps >= DEFAULT_STEPS
        return stuck or late or long

    def left_s(self, snapshot: Diagnosis) -> float | None:
        """At most so many seconds from now; None where nobody knows."""
        spent_s = self.clock_s() - self.began_s
        if self.for_s is not None:
            return self.for_s - spent_s
        if self.window or self.sweep:
            return None
        step_ns = snapshot.step_ns.median
        steps_s = 0.0 if step_ns is None else (DEFAULT_STEPS - self.steps) * step_ns / 1e9
        return max(DEFAULT_S - spent_s, steps_s)

    def missing(self, snapshot: Diagnosis) -> list[str]:
        """What was asked for and is not there."""
        asked = ((PROFILER_WINDOW, self.window, snapshot.window), ("sweep", self.sweep, snapshot.sweep))
        return [name for name, wanted, found in asked if wanted and found is None]


def is_settled(snapshot: Diagnosis) -> bool:
    """Whether nothing that is still to be measured could change who limits the step, or name the regime.

    The limit is sure, and all has been measured, or all but the batch probe, which can only confirm a
    regime whose share leads.
    """
    if snapshot.limit == "recompilation":
        return True  # steps are too long to wait for more of them
    if snapshot.limit_confidence != "high":
        return _is_profiled(snapshot)
    from autobrrr.diagnosis.models.leading import leads_all, measured_shares  # brings numpy

    shares = measured_shares(snapshot.shares)
    mixture = bool(shares) and not any(leads_all(name, shares) for name in shares)
    return snapshot.state == State.JUDGED.value or (snapshot.state == State.PROBING.value and mixture)


def _is_profiled(snapshot: Diagnosis) -> bool:
    """Whether it runs compiled code, on a CPU: once it was profiled nothing more is measured of it."""
    job, window = snapshot.job, snapshot.window
    if job is None or window is None or window.status != "ok" or job.is_asynchronous:
        return False
    return job.compiled and snapshot.state == State.JUDGED.value and (snapshot.steps or 0) >= DEFAULT_STEPS


class _PeaksOfJob:
    """Measures this machine's peaks at the threads that a job starts with, and at those that it sets."""

    def __init__(self, pid: int, say: Say, stage: Say, *, wanted: bool, patience_s: float | None) -> None:
        self._pid, self._say, self._stage, self._open = pid, say, stage, wanted
        self._patience_s = patience_s
        self._tried = set[int | None]()
        self._python = measuring_python(pid) if wanted else None

    def look(self, snapshot: Diagnosis) -> None:
        job = snapshot.job
        if self._open and job is not None and job.threads:
            if not job.is_asynchronous:
                self.measure(job.threads)
            self._open = False

    def measure(self, threads: int | None) -> None:
        """At so many threads; what failed before attaching is not waited for once more."""
        at_once = threads_at_once(self._pid, threads)
        if self._open and at_once not in self._tried:
            self._tried.add(at_once)
            with _MEASURING_PEAKS:
                make_sure_of_peaks(
                    at_once, self._python, self._say, doing=self._stage, patience_s=self._patience_s
                )


def await_verdict(
    client: Client,
    patience: Patience,
    say: Say,
    look: Callable[[Diagnosis], object] = lambda snapshot: None,
    doing: Doing | None = None,
) -> Diagnosis:
    """Wait for a session's verdict as long as patience lasts.

    Args:
        look: Sees every snapshot.
        doing: Gets every stage; where it is left out `say` does.

    Raises:
        TargetGone: the session ended without one.
    """
    told = first = None
    said: set[str] = set()
    for snapshot in client.snapshots(every_s=EVERY_S):
        if first is None and (first := _first_line(snapshot)) is not None:
            say(first)
        look(snapshot)
        if patience.is_over(snapshot):
            client.unsubscribe()
            return snapshot
        if (first_word := _first_word(snapshot)) is not None and first_word not in said:
            said.add(first_word)
            say(f"so far: {verdict_head(snapshot)}")
        if doing is not None and snapshot.activity:
            doing(snapshot.activity, patience.left_s(snapshot))
        elif snapshot.activity != told:
            told = snapshot.activity
            say(f"{told}")
    raise TargetGone("the session ended without a verdict")


def _first_line(snapshot: Diagnosis) -> str | None:
    """Who trains, and how long a step takes; None while that is not known, for half a second."""
    job, step_ns = snapshot.job, snapshot.step_ns.median
    if job is None or (step_ns is None and (snapshot.t_ns or 0) < FIRST_LINE_NS):
        return None
    who = f"attached to {job.script.rsplit('/', 1)[-1]} (pid {snapshot.pid})"
    if step_ns is None:
        return f"{who}: {'timing its steps' if snapshot.steps else 'no step has ended yet'}"
    return f"{who}: a step takes {duration(step_ns)} so far"


def _first_word(snapshot: Diagnosis) -> Literal["no step", "long steps"] | None:
    """Why what is known so far is said at once: a better verdict will take long."""
    stats = snapshot.step_ns
    if stats.count == 0:
        return "no step" if (snapshot.t_ns or 0) >= NO_STEP_NS else None
    return "long steps" if stats.count >= FIRST_STEPS and (stats.median or 0) >= LONG_STEP_NS else None


def before_tuning(for_s: float) -> Patience:
    """How long a tuning of so many seconds waits for the verdict that orders its trials."""
    return Patience(for_s=min(VERDICT_S, VERDICT_SHARE * for_s))


def _refuse_nothing(pid: int, client: Client) -> None:
    """A session that ended by itself: fine where there is something to say."""
    ending = client.ending
    if ending is None or ending.kind == "detached" or ending.decided:
        return
    if ending.kind == "job ended":
        raise TargetGone(f"process {pid} ended before it could be diagnosed")
    raise AutobrrrError(f"the agent has left process {pid}: {ending.why}", "autobrrr diagnose again")
