"""The verdict in a few lines: who limits, the user's costliest line, where the step goes, what to do.

With `verbose` the evidence, and all that ledger and advice hold. A session's page shows the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from autobrrr.quantities import duration, share
from autobrrr.readable import readable
from autobrrr.records import Advice, Diagnosis, Evidence, LedgerRow, verdict_head
from autobrrr.records.busy_words import busy_words
from autobrrr.records.verdict_records import in_phase
from autobrrr.report.page_model import Line
from autobrrr.report.step_shares import parts, phase_shares
from autobrrr.report.text.rank_text import ranks_words

MOST_LINES = 16
MOST_EVIDENCE = 3
MOST_ROWS = 5
MOST_ADVICE = 3
LEAST_SHARE = 0.005


def verdict_text(found: Diagnosis, *, verbose: bool = False) -> str:
    """What a person wants to know after `diagnose`."""
    job = f"{readable(found.job.script)} (pid {found.pid})" if found.job is not None else f"pid {found.pid}"
    told = [*verdict_lines(found, verbose=verbose), *_evidence(found, verbose), *_to_do(found, verbose)]
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


def verdict_lines(found: Diagnosis, *, verbose: bool = False) -> Iterator[Line]:
    """Below the head: the costliest line, the regime, the machine, the step and where it goes, the ranks."""
    steps, busy, among = found.step_ns, busy_words(found), ranks_words(found)
    if found.where:
        yield Line(name="your line", text=readable(found.where[0].words))
    if found.adds:
        yield Line(name="regime" if found.regime == "unknown" else found.regime, text=found.adds)
    if busy:
        yield Line(name="machine", text=busy)
    if steps.median is not None:
        said = f"{duration(steps.median)} median, {duration(steps.mean)} mean, {duration(steps.p99)} p99"
        yield Line(name="step", text=f"{said} of {steps.count} steps")
    spent = parts(found.shares, LEAST_SHARE)
    if found.shares.overhead is None:  # operators were not told apart: the phases say more
        spent = phase_shares(found.phases_ns)
    if spent:
        yield Line(name="spent", text=", ".join(f"{name} {share(part)}" for name, part in spent))
    rows = [one for one in found.ledger if one.share >= LEAST_SHARE]
    yield from _ledger_rows(rows if verbose else rows[:MOST_ROWS])
    for each in found.trends:
        yield Line(name="over time", text=readable(each.words))
    if found.memory_words:
        yield Line(name="memory", text=found.memory_words)
    if among is not None:
        yield Line(name="ranks", text=among)


def _evidence(found: Diagnosis, verbose: bool) -> list[Line]:
    shown = found.evidence if verbose else [] if found.ledger else carrying(found)
    return [Line(name=each.signal, text=each.note) for each in shown]


def _to_do(found: Diagnosis, verbose: bool) -> list[Line]:
    lines = [advised(each) for each in (found.advice if verbose else found.advice[:MOST_ADVICE])]
    return lines + ([Line(name="to decide", text=found.decide_with)] if found.decide_with else [])


def _ledger_rows(rows: list[LedgerRow]) -> Iterator[Line]:
    """`39 %  operators, between the phases  train.py:22 guard`."""
    told = [(share(row.share), in_phase(row.kind, row.phase), readable(row.where or "")) for row in rows]
    wide = max((len(kind) for _, kind, _ in told), default=0)
    for at, (part, kind, where) in enumerate(told):
        yield Line(name="" if at else "where", text=f"{part:>5}  {kind:<{wide}}  {where}".rstrip())


def advised(advice: Advice) -> Line:
    """What to try or to edit, why, and what it may gain."""
    gain = f", predicted {advice.expected:.2f}x" if advice.expected is not None else ""
    if advice.reach == "edit":
        return Line(name="edit", text=f"{advice.why} ({advice.class_}{gain})")
    how = f"{advice.reach}, {advice.class_}{gain}"
    return Line(name="remedy", text=f"{advice.remedy}: {advice.why} ({how})")


def signals_words(named: Diagnosis) -> str:
    """Who carries the verdict."""
    names = [each.signal.replace("_", " ") for each in named.evidence if each.says == named.regime]
    if not names or named.regime == "unknown":
        return ""
    return f"{'1 signal says' if len(names) == 1 else f'{len(names)} signals say'} so: {', '.join(names)}"


def carrying(found: Diagnosis) -> list[Evidence]:
    """The evidence that carries the verdict; where there is none, what was measured at all."""
    named = [each for each in found.evidence if each.says == found.regime]
    rest = [each for each in found.evidence if each.value or each.against]
    return (named or sorted(rest, key=lambda each: not each.against))[:MOST_EVIDENCE]
