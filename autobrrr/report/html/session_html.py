"""A past session as one page: verdict, gain, its steps on a time axis, every trial with its interval.

In: the session as read from its log. Out: HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

import msgspec

from autobrrr import recipe
from autobrrr.diagnosis.glossary import EXPLANATIONS
from autobrrr.quantities import duration, share
from autobrrr.records import Diagnosis, Phases, Trial, Tuning, verdict_head
from autobrrr.records.gain_words import factor_words, gain_words
from autobrrr.report.html.interval_chart import Gain, IntervalChart, interval_chart
from autobrrr.report.html.page_tables import Cell, PageTable, figure, words
from autobrrr.report.html.page_template import inline_json, render
from autobrrr.report.session_answers import UNSAVED, answers
from autobrrr.report.session_data import session_data
from autobrrr.report.session_timeline import SlowMoment, TimelineBand
from autobrrr.report.step_shares import parts
from autobrrr.report.text.next_step import started_with
from autobrrr.report.text.session_text import PastSession
from autobrrr.report.text.tuning_text import label, verdict
from autobrrr.report.text.verdict_text import carrying

STEP_CHART = ("uplot/uPlot.iife.min.js", "step_chart.js")
STEP_STYLE = ("uplot/uPlot.min.css",)
MOST_SLOW = 15


def page(session: PastSession) -> str:
    """The page."""
    found, data = session.last, session_data(session)
    drawn = len(session.timeline.seconds) > 1
    tuned = session.tuned
    trials = tuned.trials if tuned is not None else session.trials
    return render(
        "session",
        data=data,
        scripts=STEP_CHART if drawn else (),
        styles=STEP_STYLE if drawn else (),
        data_name=f"{data.session or 'session'}.json",
        kind="session",
        title=f"{found.job.script if found.job is not None else 'job'} (pid {found.pid})",
        about=[each for each in _about(session) if each],
        unread=session.unread,
        found=found,
        answers=answers(session),
        head=verdict_head(found),
        spent=parts(found.shares, 0.005) or [],
        phases=_phase_parts(found.phases_ns),
        glossary=EXPLANATIONS.get(found.regime),
        figures=list(_figures(found)),
        signals=_signals(found),
        tuned=tuned,
        tuned_words=None if tuned is None else verdict(tuned),
        gains=_gains(trials, tuned),
        trials=_trials(trials) if trials else None,
        advice=_advice(found) if found.advice else None,
        timeline=session.timeline,
        step_data=inline_json(msgspec.json.encode(_step_data(session)).decode()) if drawn else None,
        slow=_slow(session),
        own=list(_own_cost(found)),
        commands=list(_commands(session)),
    )


def _about(session: PastSession) -> Iterator[str]:
    found, began_s = session.last, session.timeline.began_unix_s
    if found.job is not None:
        yield f"torch {found.job.torch}"
        yield f"Python {found.job.python}"
        if found.job.rank is not None:
            yield f"rank {found.job.rank} of {found.job.world_size}"
    if began_s is not None and 0 < began_s < 1e11:
        yield f"{datetime.fromtimestamp(began_s, timezone.utc):%Y-%m-%d %H:%M} UTC"
    yield f"session of {duration(found.t_ns or 0)}, {found.steps or 0} steps"
    yield session.ending


def _figures(found: Diagnosis) -> Iterator[tuple[str, str]]:
    """Figure, and what it is."""
    steps = found.step_ns
    if steps.median is not None:
        yield duration(steps.median), f"step at the end, median of {steps.count}"
        yield duration(steps.p99), "p99"


def _phase_parts(phases: Phases) -> list[tuple[str, float]]:
    measured = [(name, value or 0) for name, value in msgspec.structs.asdict(phases).items() if value]
    whole = sum(value for _, value in measured)
    return [(name.replace("_", " "), value / whole) for name, value in measured] if whole > 0 else []


def _signals(found: Diagnosis) -> PageTable:
    carry = [each.signal for each in carrying(found)]
    ranked = sorted(found.evidence, key=lambda each: (each.signal not in carry, each.value is None))
    return PageTable(
        caption="What each signal says; those that carry the verdict stand first.",
        heads=("signal", "says", "what it saw"),
        rows=[
            [
                *words(each.signal.replace("_", " "), each.says or ""),
                Cell(text=each.note, tone="muted" if each.value is None else ""),
            ]
            for each in ranked
        ],
    )


def _gains(trials: Sequence[Trial], tuned: Tuning | None) -> IntervalChart | None:
    gains = [
        Gain(
            name=label(each),
            achieved=each.achieved,
            interval=each.interval,
            predicted=each.predicted,
            outcome=each.outcome_word,
            is_kept=each.outcome == "kept",
        )
        for each in trials
        if each.achieved is not None or each.predicted is not None
    ]
    if tuned is not None and tuned.interval is not None:
        total = Gain(name="all together", achieved=tuned.speedup, interval=tuned.interval, is_total=True)
        gains.append(total)
    return interval_chart(gains) if gains else None


def _trials(trials: Sequence[Trial]) -> PageTable:
    return PageTable(
        caption="Every remedy that was tried, in its order.",
        heads=(
            "remedy",
            "outcome",
            "#measured",
            "#predicted",
            "#A/B pairs",
            "#steps",
            "#took",
            "memory",
            "class",
            "why",
        ),
        rows=[
            [
                Cell(text=label(each)),
                Cell(text=each.outcome_word),
                figure(gain_words(each.achieved, each.interval), each.achieved),
                figure(factor_words(each.predicted), each.predicted),
                figure(str(each.blocks // 2), each.blocks),
                figure(str(each.steps), each.steps),
                figure(duration(each.duration_ns), each.duration_ns),
                *words(each.peaks.words, each.class_, each.why),
            ]
            for each in trials
        ],
    )


def _advice(found: Diagnosis) -> PageTable:
    return PageTable(
        caption="What the diagnosis advises, and what it predicts.",
        heads=("remedy", "#predicted", "when it takes effect", "class", "why"),
        rows=[
            [
                Cell(text=one.remedy),
                figure(factor_words(one.expected), one.expected),
                *words(one.reach.replace("_", " "), one.class_, one.why),
            ]
            for one in found.advice
        ],
    )


def _slow(session: PastSession) -> PageTable | None:
    slow = sorted(session.timeline.slow, key=lambda each: -each.ns)[:MOST_SLOW]
    if not slow:
        return None
    return PageTable(
        caption=f"{len(session.timeline.slow)} steps took at least three times the usual; "
        f"the {len(slow)} longest:",
        heads=("#at", "#step", "#usual", "#times", "what autobrrr knows of it"),
        rows=[
            [
                figure(f"{each.at_s:.1f} s", each.at_s),
                figure(duration(each.ns), each.ns),
                figure(duration(each.usual_ns), each.usual_ns),
                figure(f"{each.ns / max(each.usual_ns, 1):.1f}x", each.ns / max(each.usual_ns, 1)),
                Cell(text=_why_slow(each, session.timeline.bands), tone="" if each.why else "muted"),
            ]
            for each in slow
        ],
    )


def _why_slow(moment: SlowMoment, bands: Sequence[TimelineBand]) -> str:
    """What is known of a slow step; else which remedy was being tried for most of it."""
    if moment.why:
        return moment.why
    took_s = moment.ns / 1e9
    for band in bands:
        inside_s = min(moment.at_s, band.to_s) - max(moment.at_s - took_s, band.from_s)
        if band.kind == "trial" and inside_s > took_s / 2:
            return f"while {band.text} was tried"
    return "not known"


def _own_cost(found: Diagnosis) -> Iterator[str]:
    cost = found.cost
    if cost.words:
        yield f"Cost to your job: {cost.words}."
    if cost.session_share is not None:
        yield f"That is {share(cost.session_share)} of the session."


def _commands(session: PastSession) -> Iterator[tuple[str, str]]:
    """What it is for, and the command."""
    found, tuned = session.last, session.tuned
    words = ["python", *found.job.argv] if found.job is not None and found.job.argv else []
    if tuned is not None and tuned.kept:
        if not tuned.recipe:
            yield f"Save what was kept as {UNSAVED}:", _recipe_text(tuned)
        yield "Start the job with what was kept:", started_with(tuned.recipe or UNSAVED, words)
    yield "Measure again, on a running job:", "autobrrr tune PID"
    yield "Read this session again:", f"autobrrr report {session.path.name.partition('.')[0] or 'last'}"


def _recipe_text(tuned: Tuning) -> str:
    """The recipe of what was kept; on how many cores is not told, as a log may come from another machine."""
    made = recipe.from_tuning(tuned)
    torch = None if tuned.job is None or tuned.job.torch is None else f"torch {tuned.job.torch}"
    evidence = None if made.evidence is None else replace(made.evidence, measured_on=torch)
    return recipe.dump(replace(made, evidence=evidence)).strip()


def _step_data(session: PastSession) -> dict[str, object]:
    """What the chart of steps draws."""
    timeline, tuned = session.timeline, session.tuned
    by_steps = tuned is not None and tuned.objective == "step_ns"
    return {
        "at": [each.at_s for each in timeline.seconds],
        "median": [each.median_ns / 1e6 for each in timeline.seconds],
        "longest": [each.longest_ns / 1e6 for each in timeline.seconds],
        "bands": timeline.bands,
        "marks": timeline.marks,
        "before_ms": tuned.baseline / 1e6 if tuned is not None and tuned.baseline and by_steps else None,
    }
