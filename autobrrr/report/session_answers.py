"""A past session at one glance: six questions, and an answer to each.

In: the session as read from its log. Out: answers; what was not measured is said to be so.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.quantities import duration, share
from autobrrr.records import Diagnosis, limited_by
from autobrrr.records.gain_words import CLASS_WORDS, gain_words
from autobrrr.report.text.next_step import proving, started_with, to_start_with, to_try
from autobrrr.report.text.session_text import PastSession

UNSAVED = "fast.toml"  # for a recipe that the session did not write


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question: the answer in a few words, and what is behind it."""

    question: str
    said: str
    more: str = ""


def answers(session: PastSession) -> list[Answer]:
    """The six, in the order in which they are asked."""
    named, age = session.judged or session.last, ""
    if named is not session.last and named.t_ns is not None and session.last.t_ns is not None:
        age = f"{duration(session.last.t_ns - named.t_ns)} before the end"
    return [
        Answer(question="What is slow?", said=limited_by(named), more=_more(named)),
        Answer(question="How sure?", said=_sure(named), more=age or _signals(named)),
        _to_do(session),
        Answer(
            question="How does it stand?",
            said=session.ending,
            more=f"on at the end: {', '.join(session.last.active)}"
            if session.last.active
            else "no remedy is on",
        ),
        _gained(session),
        _safe(session),
    ]


def _more(named: Diagnosis) -> str:
    """The user's costliest line, and what the regime adds."""
    return "; ".join(part for part in ([named.where[0].words] if named.where else []) + [named.adds] if part)


def _sure(named: Diagnosis) -> str:
    if named.limit == "unknown":
        return "no verdict"
    return f"{named.limit_confidence} confidence{', provisional' if named.provisional else ''}"


def _signals(named: Diagnosis) -> str:
    """Who carries the verdict."""
    names = [each.signal.replace("_", " ") for each in named.evidence if each.says == named.regime]
    if not names or named.regime == "unknown":
        return ""
    return f"{'1 signal says' if len(names) == 1 else f'{len(names)} signals say'} so: {', '.join(names)}"


def _to_do(session: PastSession) -> Answer:
    tuned, job = session.tuned, session.last.job
    command = ["python", *job.argv] if job is not None and job.argv else []
    if tuned is not None and tuned.kept:
        more = started_with(tuned.recipe or UNSAVED, command)
        if not tuned.recipe:
            more += f"   ({UNSAVED} stands at the end of this page)"
        return Answer(question="What to do?", said="start with what was kept", more=more)
    found = session.judged or session.last
    tried, allow = to_try(found)
    at_start = to_start_with(found)
    if tried and tuned is None:
        said, more = f"try {tried[0].remedy}", f"autobrrr tune PID{allow}"
    elif at_start:
        said, more = f"try {at_start[0].remedy}", proving(at_start[0])
    else:
        said, more = "measure again, on a running job", "autobrrr diagnose PID"
    return Answer(question="What to do?", said=said, more=more)


def _gained(session: PastSession) -> Answer:
    question, tuned = "What was gained?", session.tuned
    if tuned is None:
        tried = (
            f"{len(session.trials)} trials, no end of the tuning" if session.trials else "nothing was tried"
        )
        return Answer(question=question, said="not measured", more=tried)
    if not tuned.kept:
        return Answer(question=question, said="no remedy was proven faster", more=tuned.note or "")
    if tuned.interval is None or tuned.no_claim is not None:
        return Answer(question=question, said="nothing is claimed", more=tuned.note or "no confirmation run")
    behind = [f"saves {60 * (1 - 1 / tuned.speedup):.1f} min of each hour"] if tuned.speedup > 1 else []
    if tuned.objective == "step_ns":
        behind.insert(0, f"{duration(tuned.baseline)} → {duration(tuned.best)} a step")
    return Answer(
        question=question, said=f"{gain_words(tuned.speedup, tuned.interval)} proven", more=", ".join(behind)
    )


def _safe(session: PastSession) -> Answer:
    tuned, cost = session.tuned, session.last.cost
    said = "no tuning kept what is on" if session.last.active else "no remedy was kept"
    if tuned is not None and tuned.kept:
        said = CLASS_WORDS.get(tuned.class_, tuned.class_)
    own = "" if cost.share is None else f"watching took {share(cost.share)} of each step"
    return Answer(question="Is it safe?", said=said, more=own)
