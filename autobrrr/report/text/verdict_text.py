"""The verdict in a few lines: who limits, the user's costliest line, where the step goes, what to do.

With `verbose` the evidence, and all that the ledger and the advice hold.
"""

from __future__ import annotations

from autobrrr.quantities import duration, share
from autobrrr.readable import readable
from autobrrr.records import Advice, Diagnosis, Evidence, LedgerRow, verdict_head
from autobrrr.records.busy_words import busy_words
from autobrrr.records.verdict_records import in_phase
from autobrrr.report.step_shares import parts, phase_shares
from autobrrr.report.text.rank_text import ranks_words

MOST_LINES = 16
MOST_EVIDENCE = 3
MOST_ROWS = 5
MOST_ADVICE = 3
LEAST_SHARE = 0.005


def verdict_text(found: Diagnosis, *, verbose: bool = False) -> str:
    """What a person wants to know after `diagnose`."""
    steps = found.step_ns
    job = f"{readable(found.job.script)} (pid {found.pid})" if found.job is not None else f"pid {found.pid}"
    lines = [f"{job}: {verdict_head(found)}"]
    if found.where:
        lines.append(_row("your line", readable(found.where[0].words)))
    if found.adds:
        lines.append(_row("regime" if found.regime == "unknown" else found.regime, found.adds))
    busy = busy_words(found)
    if busy:
        lines.append(_row("machine", busy))
    if steps.median is not None:
        lines.append(
            _row(
                "step",
                f"{duration(steps.median)} median, {duration(steps.mean)} mean, "
                f"{duration(steps.p99)} p99 of {steps.count} steps",
            )
        )
    spent = [f"{name} {share(part)}" for name, part in (parts(found.shares, 0.005) or [])]
    if found.shares.overhead is None:  # operators were not told apart: the phases say more
        spent = [f"{name} {share(part)}" for name, part in phase_shares(found.phases_ns)]
    if spent:
        lines.append(_row("spent", ", ".join(spent)))
    rows = [one for one in found.ledger if one.share >= LEAST_SHARE]
    lines += _ledger_rows(rows if verbose else rows[:MOST_ROWS])
    lines += [_row("over time", readable(each.words)) for each in found.trends]
    if found.memory_words:
        lines.append(_row("memory", found.memory_words))
    among = ranks_words(found)
    if among is not None:
        lines.append(_row("ranks", among))
    if verbose or not found.ledger:
        evidence = found.evidence if verbose else carrying(found)
        lines += [_row(each.signal, each.note) for each in evidence]
    lines += [_advised(each) for each in (found.advice if verbose else found.advice[:MOST_ADVICE])]
    if found.decide_with:
        lines.append(_row("to decide", found.decide_with))
    if not verbose:
        lines = lines[: MOST_LINES - 1]
    if found.cost.words:
        beside = f"; {duration(found.cost.cpu_ns)} of CPU time beside it" if found.cost.cpu_ns else ""
        lines.append(f"  Cost to your job: {found.cost.words}{beside}.")
    return "\n".join(lines)


def _ledger_rows(rows: list[LedgerRow]) -> list[str]:
    """`39 %  operators, between the phases  train.py:22 guard`."""
    told = [(share(row.share), in_phase(row.kind, row.phase), readable(row.where or "")) for row in rows]
    wide = max((len(kind) for _, kind, _ in told), default=0)
    return [
        _row("" if at else "where", f"{part:>5}  {kind:<{wide}}  {where}".rstrip())
        for at, (part, kind, where) in enumerate(told)
    ]


def _advised(advice: Advice) -> str:
    gain = f", predicted {advice.expected:.2f}x" if advice.expected is not None else ""
    if advice.reach == "edit":
        return _row("edit", f"{advice.why} ({advice.class_}{gain})")
    return _row("remedy", f"{advice.remedy}: {advice.why} ({advice.reach}, {advice.class_}{gain})")


def carrying(found: Diagnosis) -> list[Evidence]:
    """The evidence that carries the verdict; where there is none, what was measured at all."""
    named = [each for each in found.evidence if each.says == found.regime]
    rest = [each for each in found.evidence if each.value is not None and each not in named]
    excluding = [each for each in rest if each.against]
    return (named or excluding + [each for each in rest if each not in excluding])[:MOST_EVIDENCE]


def _row(name: str, text: str) -> str:
    return f"  {name.replace('_', ' '):<13} {text}"
