"""The tuner on a live job: its bench, with remedies through the agent and steps from the ring; its call.

The tuner runs on its own thread; every command is handed to the event loop, which alone speaks to the agent,
and the tuner's thread waits for the answer. What searches is heavy, so it is imported when somebody tunes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

import numpy as np

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.errors import TargetGone
from autobrrr.records import Diagnosis, JobFacts, Reverted, Trial, TuneProgress, Tuning
from autobrrr.records.busy_words import crowd_words
from autobrrr.records.session_requests import TuneRequest
from autobrrr.records.tuning_records import NO_PEAKS, MemoryPeaks, highest
from autobrrr.records.wire_answers import ActiveRemedy, RemedyOutcome
from autobrrr.sidecar.process.cache_filler import CacheFiller
from autobrrr.sidecar.process.step_replayer import Call
from autobrrr.sidecar.session.ring_reader import NO_RECORDS, Records, RingReader
from autobrrr.sidecar.session.session import Session
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.candidate_space import allowed_classes, allows_unproven
from autobrrr.tuner.job_under_test import NotApplied, RemedyLost, StepClock, durations_ns
from autobrrr.tuner.tuning_budget import WINDOW_NS, TuneSettings

Tell = Callable[[TuneProgress | Trial], None]

KEPT_STEPS = 1 << 16
SWITCH_S = 20.0  # or so many steps, until a remedy must have switched
SWITCH_STEPS = 5
EVALUATION_S = 300.0  # unless the user stops: no step ends while the job evaluates
STALL_PATIENCE = 8.0  # times the usual price of switching on
LEAST_FREE_CORES = 0.3  # for a process that compiles: of less, it takes most from training, and does not end
LOOK_S = 0.1  # between looks whether the session is still there
SOONEST_NS = 4_000_000  # between looks at the ring while a block runs
LATEST_NS = 500_000_000
SECOND_NS = 1_000_000_000


class StepTape:
    """The latest steps of a ring. Belongs to the tuner's thread."""

    def __init__(self, ring: RingReader) -> None:
        self._ring = ring
        self._parts: list[Records] = []
        self._count = 0

    def read(self) -> int:
        """Take in what is new; the number of the next step."""
        if len(records := self._ring.read_new()):
            self._parts.append(records)
            self._count += len(records)
        while self._parts and self._count - len(self._parts[0]) >= KEPT_STEPS:
            self._count -= len(self._parts.pop(0))
        return self._ring.steps

    def typical_ns(self) -> float:
        """Median of the steps that came last; no end in sight where there are none."""
        return float(np.median(durations_ns(self._parts[-1]))) if self._parts else float("inf")

    def since(self, first_seq: int) -> Records:
        """Steps from this number on."""
        recent = itertools.takewhile(lambda part: int(part["seq"][-1]) >= first_seq, reversed(self._parts))
        joined = np.concatenate([NO_RECORDS, *list(recent)[::-1]])
        return joined[joined["seq"] >= first_seq]

    def close(self) -> None:
        self._ring.close()


