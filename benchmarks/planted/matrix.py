"""The confusion matrix: truth against verdict, abstentions apart, as a table for people.

Right: the verdict is the truth (a `mixed` or `unknown` truth: either word is right). Abstained: `mixed` or
`unknown` on a job that has a regime. Wrong: any other regime. Failed: no verdict, or the job did not live on.
"""

import statistics
from collections.abc import Sequence
from typing import Any, Literal

from benchmarks.planted.case import TRUTHS, UNDECIDED

Score = Literal["right", "abstained", "wrong", "failed"]
SCORES: tuple[Score, ...] = ("right", "abstained", "wrong", "failed")
OF_LIMIT = {
    "overhead": "host",
    "memory": "kernels",
    "compute": "kernels",
    "underfilled": "kernels",
}  # else itself
LIMITED = 0.7  # share of the step above which a limit has to be named; below it, silence is right too
AS_CONFIRMED = 0.1  # a mixture whose step is longer or shorter by more has other shares than were measured
QUIET_CORES = 0.2  # foreign load up to which the machine counts as quiet
Row = dict[str, Any]


def score(row: Row) -> Score:
    """How one verdict stands against the truth."""
    if row.get("failed") or "verdict" not in row:
        return "failed"
    truth, verdict = row["truth"], row["verdict"]
    if truth == verdict or (truth in UNDECIDED and verdict in UNDECIDED):
        return "right"
    return "abstained" if verdict in UNDECIDED else "wrong"


def score_limit(row: Row, proof: Row | None) -> Score | None:
    """How the named limit stands against the measured shares; None where they are not known."""
    if row.get("failed") or not row.get("limit") or not (proof or {}).get("shares"):
        return None
    shares: dict[str, float] = {}
    for cause, share in (proof or {})["shares"].items():
        limit = OF_LIMIT.get(cause, cause)
        shares[limit] = shares.get(limit, 0.0) + share
    largest = max(shares, key=lambda name: shares[name])
    if row["limit"] in UNDECIDED:
        return "abstained" if shares[largest] >= LIMITED else "right"
    return "right" if row["limit"] == largest and shares[largest] >= 0.5 else "wrong"


def holds_for(row: Row, proof: Row | None) -> bool:
    """Whether the measured truth is that of this run: shares of a half move with the machine's speed."""
    if proof is None:
        return True
    step_ns, confirmed_ns = (
        (each or {}).get(name)
        for each, name in ((row.get("step_ns"), "median"), (proof.get("full"), "median_step_ns"))
    )
    moved = abs(step_ns / confirmed_ns - 1) > AS_CONFIRMED if step_ns and confirmed_ns else False
    return bool(proof["holds"]) and not (row["truth"] == "mixed" and moved)


def counted(rows: Sequence[Row], confirmed: Sequence[Row]) -> list[Row]:
    """The runs whose truth holds."""
    proofs = {row["case"]: row for row in confirmed}
    return [row for row in rows if holds_for(row, proofs.get(row["case"]))]


