"""The verdict in at most ten lines: who limits, the regime, its figures, the remedies, what would decide."""

from __future__ import annotations

from autobrrr.quantities import duration, share
from autobrrr.readable import readable
from autobrrr.records import Diagnosis, Evidence, verdict_head
from autobrrr.records.busy_words import busy_words
from autobrrr.report.step_shares import parts, phase_shares
from autobrrr.report.text.rank_text import ranks_words

MOST_LINES = 10
MOST_EVIDENCE = 3
MOST_REMEDIES = 2


def verdict_text(found: Diagnosis) -> str:
    """What a person wants to know after `diagnose`."""
    steps = found.step_ns
    job = f"{readable(found.job.script)} (pid {found.pid})" if found.job is not None else f"pid {found.pid}"
    lines = [f"{job}: {verdict_head(found)}"]
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
    among = ranks_words(found)
    if among is not None:
        lines.append(_row("ranks", among))
    lines += [_row(evidence.signal, evidence.note) for evidence in carrying(found)]
    remedies = [advice for advice in found.advice if advice.reach != "edit"]
    edits = [advice for advice in found.advice if advice.reach == "edit"]
    for advice in remedies[: MOST_REMEDIES - bool(edits)]:
        gain = f", predicted {advice.expected:.2f}x" if advice.expected is not None else ""
        lines.append(
            _row("remedy", f"{advice.remedy}: {advice.why} ({advice.reach}, {advice.class_words}{gain})")
        )
    if edits:
        others = f"; also {', '.join(each.remedy for each in edits[1:])}" if edits[1:] else ""
        lines.append(_row("edit", f"{edits[0].why} ({edits[0].class_}){others}"))
    if found.decide_with:
        lines.append(_row("to decide", found.decide_with))
    lines = lines[: MOST_LINES - 1]
    if found.cost.words:
        lines.append(f"  Cost to your job: {found.cost.words}.")
    return "\n".join(lines)


def carrying(found: Diagnosis) -> list[Evidence]:
    """The evidence that carries the verdict; where there is none, what was measured at all."""
    named = [each for each in found.evidence if each.says == found.regime]
    rest = [each for each in found.evidence if each.value is not None and each not in named]
    excluding = [each for each in rest if each.against]
    return (named or excluding + [each for each in rest if each not in excluding])[:MOST_EVIDENCE]


def _row(name: str, text: str) -> str:
    return f"  {name.replace('_', ' '):<13} {text}"
