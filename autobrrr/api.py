"""The Python API, as `import autobrrr` offers it: attach to a job, diagnose it, tune it.

In: a process number. Out: records, the same that the command line prints with `--json`. Every function may
raise `autobrrr.errors.AutobrrrError`, which says what is wrong and what to do. Times are seconds in
arguments, nanoseconds in records.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr.client import diagnosing
from autobrrr.client.all_ranks import together
from autobrrr.client.each_rank import diagnosed_rank, diagnosed_ranks, launched_by
from autobrrr.client.joined_session import tell_about_joined
from autobrrr.client.session_client import Client, join_or_start
from autobrrr.records import Diagnosis, Trial, TuneProgress, Tuning
from autobrrr.sidecar.process.session_options import SessionOptions, Sweep

if TYPE_CHECKING:
    from autobrrr.records.wire_answers import SessionEnding

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
        pid: The training process, on this machine.
        readonly: Change nothing in the job: no traced steps, no batch probe, no remedies.
        outside: Put no code into the job at all; its regime is then `unknown`.
        probe: Run the batch probe.
        say: Gets a line for whatever takes time.

    Raises:
        CannotAttach: the job can't be attached to safely; it was not changed.
        TargetGone: there is no such process.
    """
    options = SessionOptions(readonly=readonly, outside=outside, probing="on" if probe else "off")
    client = join_or_start(
        pid, options, owned=True, on_wait=say
    )  # who forgets to detach leaves nothing behind
    try:
        if not client.started:
            tell_about_joined(client, options, say)
    except BaseException:
        client.close()
        raise
    return JobSession(pid, client)


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
        for_s: Longest time in seconds; 15 s or 50 steps, whichever is later, where None.
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
    if not launched:
        return diagnosed_rank(pid, options, say)
    outcome = diagnosed_ranks(launched, options, lambda rank: say)
    outcome.refuse_none()
    return together(list(outcome.done.values()), outcome.missing)


def tune(
    pid: int,
    *,
    for_s: float = TUNE_S,
    horizon_s: float | None = None,
    allow: str | None = None,
    only: Sequence[str] | None = None,
    say: Say = _quiet,
) -> Tuning:
    """Try the matching remedies on the running job and keep what is proven faster.

    Kept remedies stay applied, in a session that stays: `attach(pid).detach()` reverts them.

    Args:
        pid: The training process.
        for_s: Time budget in seconds.
        horizon_s: Time over which a gain must pay for its trial; 30 min where None.
        allow: Widest exactness class: "bitwise", "rounding" (where None), "stream", "changes-training".
        only: Try only these remedies.
        say: Gets a line for each trial and whatever else takes time.

    Raises:
        AutobrrrError: as `attach`; a name or class does not exist; the job ended meanwhile.
    """
    client = join_or_start(pid, SessionOptions(), owned=True, on_wait=say)
    try:
        if not client.started:
            tell_about_joined(client, SessionOptions(), say)
        return JobSession(pid, client, stays=True).tune(
            for_s=for_s, horizon_s=horizon_s, allow=allow, only=only, say=say
        )
    finally:
        client.close()


class JobSession:
    """The session of one job.

    As a context manager it detaches at the end if `attach` has started it; a session that was there already
    stays. The same holds where the program ends without it. In a notebook it shows itself as a page.

    Attributes:
        pid: The training process.
        started: `attach` has started it; nobody else had it before.
        tuning: What the last `tune` of this object has found.
    """

    def __init__(self, pid: int, client: Client, *, stays: bool = False) -> None:
        self.pid = pid
        self._stays = stays  # once it is tuned
        self.started = client.started
        self.tuning: Tuning | None = None
        self._client = client
        self._last: Diagnosis | None = None

    def snapshot(self) -> Diagnosis:
        """What is known now; `regime` is "unknown" until enough is measured."""
        self._last = self._client.snapshot()
        return self._last

    def diagnose(self, *, for_s: float | None = None, say: Say = _quiet) -> Diagnosis:
        """Wait for a verdict of high confidence, at most `for_s` seconds (where None: 15 s or 50 steps)."""
        self._last = diagnosing.await_verdict(self._client, diagnosing.Patience(for_s=for_s), say)
        return self._last

    def tune(
        self,
        *,
        for_s: float = TUNE_S,
        horizon_s: float | None = None,
        allow: str | None = None,
        only: Sequence[str] | None = None,
        say: Say = _quiet,
    ) -> Tuning:
        """Try remedies and keep what is proven faster; the arguments are those of `autobrrr.tune`."""
        from autobrrr.report.text.tuning_text import progress_line, trial_line
        from autobrrr.tuner.candidate_space import allowed_classes, check_names

        allowed_classes(allow)
        check_names(only or ())
        if self.started:
            diagnosing.await_verdict(self._client, diagnosing.before_tuning(for_s), say)

        if self._stays:
            self._client.own(False)

        def on_progress(progress: TuneProgress) -> None:
            say(progress_line(progress))

        def on_trial(trial: Trial) -> None:
            say(trial_line(trial))

        self.tuning = self._client.tune(
            for_s=for_s,
            horizon_s=horizon_s,
            allow=allow,
            only=only,
            on_progress=on_progress,
            on_trial=on_trial,
        )
        return self.tuning

    def detach(self, *, keep: bool = False) -> SessionEnding:
        """End the session: revert its remedies (or `keep` them) and remove everything from the job.

        Returns:
            What could not be removed yet; empty where all is.
        """
        return self._client.detach(keep=keep)

    def close(self) -> None:
        """Let go of the session without waiting; one that `attach` has started ends by itself."""
        self._client.close()

    def __enter__(self) -> JobSession:
        return self

    def __exit__(self, *problem: object) -> None:
        if self.started and self._client.ending is None:
            self.detach()
        self.close()

    def __repr__(self) -> str:
        found = self._last
        known = "" if found is None else f", regime {found.regime} ({found.confidence})"
        return f"<autobrrr session of process {self.pid}{known}>"

    def _repr_html_(self) -> str:
        """For notebooks: the page of `autobrrr report --html`, of this moment."""
        from autobrrr.errors import AutobrrrError
        from autobrrr.report.html.session_html import page
        from autobrrr.report.text.session_text import PastSession

        try:
            found = self.snapshot()
        except AutobrrrError:  # over: what was seen last
            if self._last is None:
                return f"<p>{html.escape(repr(self))}</p>"
            found = self._last
        ended = "" if self._client.ending is None else self._client.ending.why
        shown = PastSession(
            path=Path(), last=found, judged=found, tuned=self.tuning, trials=[], ended=ended, unread=None
        )
        return FRAME.format(page=html.escape(page(shown)), height=FRAME_HEIGHT)


Session = JobSession  # what users call it; the house has another `Session`, on the other side of the socket
