"""Two past sessions compared: what was judged, how long a step took and where, what was kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from autobrrr.records import Diagnosis, Phases, Shares, Trial
from autobrrr.records.gain_words import gain_words
from autobrrr.report.pages.side_by_side import (
    NO_AB_TEST,
    ComparedFigure,
    ComparedSessions,
    ComparedWord,
    SideBySide,
    judged,
)
from autobrrr.report.past_session import NO_END, SessionData
from autobrrr.report.text.trial_words import trial_label

MANY = 8  # trials that are listed


def compare_sessions(before: SessionData, after: SessionData) -> ComparedSessions:
    """Both, and how they compare."""
    comparison = SideBySide(
        kind="sessions",
        before=_title(before),
        after=_title(after),
        words=list(_words(before, after)),
        figures=list(_figures(before.snapshot, after.snapshot)),
        caveats=[*_caveats(before, after), NO_AB_TEST],
    )
    return ComparedSessions(sessions=[before, after], comparison=comparison)


def _title(session: SessionData) -> str:
    job = session.snapshot.job
    return f"{session.session}: {job.script if job is not None else 'job'} (pid {session.snapshot.pid})"


def _words(before: SessionData, after: SessionData) -> Iterator[ComparedWord]:
    yield from judged(before.snapshot, after.snapshot)
    yield ComparedWord(name="kept", before=_kept(before), after=_kept(after))
    ends = [each.ended or NO_END for each in (before, after)]
    yield ComparedWord(name="ended", before=ends[0], after=ends[1])
    trials = [
        {trial_label(each): gain_words(each.achieved, each.interval) for each in _tried(session)}
        for session in (before, after)
    ]
    for remedy in list(dict.fromkeys([*trials[0], *trials[1]]))[:MANY]:
        said = [each.get(remedy, "not tried") for each in trials]
        yield ComparedWord(name=remedy, before=said[0], after=said[1])


def _tried(session: SessionData) -> list[Trial]:
    return session.tuned.trials if session.tuned is not None else session.trials


def _kept(session: SessionData) -> str:
    tuned = session.tuned
    if tuned is None:
        return "not tuned"
    if not tuned.kept:
        return "nothing"
    said = "no speed-up claimed" if tuned.interval is None else gain_words(tuned.speedup, tuned.interval)
    return f"{', '.join(tuned.kept)}: {said}"


def _figures(before: Diagnosis, after: Diagnosis) -> Iterator[ComparedFigure]:
    for name in ("median", "mean", "p99"):
        yield ComparedFigure(
            group="step",
            name=name,
            unit="ns",
            before=getattr(before.step_ns, name),
            after=getattr(after.step_ns, name),
            less_is_better=True,
        )
    yield from _parts("phases", "ns", before.phases_ns, after.phases_ns)
    yield from _parts("shares of the step", "share", before.shares, after.shares)
    yield ComparedFigure(
        group="autobrrr",
        name="own cost",
        unit="share",
        before=before.cost.session_share,
        after=after.cost.session_share,
        less_is_better=True,
    )


def _parts(
    group: str, unit: Literal["ns", "share"], before: Phases | Shares, after: Phases | Shares
) -> Iterator[ComparedFigure]:
    """The fields of two records that either has measured."""
    ours, theirs = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    for name, value in ours.items():
        if value is not None or theirs[name] is not None:
            yield ComparedFigure(
                group=group,
                name=name.replace("_", " "),
                unit=unit,
                before=value,
                after=theirs[name],
                less_is_better=True if unit == "ns" else None,
            )


def _caveats(before: SessionData, after: SessionData) -> Iterator[str]:
    """What differs beside the job's speed."""
    jobs = [each.snapshot.job for each in (before, after)]
    if jobs[0] is not None and jobs[1] is not None:
        for name in ("script", "argv", "torch", "python", "threads", "device", "world_size"):
            one, other = getattr(jobs[0], name), getattr(jobs[1], name)
            if one != other:
                yield f"The jobs differ in {name.replace('_', ' ')}: {one}, then {other}."
    for session in (before, after):
        takers = session.timeline.contention
        if takers:
            yield f"In {session.session} others took CPU time from the job: {takers[0].command} most."
        if session.snapshot.provisional:
            yield f"The verdict of {session.session} is provisional: the machine was too busy to be sure."