class LiveBench:
    """One job under test; see `tuner.bench.Bench`."""

    def __init__(self, session: Session, call: Call) -> None:
        facts, ring = session.findings.facts, session.findings.ring
        if facts is None or ring is None:
            raise TargetGone("nothing is attached to the job")
        self.facts: JobFacts = facts
        self._session, self._call = session, call
        self._tape = StepTape(ring.again())
        self._cancelled = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self._patience_s = EVALUATION_S
        self._rested_ns, self._rests_since_ns = time.monotonic_ns(), 0  # it begins at 0
        # What we used before the tuning. A process that compiles later slows steps, which is counted there.
        lately = min(1.0, WINDOW_NS / max(1, session.elapsed_ns))
        self._own_ns = lately * session.own_cpu_ns() - time.process_time_ns()
        self._undoing: dict[int, Future[RemedyOutcome]] = {}  # by token: sent, and not answered yet
        self._peaks: dict[str, MemoryPeaks] = {}  # by remedy
        self._stands_until_s = 0.0  # training may stand still so long: what was switched on takes its time

    @property
    def clock(self) -> StepClock:
        return "device" if self._session.findings.is_asynchronous else "host"

    @property
    def cores(self) -> int | None:
        return self._session.findings.cores_each

    def active(self) -> list[ActiveRemedy]:
        """What is on already and may be switched, oldest first; not what goes off at the next boundary."""
        return [each for each in self._on() if each.ours_and_live and each.token not in self._undoing]

    def standing(self) -> list[ActiveRemedy]:
        """What is on and stays on: of the recipe, or not to be switched within an epoch."""
        return [applied for applied in self._on() if not applied.ours_and_live]

    def _on(self) -> list[ActiveRemedy]:
        return list(self._session.active.on.values())

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        applied = self._switched_on(remedy, options)
        self._stands_until_s = time.monotonic() + STALL_PATIENCE * REGISTRY[remedy].price_s
        return applied

    def prepare(self, remedy: str, options: Mapping[str, object]) -> CacheFiller:
        pid, free = self._session.findings.pid, self._session.findings.free_cores
        if free is not None and free < LEAST_FREE_CORES:
            return CacheFiller(pid, "no CPU is free")
        try:
            token, seq = self._switched_on(remedy, options, prepare=True)
        except NotApplied as refused:
            if refused.code is RefusalCode.NOT_BESIDE:
                return CacheFiller(pid, str(refused))
            raise
        try:
            self.steps(seq, REGISTRY[remedy].warm_up_steps, int(SWITCH_S * SECOND_NS))
        finally:
            self.undo(token)
        return CacheFiller(pid, self._session.take_graphs())

    def undo(self, token: int) -> int:
        if token in self.lost():
            return self.next_seq()
        on = {each.token: each.remedy for each in self._on()}
        self._check()
        answer = self._undoing.get(token)
        if answer is None:  # it is asked for once, however often one waits
            answer = self._undoing[token] = Future()
            self._call(lambda: self._session.active.undo(token, answer.set_result))
        try:
            done = self._wait_for_boundary(answer)
        except FutureTimeout:
            raise RemedyLost("no step boundary came in time; it goes off at the next one") from None
        del self._undoing[token]
        if done.why is not None:
            self._check()
            raise RemedyLost(done.why)
        name = on.get(token, "")
        peaks = MemoryPeaks(host_bytes=done.host_peak_bytes, device_bytes=done.device_peak_bytes)
        self._peaks[name] = highest((self._peaks.get(name, NO_PEAKS), peaks))
        return done.seq if done.seq is not None else self.next_seq()

    def take_peaks(self, remedies: Collection[str]) -> MemoryPeaks:
        peaks, self._peaks = self._peaks, {}
        return highest(peak for name, peak in peaks.items() if name in remedies)

    def lost(self) -> Mapping[int, str]:
        return dict(self._session.active.lost)

    def next_seq(self) -> int:
        self._check()
        return self._tape.read()

    def steps(self, first_seq: int, count: int, timeout_ns: int) -> Records:
        """Looks at the ring when the last of the steps should have ended, not at the loop's next tick."""
        deadline_ns = time.monotonic_ns() + timeout_ns

        while True:
            self.next_seq()
            found, typical_ns = self._tape.since(first_seq), self._tape.typical_ns()
            missing, left_ns = count - len(found), deadline_ns - time.monotonic_ns()
            if missing <= 0 or left_ns <= 0 or self.cancelled():
                return found
            self._cancelled.wait(min(max(SOONEST_NS, missing * typical_ns), LATEST_NS, left_ns) / SECOND_NS)

    def now_ns(self) -> int:
        """Since the tuning began; stands still while the user holds the tuner: the budget is for work."""
        return (self._rests_since_ns or time.monotonic_ns()) - self._rested_ns

    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self, patience_s: float = 0.0) -> None:
        """From any thread: the tuner is to stop, and to wait so long for an evaluation that holds it up."""
        self._patience_s = patience_s
        self._cancelled.set()
        self._running.set()

    @property
    def paused(self) -> bool:
        """Whether the user holds the tuner."""
        return not self._running.is_set()

    def hold(self, paused: bool) -> None:
        """From any thread: the tuner rests from the end of the pair of blocks that runs, or goes on."""
        if paused and not self._cancelled.is_set():
            self._running.clear()
        else:
            self._running.set()

    def crowd(self, last_ns: int) -> str | None:
        return crowd_words(self._session.findings.host, last_ns)

    def taken_ns(self) -> float:
        findings, taken_ns = self._session.findings, self._own_ns + time.process_time_ns()
        return taken_ns / findings.cores if findings.fills_cpus and findings.cores else 0.0

    def rest_while_paused(self) -> None:
        """On the tuner's thread, between pairs: wait for `resume`, `cancel` or the session's end."""
        self._rests_since_ns = time.monotonic_ns()
        while not self._running.wait(LOOK_S) and self._session.ending is None:
            pass
        self._rested_ns += time.monotonic_ns() - self._rests_since_ns
        self._rests_since_ns = 0

    def close(self) -> None:
        """No more steps are needed."""
        self._tape.close()

    def _check(self) -> None:
        if self._session.ending is not None:
            raise TargetGone(f"the session ended: {self._session.ending.why}")

    def _switched_on(
        self, remedy: str, options: Mapping[str, object], *, prepare: bool = False
    ) -> tuple[int, int]:
        """Switch a remedy on and wait for the boundary; one that comes on too late is taken back."""
        answer: Future[RemedyOutcome] = Future()
        active = self._session.active

        def replied(done: RemedyOutcome) -> None:
            if answer.set_running_or_notify_cancel():
                answer.set_result(done)
            elif done.token is not None:
                active.undo(done.token, lambda _: None)

        self._check()
        self._call(lambda: active.apply(remedy, options, replied, prepare=prepare))
        try:
            done = self._wait_for_boundary(answer)
        except FutureTimeout:
            if answer.cancel():
                raise RemedyLost("no step boundary came in time; the command was taken back") from None
            done = answer.result()  # it came just now
        if done.why is not None or done.token is None:
            self._check()
            raise NotApplied(done.why or "the agent gave no token", done.code or RefusalCode.UNFIT)
        return done.token, done.seq if done.seq is not None else self.next_seq()

    def _wait_for_boundary(self, answer: Future[RemedyOutcome]) -> RemedyOutcome:
        """The answer. A job that evaluates for long is waited for; a session that ends gives none."""
        began_s = time.monotonic()
        while True:
            try:
                return answer.result(LOOK_S)
            except FutureTimeout:
                self._check()
                steps_s = SWITCH_STEPS * self._session.findings.window.longest_ns / SECOND_NS
                enough_s = max(SWITCH_S, min(steps_s, EVALUATION_S), self._patience_s)
                if time.monotonic() > max(began_s + enough_s, self._stands_until_s):
                    raise


