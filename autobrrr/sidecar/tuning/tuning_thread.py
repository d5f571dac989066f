"""Runs the tuner on a thread of its own, so that the session stays responsive; watches over what it kept.

In: a client's request. Out: events for that client and all who listen: `progress`, `trial`, and at the end
`tuned` or `tune_failed`. One tuning at a time; it stops when its client leaves. Afterwards recent steps may
raise a suspicion, which costs nothing; a short comparison (`undo_losses`) finds out: jobs also slow
down.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from autobrrr.diagnosis.measurements import Durations
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis, NoClaim, Reverted, Trial, TuneProgress, Tuning
from autobrrr.records.events import Event
from autobrrr.records.session_requests import TuneRequest
from autobrrr.records.wire_answers import ActivityLine, RemedyOutcome, TuneFailed
from autobrrr.sidecar.process.session_options import State
from autobrrr.sidecar.process.step_replayer import Call
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.sockets.socket_frames import ClientConnection
from autobrrr.sidecar.tuning.live_bench import EVALUATION_S, LiveBench, Tell
from autobrrr.tuner.candidate_space import allowed_classes
from autobrrr.tuner.job_under_test import RemedyLost

SECOND_NS = 1_000_000_000
FEWEST_STEPS = 32
RECENT_STEPS = 256
FIRST_NS = 10 * SECOND_NS
LONGEST_NS = 1800 * SECOND_NS
NEVER_NS = 1 << 62  # no gain is claimed that could go: the loss alone is watched
PATIENCE = 2.0  # each comparison that changed nothing makes the next wait so much longer


@dataclass(slots=True)
class PostTuningWatch:
    """Watches over one tuning's result.

    Attributes:
        baseline_ns, best_ns: Step with all of it off and on, as last compared.
        loss_was_finite: When the watch began; else a loss that is not finite is the job's own.
    """

    baseline_ns: float
    best_ns: float
    since_ns: int
    pause_ns: int = FIRST_NS
    loss_was_finite: bool = True

    def suspects(self, step_ns: Durations, now_ns: int) -> bool:
        """True where it is time to look, and more than half of the gain has gone."""
        if now_ns - self.since_ns < self.pause_ns or len(step_ns) < FEWEST_STEPS:
            return False
        return float(np.median(step_ns[-RECENT_STEPS:])) > math.sqrt(self.baseline_ns * self.best_ns)

    def looked(self, undid: Sequence[Reverted], step_ns: Durations, now_ns: int) -> None:
        """Go on after a comparison.

        What still pays in a job that became slower by itself is measured against its new pace; of what is
        left when something went off no figure is known, and the loss alone is watched.
        """
        if undid:
            self.pause_ns = NEVER_NS
            return
        slower = float(np.median(step_ns[-RECENT_STEPS:])) / self.best_ns if len(step_ns) else 1.0
        self.baseline_ns, self.best_ns = self.baseline_ns * slower, self.best_ns * slower
        self.since_ns, self.pause_ns = now_ns, min(LONGEST_NS, int(PATIENCE * self.pause_ns))


def watch_over(result: Tuning, now_ns: int, *, loss_lost: bool) -> PostTuningWatch | None:
    """A watch over what a tuning has kept; None where it kept nothing that was measured."""
    claimed = result.speedup > 1
    if not result.kept or not result.baseline or not result.best:
        return None
    if not claimed and result.no_claim is not NoClaim.CROWDED:
        return None
    return PostTuningWatch(
        baseline_ns=result.baseline,
        best_ns=result.best,
        since_ns=now_ns,
        pause_ns=FIRST_NS if claimed else NEVER_NS,
        loss_was_finite=not loss_lost,
    )


# On its own thread, on a job's bench: tunes until the budget or the candidates are spent.
Tuner = Callable[[LiveBench, TuneRequest, Diagnosis, Tell], Tuning]
# Compares all that was kept with all off, for some seconds; returns what it undid.
GainCheck = Callable[[LiveBench, float], list[Reverted]]


class TuningThread:
    """At most one tuner at work. Belongs to the event loop's thread.

    Attributes:
        push: Sends an event to subscribers, and to the connections that are named.
    """

    def __init__(
        self,
        session: Session,
        call: Call,
        tuner: Tuner,
        check: GainCheck,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._session, self._call, self._tuner, self._check = session, call, tuner, check
        self._clock_ns = clock_ns
        self.push: Callable[[Event, Iterable[ClientConnection]], None] = lambda told, also: None
        self._watchman: PostTuningWatch | None = None
        self._bench: LiveBench | None = None
        self._thread: threading.Thread | None = None
        self._once_through: list[Callable[[], None]] = []
        self.asked_by: ClientConnection | None = None
        self.tuned: Tuning | None = None  # the latest result
        self.asked: TuneRequest | None = None  # of the tuning that runs
        self._heard: tuple[TuneProgress, int] | None = None  # where it stands, and when by its bench's clock

    def begin(self, asked_by: ClientConnection, request: TuneRequest) -> None:
        """Start; events follow.

        Raises:
            AutobrrrError: this session can't tune, or does so already.
        """
        allowed_classes(request.allow)
        refusal = self._session.begin_tuning()
        if refusal is not None:
            raise AutobrrrError(f"this session can't tune: {refusal}", "autobrrr detach, then attach anew")
        self._bench = LiveBench(self._session, self._call)
        self.asked = request
        self.asked_by = None if request.stays else asked_by
        self._start(self._work, self._bench, request, self._session.snapshot())

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._thread = threading.Thread(target=work, args=arguments, name="tuner", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop as soon as the job is in a state that can be left."""
        if self._bench is not None:
            self._bench.cancel()

    def stop(self, then: Callable[[], None]) -> None:
        """Cancel; `then` is called once what is being tried is off and what is kept is on, however late."""
        if self._bench is None:
            then()
        else:
            self._once_through.append(then)
            self._bench.cancel(patience_s=EVALUATION_S)

    @property
    def paused(self) -> bool:
        """Whether a tuner is at work and rests."""
        return self._bench is not None and self._bench.paused

    def hold(self, paused: bool) -> None:
        """Let the tuner rest after the pair of blocks that runs, or go on.

        Raises:
            AutobrrrError: nothing is being tuned.
        """
        if self._bench is None:
            raise AutobrrrError("nothing is being tuned", "autobrrr tune PID")
        self._bench.hold(paused)

    def look(self) -> None:
        """Now and then: a tuning's clock goes on; later, what is kept is compared if its gain is in doubt."""
        if self._bench is not None and self._heard is not None:
            now, heard_ns = self._heard
            if (since_ns := self._bench.now_ns() - heard_ns) >= SECOND_NS:  # no pair has ended meanwhile
                self._hear(msgspec.structs.replace(now, elapsed_ns=now.elapsed_ns + since_ns))
        watchman, window = self._watchman, self._session.findings.window
        if watchman is None or self._bench is not None:
            return
        if not any(applied.ours_and_live for applied in self._session.active.on.values()):
            self._watchman = None
            return
        if watchman.loss_was_finite and window.loss_lost:
            self._undo_for_loss()
            return
        if not watchman.suspects(window.step_ns, self._clock_ns()):
            return
        if self._session.begin_tuning() is not None:
            return
        self._session.narrate("the gain has gone: comparing what is kept with all off")
        self._bench = LiveBench(self._session, self._call)
        self._start(self._compare, self._bench, watchman)

    def _undo_for_loss(self) -> None:
        """At once, and whatever made it: what does not keep the bits goes off, one after the other.

        Ranks that switch together take one change at a time.
        """
        self._watchman = None
        on = self._session.active.on.values()
        suspects = [applied for applied in on if not applied.planned and applied.class_ != "bitwise"]

        def go_on() -> None:
            if not suspects:
                return
            applied = suspects.pop()

            def switched(done: RemedyOutcome) -> None:
                if done.why is None:
                    self._tell([Reverted(remedy=applied.remedy, why="the loss is no longer finite")])
                else:
                    text = f"the loss is no longer finite, and {applied.remedy} can't be reverted: {done.why}"
                    self._session.note(text)
                go_on()

            self._session.active.undo(applied.token, switched)

        go_on()

    def _tell(self, undid: list[Reverted]) -> None:
        for each in undid:
            self._session.record(each)
            self.tuned = None if self.tuned is None else self.tuned.without(each)
            self._session.say(ActivityLine(text=f"the guard reverted {each.remedy}: {each.why}"))

    def _compare(self, bench: LiveBench, watchman: PostTuningWatch) -> None:
        undid: list[Reverted] = []
        kept = [applied.remedy for applied in bench.active()]
        try:
            undid = self._check(bench, watchman.baseline_ns)
        except AutobrrrError:
            pass  # the session ends: said already
        except RemedyLost as lost:
            off = set(kept) - {applied.remedy for applied in bench.active()}
            undid = [Reverted(remedy=each, why=f"could not be applied again: {lost}") for each in sorted(off)]
        except Exception:  # noqa: BLE001 - the session must outlive a fault of the guard
            traceback.print_exc()
        finally:
            self._call(lambda: self._looked(watchman, undid))
            self._call(self._through)

    def _looked(self, watchman: PostTuningWatch, undid: list[Reverted]) -> None:
        if self._session.state not in (State.DETACHING, State.ENDED):  # then all goes off, for no fault
            watchman.looked(undid, self._session.findings.window.step_ns, self._clock_ns())
            self._tell(undid)

    def join(self, timeout_s: float) -> None:
        """Wait for the tuner's thread (it must be cancelled, or its session ended)."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _work(self, bench: LiveBench, request: TuneRequest, judged: Diagnosis) -> None:
        def tell(event: Event) -> None:
            self._call(lambda: self._hear(event))

        try:
            last: Event = self._tuner(bench, request, judged, tell)
        except AutobrrrError as error:
            last = TuneFailed(message=error.message, hint=error.hint, exit_code=error.exit_code)
        except Exception as error:  # noqa: BLE001 - the session must outlive a fault of the tuner
            traceback.print_exc()
            last = TuneFailed(message=f"the tuner failed: {type(error).__name__}: {error}")
        tell(last)

    def _hear(self, event: Event) -> None:
        """A word of the tuner, for the session and for all who listen."""
        also = () if self.asked_by is None else (self.asked_by,)
        if isinstance(event, TuneProgress) and self._bench is not None:
            self._heard = event, self._bench.now_ns()
            self._session.narrate(f"paused: {event.text}" if self.paused else event.text)
        elif isinstance(event, Trial | Tuning):
            self._session.record(event)
        if isinstance(event, Tuning):
            self.tuned = event
            lost = self._session.findings.window.loss_lost
            # One that was stopped early has no figures of its own for what was on before it.
            self._watchman = watch_over(event, self._clock_ns(), loss_lost=lost) or self._watchman
        if isinstance(event, Tuning | TuneFailed):
            self._through()  # first: whoever hears of the end may ask for another tuning at once
        self.push(event, also)

    def _through(self) -> None:
        if self._bench is not None:
            self._bench.close()
        self._bench = self._heard = None
        self.asked = self.asked_by = None
        self._session.end_tuning()
        waiting, self._once_through = self._once_through, []
        for then in waiting:
            then()
