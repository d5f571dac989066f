"""A past session as a page: six questions answered, the verdict, its steps over time, every trial.

In: the session as read from its log. Out: a page of the model.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

import msgspec

from autobrrr import recipe
from autobrrr.quantities import duration, share
from autobrrr.records import NAMES_NOBODY, Diagnosis, Tuning, how_sure, limited_by
from autobrrr.records.busy_words import busy_words
from autobrrr.records.gain_words import CLASS_WORDS, gain_words
from autobrrr.report import page_model as pm
from autobrrr.report.next_step import allowing, first_to_do, proving, started, started_with
from autobrrr.report.pages.diagnosis_parts import diagnosis_sections, glossary, ledger_table, signals_words
from autobrrr.report.pages.tuning_parts import tuning_section
from autobrrr.report.past_session import PastSession, SessionData, SlowMoment, TimelineBand

UNSAVED = "fast.toml"  # for a recipe that the session did not write
MOST_SLOW, MOST_TEXT = 15, 5  # slow steps on a page, in a text


def session_page(session: PastSession) -> pm.ReportPage:
    """The page."""
    data, found, named = session.data, session.data.snapshot, session.named
    verdict, *grounds = diagnosis_sections(named)
    trials = data.trials if data.tuned is None else data.tuned.trials
    own = [pm.Line(text=f"Cost to your job: {found.cost.words}.")] if found.cost.words else []
    if found.cost.session_share is not None:
        own.append(pm.Line(text=f"That is {share(found.cost.session_share)} of the session."))
    unread = pm.Line(text=data.unread, tone="worse") if data.unread else None
    first = pm.section("", unread, pm.LineGroup(lines=answers(session), shape="glance"))
    tried = tuning_section(trials, data.tuned)
    return pm.ReportPage(
        kind="session",
        title=f"{found.job.script if found.job is not None else 'job'} (pid {found.pid})",
        about=list(_about(data)),
        sections=pm.filled(
            first,
            _verdict(named, verdict),
            _steps(data),
            tried,
            *grounds,
            pm.section("Own cost", *(own or [pm.Line(text="Not measured.", tone="muted")]), beside=True),
            _others(data),
            pm.section("Slow steps", _slow(data)),
            pm.section("Do it again", *_commands(data)),
        ),
        data=data,
        file=f"{data.session or 'session'}.json",
        brief=pm.filled(first, pm.section("", ledger_table(named)), tried),
    )


def _about(data: SessionData) -> Iterator[str]:
    found, began_s = data.snapshot, data.timeline.began_unix_s
    if found.job is not None:
        yield f"torch {found.job.torch}"
        yield f"Python {found.job.python}"
        if found.job.rank is not None:
            yield f"rank {found.job.rank} of {found.job.world_size}"
    if began_s is not None and 0 < began_s < 1e11:
        yield f"{datetime.fromtimestamp(began_s, timezone.utc):%Y-%m-%d %H:%M} UTC"
    yield f"session of {duration(found.t_ns or 0)}, {found.steps or 0} steps"
    yield data.ending


def answers(session: PastSession) -> list[pm.Line]:
    """Six questions, in the order in which they are asked: the answer, and what is behind it."""
    data, last = session.data, session.data.snapshot
    named, age = session.named, ""
    if named is not last and named.t_ns is not None and last.t_ns is not None:
        age = f"{duration(last.t_ns - named.t_ns)} {'ago' if data.alive else 'before the end'}"
    provisional = ", provisional" if named.provisional and named.limit not in NAMES_NOBODY else ""
    on = last.active
    safe = "no tuning kept what is on" if on else "no remedy was kept"
    if data.tuned is not None and data.tuned.kept:
        safe = CLASS_WORDS.get(data.tuned.class_, data.tuned.class_)
    where = "; ".join(filter(None, [*(one.words for one in named.where[:1]), named.adds]))
    still_on = f"on{'' if data.alive else ' at the end'}: {', '.join(on)}" if on else "no remedy is on"
    told = [
        ("What is slow?", limited_by(named), where),
        ("How sure?", how_sure(named) + provisional, age or signals_words(named)),
        ("What to do?", *_to_do(session)),
        ("How does it stand?", data.ending, still_on),
        ("What was gained?", *_gained(data)),
        ("Is it safe?", safe, f"cost: {last.cost.words}" if last.cost.words else ""),
    ]
    return [pm.Line(name=question, text=said, note=more) for question, said, more in told]


def _to_do(session: PastSession) -> tuple[str, str]:
    tuned, last = session.data.tuned, session.data.snapshot
    if tuned is not None and tuned.proven:
        more = started_with(tuned.recipe or UNSAVED, started(last))
        held = "" if tuned.recipe else f"   ({UNSAVED} stands at the end of the whole report)"
        return "start with what was kept", more + held
    if tuned is not None and tuned.kept:
        return "confirm what was kept", _tuning(session.data, f" --recipe {UNSAVED}")
    best = first_to_do(session.named, live=tuned is None)
    if best is None:
        again = f"autobrrr run -- {shlex.join(started(last))}, then: autobrrr diagnose"
        return "measure again", f"autobrrr diagnose {last.pid}" if session.data.runs else again
    if best.reach == "edit":
        return f"edit the script: {best.remedy}", best.why
    runs = best.reach == "live" and session.data.runs
    how = _tuning(session.data, allowing(best.class_)) if runs else proving(best, started(last))
    return f"try {best.remedy}", how


def _tuning(data: SessionData, flags: str = "") -> str:
    """The command that tunes the job, or its next run where this one has ended."""
    found = data.snapshot
    return f"autobrrr tune{flags} {found.pid if data.runs else f'-- {shlex.join(started(found))}'}"


def _gained(data: SessionData) -> tuple[str, str]:
    tuned = data.tuned
    if tuned is None:
        number = len(data.trials)
        return "not measured", f"{number} trials, no end of the tuning" if number else "nothing was tried"
    if not tuned.kept:
        return "no remedy was proven faster", tuned.note or ""
    if not tuned.proven:
        return "nothing is claimed", tuned.note or "no confirmation run"
    behind = [f"{duration(tuned.baseline)} → {duration(tuned.best)} a step"] * (tuned.objective == "step_ns")
    behind += [f"saves {60 * (1 - 1 / tuned.speedup):.1f} min of each hour"] * (tuned.speedup > 1)
    return f"{gain_words(tuned.speedup, tuned.interval)} proven", ", ".join(behind)


def _verdict(found: Diagnosis, verdict: pm.Section) -> pm.Section:
    """With what the regime means, folded."""
    word, asked = glossary().get(found.regime), f"What does “{found.regime}” mean?"
    told = [] if word is None else [pm.section(asked, pm.Line(text=word.meaning), fold="closed")]
    return replace(verdict, parts=[*verdict.parts[:2], *told, *verdict.parts[2:]])


def _others(data: SessionData) -> pm.Section:
    seen = [
        f"{each.command} (pid {each.pid}): at most {share(each.share)} of a core"
        for each in data.timeline.contention
    ]
    busy, quiet = busy_words(data.snapshot), "No other program kept the job from a CPU."
    return pm.section(
        "Others on the machine",
        pm.Line(text=f"At the end the machine was {busy}.", tone="worse") if busy else None,
        pm.Line(text="These programs took CPU time while the job waited for a CPU:") if seen else None,
        pm.listed(seen) if seen else None,
        None if busy or seen else pm.Line(text=quiet, tone="muted"),
        beside=True,
    )


def _steps(data: SessionData) -> pm.Section:
    timeline = data.timeline
    if len(timeline.seconds) < 2:
        return pm.section("Steps over time")
    told = [
        f"{band.from_s:.1f}–{band.to_s:.1f} s: {band.text} {'was on' if band.kind == 'on' else 'was tried'}"
        + (f": {band.outcome}" if band.outcome else "")
        for band in timeline.bands
    ] + [f"{mark.at_s:.1f} s: {mark.text}" for mark in timeline.marks]
    says = f"Median and longest step of each second over {timeline.length_s:.0f} s; "
    says += (
        "where a remedy was tried, one level without it and one with it; all of it stands in the list below"
    )
    return pm.section(
        "Steps over time",
        pm.Drawing(shape="steps", name="step", says=says, data=_step_data(data)),
        pm.section("The same as a list", pm.listed(told), fold="closed") if told else None,
    )


def _step_data(data: SessionData) -> str:
    """What the chart of steps draws, as JSON."""
    timeline, tuned = data.timeline, data.tuned
    before = tuned.baseline if tuned is not None and tuned.objective == "step_ns" else None
    drawn = {
        "at": [each.at_s for each in timeline.seconds],
        "median": [each.median_ns / 1e6 for each in timeline.seconds],
        "longest": [each.longest_ns / 1e6 for each in timeline.seconds],
        "bands": timeline.bands,
        "marks": timeline.marks,
        "before_ms": before / 1e6 if before else None,
    }
    return msgspec.json.encode(drawn).decode()


def _slow(data: SessionData) -> pm.PageTable:
    slow = sorted(data.timeline.slow, key=lambda each: -each.ns)[:MOST_SLOW]
    rows = []
    for each in slow:
        times, why = each.ns / max(each.usual_ns, 1), _why_slow(each, data.timeline.bands)
        at, much = pm.figure(f"{each.at_s:.1f} s", each.at_s), pm.figure(f"{times:.1f}x", times)
        rows.append((at, each.ns, each.usual_ns, much, pm.Cell(text=why, tone="" if each.why else "muted")))
    counted = f"{len(data.timeline.slow)} steps took at least three times the usual; the longest:"
    heads = ("#at", "step:ns", "usual:ns", "#times", "what autobrrr knows of it")
    return pm.table(counted, heads, rows, most=MOST_TEXT)


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


def _commands(data: SessionData) -> list[pm.Line]:
    """What it is for, and the command."""
    tuned, told = data.tuned, {}
    if tuned is not None and tuned.proven:
        if not tuned.recipe:
            told[f"Save what was kept as {UNSAVED}:"] = _recipe_text(tuned)
        command = started_with(tuned.recipe or UNSAVED, started(data.snapshot))
        told["Start the job with what was kept:"] = command
    told["Try remedies again:" if data.runs else "Try remedies in the next run:"] = _tuning(data)
    told["Read this session again:"] = f"autobrrr report {data.session or 'last'}"
    return [pm.Line(name=why, text=said, tone="code") for why, said in told.items()]


def _recipe_text(tuned: Tuning) -> str:
    """The recipe of what was kept; on how many cores is not told, as a log may come from another machine."""
    made = recipe.from_tuning(tuned)
    torch = None if tuned.job is None or tuned.job.torch is None else f"torch {tuned.job.torch}"
    evidence = None if made.evidence is None else msgspec.structs.replace(made.evidence, measured_on=torch)
    return recipe.dump(replace(made, evidence=evidence)).strip()