def tune(bench: LiveBench, request: TuneRequest, judged: Diagnosis, tell: Tell) -> Tuning:
    """Tune the job. Raises what `live_search.tune` raises."""
    from autobrrr.tuner import live_search

    return live_search.tune(
        bench,
        verdict=judged,
        settings=_settings(request),
        on_progress=tell,
        on_trial=tell,
        already=bench.active(),
        standing=tuple(bench.standing()),
    )


def check(bench: LiveBench, step_ns: float) -> list[Reverted]:
    """Whether what is on still pays; see `undo_losses`."""
    from autobrrr.tuner.comparison import undo_losses

    return undo_losses(bench, ArmSwitch(bench, bench.active()), step_ns)


def _settings(request: TuneRequest) -> TuneSettings:
    usual = TuneSettings()
    return TuneSettings(
        budget_ns=usual.budget_ns if request.for_s is None else int(request.for_s * 1e9),
        spent_ns=int(request.spent_s * 1e9),
        horizon_ns=usual.horizon_ns if request.horizon_s is None else int(request.horizon_s * 1e9),
        max_loss=usual.max_loss if request.max_loss is None else request.max_loss,
        allowed=allowed_classes(request.allow),
        unproven=allows_unproven(request.allow),
        only=tuple(request.only or ()),
    )