def loud(row: Row) -> bool:
    """Whether others took so much of the machine meanwhile that the row should be measured again."""
    load = row.get("load")
    return load is not None and load["foreign_cores"] > QUIET_CORES


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures that are promised: wrong, abstained among the unmixed, times."""
    scored = [score(row) for row in rows]
    unmixed = [row for row in rows if row["truth"] not in UNDECIDED]
    gave_up = [row for row in unmixed if score(row) == "abstained"]
    named = [row["first_named_s"] for row in rows if row.get("first_named_s") is not None]
    high = [row["first_high_s"] for row in rows if row.get("first_high_s") is not None]
    loads = [row["load"]["foreign_cores"] for row in rows if row.get("load")]
    return {
        "cases": len(rows),
        **{name: scored.count(name) for name in SCORES},
        "unmixed": len(unmixed),
        "abstained_share": len(gave_up) / len(unmixed) if unmixed else None,
        "high": sum(row.get("confidence") == "high" and score(row) == "right" for row in unmixed),
        "first_named_s": _spread(named),
        "first_high_s": _spread(high),
        "foreign_cores": _spread(loads),
        "not_quiet": sum(loud(row) for row in rows),
    }


def markdown(rows: Sequence[Row], confirmed: Sequence[Row], about: dict[str, Any]) -> str:
    """Matrix, summary, and one line for each case. A truth that does not hold here counts for nothing."""
    every, rows = rows, counted(rows, confirmed)
    lines = ["# Planted bottlenecks", ""]
    lines += [", ".join(f"{name} {value}" for name, value in about.items() if value is not None), ""]
    lines += [*_matrix(rows), "", *_figures(summary(rows)), "", *_limits(rows, confirmed), ""]
    lines += _cases(every, confirmed)
    blemished = [row for row in rows if score(row) != "right"]
    if blemished:
        lines += ["", "## Abstained, wrong or failed", ""]
        for row in blemished:
            why = row.get("failed") or f"{row['verdict']}: {row['reason']}"
            lines.append(f"- `{row['case']}` ({row['truth']}): {score(row)}: {why}")
    return "\n".join(lines) + "\n"


def _matrix(rows: Sequence[Row]) -> list[str]:
    truths = [truth for truth in TRUTHS if any(row["truth"] == truth for row in rows)]
    verdicts = [word for word in TRUTHS if any(row.get("verdict") == word for row in rows)]
    lines = [
        "Rows: the truth. Columns: what `autobrrr diagnose` said; `mixed` and `unknown` are abstentions.",
        "",
        "| truth | " + " | ".join(verdicts) + " | failed |",
        "|---|" + "---|" * (len(verdicts) + 1),
    ]
    for truth in truths:
        of = [row for row in rows if row["truth"] == truth]
        cells = [str(sum(row.get("verdict") == word for row in of) or "") for word in verdicts]
        cells.append(str(sum("verdict" not in row for row in of) or ""))
        lines.append(f"| **{truth}** | " + " | ".join(cells) + " |")
    return lines


def _figures(found: dict[str, Any]) -> list[str]:
    counted = ", ".join(f"{found[name]} {name}" for name in SCORES)
    share = found["abstained_share"]
    gave_up = "none unmixed" if share is None else f"{share:.0%} of {found['unmixed']}"
    return [
        f"{found['cases']} runs: {counted}. Abstained among the unmixed: {gave_up}. "
        f"Right with confidence `high`: {found['high']}.",
        "",
        f"Seconds from attach to the first named regime: {_said(found['first_named_s'])}; "
        f"to `high`: {_said(found['first_high_s'])}.",
        f"CPU taken by others meanwhile, in cores: {_said(found['foreign_cores'])} "
        f"(more than {QUIET_CORES} in {found['not_quiet']} runs). "
        "Rows whose truth this machine did not confirm are listed, and count for nothing.",
    ]


def _limits(rows: Sequence[Row], confirmed: Sequence[Row]) -> list[str]:
    proofs = {row["case"]: row for row in confirmed}
    scored = [(row, score_limit(row, proofs.get(row["case"]))) for row in rows]
    known = [(row, said) for row, said in scored if said]
    counted = ", ".join(f"{sum(said == name for _, said in known)} {name}" for name in SCORES[:3])
    lines = [f"Limit, against the measured shares of {len(known)} runs: {counted}."]
    return lines + [
        f"- `{row['case']}`: limit {row['limit']} ({row['limit_confidence']}): {said}"
        for row, said in known
        if said != "right"
    ]


def _cases(rows: Sequence[Row], confirmed: Sequence[Row]) -> list[str]:
    heads = ("case", "truth", "verdict", "confidence", "score", "named s", "high s", "step ms", "load")
    lines = ["| " + " | ".join((*heads, "truth confirmed by")) + " |", "|" + "---|" * (len(heads) + 1)]
    proofs = {row["case"]: row for row in confirmed}
    for row in sorted(rows, key=lambda one: (TRUTHS.index(one["truth"]), one["case"])):
        step = (row.get("step_ns") or {}).get("median")
        cells = [row["case"], row["truth"], row.get("verdict", "-"), row.get("confidence", "-"), score(row)]
        cells += [_figure(row.get("first_named_s")), _figure(row.get("first_high_s"))]
        cells += [_figure(step / 1e6 if step else None)]
        cells += [_figure((row.get("load") or {}).get("foreign_cores"))]
        cells += [_proof(proofs.get(row["case"]), row)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _proof(proof: Row | None, row: Row) -> str:
    if proof is None or proof["truth"] != row["truth"]:
        return "not measured"
    if proof.get("failed"):
        return f"**NOT CONFIRMED** {proof['failed']}"
    if proof["holds"] and not holds_for(row, proof):
        return f"**ANOTHER STEP** of {proof['full']['median_step_ns'] / 1e6:.2f} ms: {proof['figure']}"
    return ("" if proof["holds"] else "**NOT CONFIRMED** ") + str(proof["figure"])


def _spread(values: Sequence[float]) -> list[float] | None:
    """Median and largest."""
    return [round(statistics.median(values), 2), round(max(values), 2)] if values else None


def _said(spread: list[float] | None) -> str:
    return f"{spread[0]:g} median, {spread[1]:g} at most" if spread else "not measured"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
