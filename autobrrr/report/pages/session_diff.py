"""Two past sessions compared: what was judged, how long a step took and where, what was kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from autobrrr.records import Diagnosis, Phases, Shares, Trial
from autobrrr.records.gain_words import gain_words
from autobrrr.report.pages.side_by_side import (
    NO_AB_TEST,
    ComparedFigure,
    ComparedSessions,
    ComparedWord,
    SideBySide,
    Unit,
    compared,
    judged,
    said,
)
from autobrrr.report.past_session import SessionData
from autobrrr.report.text.trial_words import trial_label

MANY = 8  # trials that are listed


def compare_sessions(before: SessionData, after: SessionData) -> ComparedSessions:
    """Both, and how they compare."""
    comparison = SideBySide(
        kind="sessions",
        before=_title(before),
        after=_title(after),
        words=list(_words((before, after))),
        figures=list(_figures((before.snapshot, after.snapshot))),
        caveats=[*_caveats((before, after)), NO_AB_TEST],
    )
    return ComparedSessions(sessions=[before, after], comparison=comparison)


def _title(session: SessionData) -> str:
    job = session.snapshot.job
    return f"{session.session}: {job.script if job is not None else 'job'} (pid {session.snapshot.pid})"


def _words(both: Sequence[SessionData]) -> Iterator[ComparedWord]:
    yield from judged([each.snapshot for each in both])
    yield said("kept", [_kept(each) for each in both])
    yield said("ended", [each.ending for each in both])
    trials = [
        {trial_label(each): gain_words(each.achieved, each.interval) for each in _tried(session)}
        for session in both
    ]
    for remedy in list(dict.fromkeys([*trials[0], *trials[1]]))[:MANY]:
        yield said(remedy, [each.get(remedy, "not tried") for each in trials])


def _tried(session: SessionData) -> list[Trial]:
    return session.tuned.trials if session.tuned is not None else session.trials


def _kept(session: SessionData) -> str:
    tuned = session.tuned
    if tuned is None:
        return "not tuned"
    if not tuned.kept:
        return "nothing"
    gain = "no speed-up claimed" if tuned.interval is None else gain_words(tuned.speedup, tuned.interval)
    return f"{', '.join(tuned.kept)}: {gain}"


def _figures(both: Sequence[Diagnosis]) -> Iterator[ComparedFigure]:
    for name in ("median", "mean", "p99"):
        yield compared("step", "ns", name, [getattr(each.step_ns, name) for each in both], True)
    yield from _parts("phases", "ns", [each.phases_ns for each in both])
    yield from _parts("shares of the step", "share", [each.shares for each in both])
    yield compared("autobrrr", "share", "own cost", [each.cost.session_share for each in both], True)


def _parts(group: str, unit: Unit, both: Sequence[Phases | Shares]) -> Iterator[ComparedFigure]:
    """The fields of two records that either has measured."""
    ours, theirs = map(msgspec.structs.asdict, both)
    for name, value in ours.items():
        if value is not None or theirs[name] is not None:
            less = True if unit == "ns" else None
            yield compared(group, unit, name.replace("_", " "), (value, theirs[name]), less)


def _caveats(both: Sequence[SessionData]) -> Iterator[str]:
    """What differs beside the job's speed."""
    jobs = [each.snapshot.job for each in both]
    if None not in jobs:
        for name in ("script", "argv", "torch", "python", "threads", "device", "world_size"):
            one, other = (getattr(job, name) for job in jobs)
            if one != other:
                yield f"The jobs differ in {name.replace('_', ' ')}: {one}, then {other}."
    for session in both:
        takers = session.timeline.contention
        if takers:
            yield f"In {session.session} others took CPU time from the job: {takers[0].command} most."
        if session.snapshot.provisional:
            yield f"The verdict of {session.session} is provisional: the machine was too busy to be sure."
