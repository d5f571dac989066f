"""A diagnosis in a few lines, or in one: for a terminal or a pipe.

With `verbose` the evidence, and all that ledger and advice hold. A session's page shows the same lines.
"""

from __future__ import annotations

from autobrrr.quantities import duration, share
from autobrrr.readable import readable
from autobrrr.records import Advice, Diagnosis, verdict_head
from autobrrr.records.busy_words import busy_words, decide_words
from autobrrr.report.next_step import after_diagnosis
from autobrrr.report.page_model import Line
from autobrrr.report.pages.diagnosis_parts import (
    carrying,
    ledger_table,
    phase_shares,
    step_bars,
    verdict_lines,
)

MOST_LINES = 16
MOST_ADVICE = 3
MOST_ROWS = 5
LATER = ("over time", "memory", "ranks")  # below the lines that have the step's time
MEASURING = ("watching", "tracing", "timing", "profiling", "delaying", "sampling", "probing")
SHORT = {
    "data wait": "data",
    "host to device": "h2d",
    "forward": "fwd",
    "backward": "bwd",
    "optimizer": "opt",
}


def verdict_text(found: Diagnosis, *, verbose: bool = False) -> str:
    """What a person wants to know after `diagnose`: who limits, your slowest line, what to do."""
    job = f"{readable(found.job.script)} (pid {found.pid})" if found.job is not None else f"pid {found.pid}"
    busy, facts = busy_words(found), list(verdict_lines(found))
    later = [one for one in facts if one.name in LATER and one.text != found.adds]
    told = [one for one in facts if one not in later]
    told += [Line(name="machine", text=busy)] if busy else []
    told += [
        Line(name="spent", text=", ".join(f"{name} {share(part)}" for name, part in bar.parts))
        for bar in step_bars(found)[:1]
    ]
    room = MOST_LINES - 3 - len(told) - len(later)  # beside the head, one piece of advice and the cost
    told += [*_ledger_lines(found, None if verbose else max(1, min(MOST_ROWS, room))), *later]
    evidence = found.evidence if verbose else [] if found.ledger else carrying(found)
    told += [Line(name=each.signal, text=each.note) for each in evidence]
    told += [_advised(each) for each in (found.advice if verbose else found.advice[:MOST_ADVICE])]
    decides = decide_words(found)
    told += [Line(name="to decide", text=decides)] if decides not in ("", after_diagnosis(found)) else []
    lines = [
        f"{job}: {verdict_head(found)}",
        *(f"  {one.name.replace('_', ' '):<13} {one.text}" for one in told),
    ]
    if not verbose:
        lines = lines[: MOST_LINES - 1]
    if found.cost.words:
        beside = f"; {duration(found.cost.cpu_ns)} of CPU time beside it" if found.cost.cpu_ns else ""
        lines.append(f"  Cost to your job: {found.cost.words}{beside}.")
    return "\n".join(lines)


def _ledger_lines(found: Diagnosis, most: int | None) -> list[Line]:
    """`39 %  operators, between the phases  train.py:22 guard`."""
    rows = [[cell.text for cell in row] for row in ledger_table(found).rows[:most]]
    wide = max((len(kind) for _, kind, _ in rows), default=0)
    return [
        Line(name="" if at else "where", text=f"{part:>5}  {kind:<{wide}}  {where}".rstrip())
        for at, (part, kind, where) in enumerate(rows)
    ]


def _advised(advice: Advice) -> Line:
    """What to try or to edit, why, and what it may gain."""
    gain = f", predicted {advice.expected:.2f}x" if advice.expected is not None else ""
    if advice.reach == "edit":
        return Line(name="edit", text=f"{advice.why} ({advice.remedy}, {advice.class_}{gain})")
    how = f"{advice.reach}, {advice.class_}{gain}"
    return Line(name="remedy", text=f"{advice.remedy}: {advice.why} ({how})")


def verdict_words(snapshot: Diagnosis) -> str:
    """Who limits the step, or `measuring` while nothing can be said yet."""
    if snapshot.limit == "unknown":
        return "measuring" if snapshot.state in MEASURING else "no verdict"
    return verdict_head(snapshot)


def live_line(snapshot: Diagnosis) -> str:
    """The state of a session in one line; what is not measured is left out."""
    words = [f"{(snapshot.t_ns or 0) / 1e9:6.1f} s", verdict_words(snapshot)]
    if snapshot.step_ns.median is not None:
        words.append(f"{duration(snapshot.step_ns.median)}/step, p99 {duration(snapshot.step_ns.p99)}")
    phases = [f"{SHORT.get(name, name)} {share(part)}" for name, part in phase_shares(snapshot.phases_ns)]
    if phases:
        words.append(" ".join(phases))
    elif snapshot.host is not None and snapshot.host.cpu_share is not None:
        words.append(f"CPU {share(snapshot.host.cpu_share)}")
    if snapshot.straggler is not None and snapshot.straggler.rank is not None:
        words.append(f"slowest: rank {snapshot.straggler.rank}")
    if snapshot.active:
        words.append("on: " + ", ".join(snapshot.active))
    if snapshot.cost.session_share is not None:
        words.append(f"own cost {share(snapshot.cost.session_share)}")
    if snapshot.activity:
        words.append(snapshot.activity)
    return "  ".join(words)
