"""The Python API, as `import autobrrr` offers it: attach to a job, diagnose it, tune it.

In: a process number. Out: records, the same that the command line prints with `--json`. Every function may
raise `autobrrr.errors.AutobrrrError`, which says what is wrong and what to do. Times are seconds in
arguments, nanoseconds in records.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from autobrrr.client import diagnosing
from autobrrr.client.each_rank import (
    RanksOutcome,
    as_one,
    compare_ranks,
    diagnosed_ranks,
    entered,
    for_each,
    judge_first,
    launched_by,
    ready_to_tune,
)
from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.records import Diagnosis, Trial, TuneProgress, Tuning
from autobrrr.records.session_requests import OwnSession, TakeSnapshot, TuneRequest
from autobrrr.sidecar.process.session_options import SessionOptions, Sweep

if TYPE_CHECKING:
    from autobrrr.records.wire_answers import SessionEnding

T = TypeVar("T")
Say = Callable[[str], None]
TUNE_S = 60.0
FRAME = (
    '<iframe srcdoc="{page}" style="width:100%;height:{height}px;border:0" title="autobrrr session"></iframe>'
)
FRAME_HEIGHT = 560


def _quiet(text: str) -> None:
    """Drops narration."""


def attach(
    pid: int, *, readonly: bool = False, outside: bool = False, probe: bool = True, say: Say = _quiet
) -> JobSession:
    """Start the session of a running job, or join the one that it has.

    Args:
        pid: The training process, on this machine; or a launcher: then all of its ranks are attached to, and
            those that can't be are in the snapshots, with the reason.
        readonly: Change nothing in the job: no traced steps, no batch probe, no remedies.
        outside: Put no code into the job at all; its regime is then `unknown`.
        probe: Run the batch probe.
        say: Gets a line for whatever takes time.

    Raises:
        CannotAttach: the job can't be attached to safely; it was not changed.
        TargetGone: there is no such process.
    """
    options = SessionOptions(readonly=readonly, outside=outside, probing="on" if probe else "off")
    return JobSession(pid, _entered(pid, options, say))


def _entered(pid: int, options: SessionOptions, say: Say) -> RanksOutcome[Client]:
    """The sessions of a job: one, or one for each rank of a launcher.

    Raises:
        AutobrrrError: none could be entered.
    """
    # Owned: who forgets to detach leaves nothing behind.
    outcome = entered(launched_by(pid) or [pid], options, lambda rank: say, owned=True)
    outcome.refuse_none()
    return outcome


def diagnose(
    pid: int,
    *,
    for_s: float | None = None,
    readonly: bool = False,
    probe: bool = True,
    window: bool = False,
    sweep: Sweep | None = None,
    say: Say = _quiet,
) -> Diagnosis:
    """Attach, wait for a verdict, detach; a session that was there already stays.

    Args:
        pid: The training process, or a launcher: then all of its ranks on this machine are diagnosed, and the
            verdict is that of the slowest.
        for_s: Longest time in seconds; 9 s or 30 steps, whichever is later, and 20 s at most, where None.
        readonly: Change nothing in the job.
        probe: Run the batch probe.
        window: Profile a few steps too; training stalls for a moment.
        sweep: Replay a step at other sizes of its data too.
        say: Gets a line for whatever takes time.

    Raises:
        AutobrrrError: as `attach`, or the job ended before it could be diagnosed.
    """
    session = SessionOptions(readonly=readonly, probing="on" if probe else "off")
    options = diagnosing.DiagnosisOptions(session=session, for_s=for_s, window=window, sweep=sweep)
    launched = launched_by(pid)
    outcome = diagnosed_ranks(launched or [pid], options, lambda rank: say)
    return as_one(outcome, has_ranks=bool(launched))


def tune(
    pid: int,
    *,
    for_s: float = TUNE_S,
    horizon_s: float | None = None,
    max_loss: float | None = None,
    allow: str | None = None,
    only: Sequence[str] | None = None,
    say: Say = _quiet,
) -> Tuning:
    """Try the matching remedies on the running job and keep what is proven faster.

    Kept remedies stay applied, in a session that stays: `attach(pid).detach()` reverts them.

    Args:
        pid: The training process, or a launcher: then each remedy is tried on all of its ranks at once.
        for_s: Time budget in seconds.
        horizon_s: Time over which a gain must pay for its trial; 30 min where None.
        max_loss: Share of its work that the job may lose in any five minutes; 0.02 where None.
        allow: Widest exactness class: "bitwise", "rounding" (where None), "stream", "changes-training".
        only: Try only these remedies.
        say: Gets a line for each trial and whatever else takes time.

    Raises:
        AutobrrrError: as `attach`; a name or class does not exist; the job ended meanwhile.
    """
    from autobrrr.tuner.candidate_space import allows_unproven

    options = SessionOptions(unproven=allows_unproven(allow))
    session = JobSession(pid, _entered(pid, options, say), stays=True)
    try:
        return session.tune(
            for_s=for_s, horizon_s=horizon_s, max_loss=max_loss, allow=allow, only=only, say=say
        )
    finally:
        session.close()


class JobSession:
    """The session of one job; of a launcher, those of its ranks as one.

    As a context manager it detaches at the end if `attach` has started it; a session that was there already
    stays, and so does one that others use by then. The same holds where the program ends without it. In a
    notebook it shows itself as a page.

    Attributes:
        pid: The training process, or the launcher.
        started: `attach` has started it; nobody else had it, or one of its ranks, before.
        tuning: What the last `tune` of this object has found.
    """

    def __init__(self, pid: int, entered: RanksOutcome[Client], *, stays: bool = False) -> None:
        self.pid = pid
        self._stays = stays  # once it is tuned
        self.tuning: Tuning | None = None
        self._clients = entered.done
        self._missing = entered.missing
        self._has_ranks = pid not in {*entered.done, *entered.failed}
        self.started = all(client.started for client in self._clients.values())
        self._last: Diagnosis | None = None
        self._is_detached = False

    def snapshot(self) -> Diagnosis:
        """What is known now; `regime` is "unknown" until enough is measured."""
        return self._as_one(self._for_each(lambda client: client.ask(TakeSnapshot())))

    def diagnose(self, *, for_s: float | None = None, say: Say = _quiet) -> Diagnosis:
        """Wait for a sure verdict, at most `for_s` seconds (None: 9 s or 30 steps, 20 s at most).

        Ranks of a launcher are compared first; the verdict is that of the slowest.
        """
        if self._has_ranks:
            compare_ranks(self._clients, for_s, lambda pid: say)

        def judged(client: Client) -> Diagnosis:
            return diagnosing.await_verdict(client, diagnosing.Patience(for_s=for_s), say)

        return self._as_one(self._for_each(judged))

    def tune(
        self,
        *,
        for_s: float = TUNE_S,
        horizon_s: float | None = None,
        max_loss: float | None = None,
        allow: str | None = None,
        only: Sequence[str] | None = None,
        say: Say = _quiet,
    ) -> Tuning:
        """Try remedies and keep what is proven faster; the arguments are those of `autobrrr.tune`.

        Raises:
            AutobrrrError: a rank is not attached to, or the ranks can't switch together.
        """
        from autobrrr.report.pages.tuning_parts import progress_line, trial_line
        from autobrrr.tuner.candidate_space import allowed_classes, check_names

        allowed_classes(allow)
        check_names(only or ())
        lead = self._ready_to_tune(for_s, say)
        if self._stays:
            self._for_each(lambda each: each.ask(OwnSession(False)))

        def on_progress(progress: TuneProgress) -> None:
            say(progress_line(progress))

        def on_trial(trial: Trial) -> None:
            say(trial_line(trial))

        asked = TuneRequest(
            for_s=for_s,
            horizon_s=horizon_s,
            max_loss=max_loss,
            allow=allow,
            only=None if only is None else list(only),
        )
        self.tuning = lead.tune(asked, on_progress=on_progress, on_trial=on_trial)
        return self.tuning

    def _ready_to_tune(self, for_s: float, say: Say) -> Client:
        """The session that tunes, once it is judged; where there are ranks, it switches all of them."""
        if self._missing:
            raise AutobrrrError(
                f"a remedy goes on in all ranks or in none: {self._missing[0].why}", "attach anew, then tune"
            )
        if self._has_ranks:
            return ready_to_tune(self._clients, for_s, lambda pid: say)
        judge_first(self._clients[self.pid], for_s, say)
        return self._clients[self.pid]

    def _for_each(self, work: Callable[[Client], T]) -> RanksOutcome[T]:
        return for_each(self._clients, lambda pid: work(self._clients[pid]))

    def _as_one(self, outcome: RanksOutcome[Diagnosis]) -> Diagnosis:
        """What the ranks say, the slowest on top; those that have nothing to say are missing."""
        self._last = as_one(outcome, self._missing, has_ranks=self._has_ranks)
        return self._last

    def detach(self, *, keep: bool = False) -> SessionEnding:
        """End the session: revert its remedies (or `keep` them) and remove everything from the job.

        Returns:
            What could not be removed yet; empty where all is. Of ranks: of the first that left something.
        """
        self._is_detached = True
        outcome = self._for_each(lambda client: client.detach(keep=keep))
        outcome.refuse_none()
        endings = outcome.done.values()
        return next((ending for ending in endings if ending.left or ending.stays), next(iter(endings)))

    def close(self) -> None:
        """Let go of the session without waiting; one that `attach` has started ends by itself."""
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> JobSession:
        return self

    def __exit__(self, *problem: object) -> None:
        if not self._is_detached and self._ending() is None:
            with suppress(TargetGone):  # it has ended by itself: there is nothing to take off
                self._for_each(lambda client: client.leave()).refuse_none()
        self.close()

    def _ending(self) -> SessionEnding | None:
        """How it ended: None where a rank goes on."""
        endings = [client.ending for client in self._clients.values()]
        return None if None in endings else endings[0]

    def __repr__(self) -> str:
        found = self._last
        known = "" if found is None else f", regime {found.regime} ({found.confidence})"
        return f"<autobrrr session of process {self.pid}{known}>"

    def _repr_html_(self) -> str:
        """For notebooks: the page of `autobrrr report --html`, of this moment."""
        from autobrrr.report.html.page_template import page_html
        from autobrrr.report.pages.session_page import session_page
        from autobrrr.report.past_session import PastSession, SessionData

        try:
            found = self.snapshot()
        except AutobrrrError:  # over: what was seen last
            if self._last is None:
                return f"<p>{html.escape(repr(self))}</p>"
            found = self._last
        ending = self._ending()
        ended = "" if ending is None else ending.why
        data = SessionData(session="", ended=ended, snapshot=found, tuned=self.tuning)
        shown = PastSession(data=data, judged=found)
        return FRAME.format(page=html.escape(page_html(session_page(shown))), height=FRAME_HEIGHT)


Session = JobSession  # what users call it; the house has another `Session`, on the other side of the socket
