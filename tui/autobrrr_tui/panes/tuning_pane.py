"""Mode 3: every remedy that may be tried on this job, what was predicted and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.records import Trial
from autobrrr.records.gain_words import factor_words, gain_words
from autobrrr.records.wire_answers import RemedyLine
from autobrrr_tui.shown_figures import duration
from autobrrr_tui.text_rows import (
    BLANK,
    Page,
    Row,
    clipped,
    heading,
    middled,
    padded,
    piece,
    row,
    wrapped,
)
from autobrrr_tui.view_reducer import key_of, label, tuned_line
from autobrrr_tui.view_state import View

TONES = {
    "kept": "good",
    "on": "good",
    "trying": "warn",
    "reverted": "dim",
    "refused": "dim",
    "skipped": "dim",
}
DARING = ("stream", "changes-training")  # classes whose results are not the same up to rounding
STAGES = {"trial": "trying", "ablation": "trying", "final": "confirming", "guard": "watched"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyRow:
    """One remedy with all that is known of it."""

    key: str
    remedy: str
    options: dict[str, object]
    state: str
    predicted: float | None
    achieved: float | None
    interval: list[float] | None
    price_ns: int | None  # what its trial took
    class_: str
    reach: str
    default: bool
    why: str
    token: int | None = None


def lines(view: View) -> list[RemedyRow]:
    """Remedies in the order in which they are, or were, tried; those that need a new start last."""
    found: dict[str, RemedyRow] = {}
    details = view.details
    for trial in view.trials:
        found[key_of(trial)] = _tried(trial)
    for remedy in details.remedies if details is not None else ():
        key = label(remedy.remedy, remedy.options)
        if key not in found:
            found[key] = _untried(remedy, key)
    for applied in details.active if details is not None else ():
        key = label(applied.remedy, applied.options)
        known = found.get(key)
        state = known.state if known is not None and known.state in ("kept", "trying") else "on"
        base = known or _untried(
            RemedyLine(remedy=applied.remedy, options=applied.options, class_="rounding"), key
        )
        found[key] = _with(base, state=state, token=applied.token)
    now = view.progress
    if now is not None and now.remedy is not None:
        key = label(now.remedy, now.options)
        if key in found:
            state = STAGES.get(now.stage, now.stage)
            found[key] = _with(found[key], state=state, achieved=now.achieved, interval=now.interval)
    return sorted(found.values(), key=lambda line: (line.reach != "live", not line.default))


def page(view: View, width: int, height: int) -> Page:
    rows: list[Row] = []
    picks: dict[int, str] = {}
    if view.failed:
        rows += [row(piece(f"  {line}", "bad")) for line in wrapped(view.failed, width - 4, 2)]
    if view.tuned is not None and not view.tuning:
        tone = "good" if view.tuned.kept else "plain"
        rows += [row(piece(f"  {line}", tone)) for line in wrapped(tuned_line(view.tuned), width - 4, 2)]
        if view.tuned.note:
            rows += [row(piece(f"  {line}", "dim")) for line in wrapped(view.tuned.note, width - 4, 2)]
        rows.append(BLANK)
    found = lines(view)
    if not found:
        return Page(rows=[*rows, row(piece("  no remedy is known yet for this job", "dim"))])
    names = max(17, min(34, width - 59))
    wide = width >= 115
    rows.append(
        row(
            piece(
                f"  {'remedy':<{names}} {'state':<10} {'predicted':<10}{'achieved':<19}"
                f"{'trial':<8}class" + ("             why" if wide else ""),
                "dim",
            )
        )
    )
    for line in found:
        picks[len(rows)] = line.key
        rows.append(_row(line, names, width if wide else 0))
    rows += [BLANK, heading(_keys(view))]
    return Page(rows=rows, picks=picks)


def note(line: RemedyRow, width: int) -> list[Row]:
    """What stands under the list about the remedy that is chosen."""
    return [
        row(piece(f"  {part}", "dim"))
        for part in wrapped(f"{line.key} ({line.class_}): {line.why}", width - 4, 2)
    ]


def _keys(view: View) -> str:
    if view.tuning:
        return "space continues the tuner" if view.paused else "space pauses the tuner"
    return "t tries them in turn and keeps what is proven; a applies one; u reverts it"


def _row(line: RemedyRow, names: int, width: int) -> Row:
    tone = TONES.get(line.state, "plain")
    first = f"  {padded(middled(line.key, names), names)} "
    rest = (
        f" {factor_words(line.predicted):<10}{gain_words(line.achieved, line.interval):<19}"
        f"{duration(line.price_ns):<8}{line.class_ if width else line.class_.partition('-')[0]}"
    )
    made = row(
        piece(first, "strong" if line.token is not None else "plain"), piece(f"{line.state:<10}", tone), rest
    )
    if not width:
        return made
    used = len(first) + 10 + len(rest)
    gap = max(2, 18 - len(line.class_))
    return (*made, piece(clipped(" " * gap + line.why, width - used - 2), "dim"))


def _tried(trial: Trial) -> RemedyRow:
    return RemedyRow(
        key=key_of(trial),
        remedy=trial.remedy,
        options=trial.options,
        state=trial.outcome_word,
        predicted=trial.predicted,
        achieved=trial.achieved,
        interval=trial.interval,
        price_ns=trial.duration_ns or None,
        class_=trial.class_,
        reach="live",
        default=True,
        why=trial.why,
    )


def _untried(remedy: RemedyLine, key: str) -> RemedyRow:
    if remedy.reach != "live":
        state = "restart" if remedy.reach == "relaunch" else "next epoch"
    else:
        state = "queued" if remedy.default else "manual"
    return RemedyRow(
        key=key,
        remedy=remedy.remedy,
        options=remedy.options,
        state=state,
        predicted=remedy.predicted,
        achieved=None,
        interval=None,
        price_ns=None,
        class_=remedy.class_,
        reach=remedy.reach,
        default=remedy.default,
        why=remedy.doc,
    )


def _with(
    line: RemedyRow,
    *,
    state: str,
    token: int | None = None,
    achieved: float | None = None,
    interval: list[float] | None = None,
) -> RemedyRow:
    return RemedyRow(
        key=line.key,
        remedy=line.remedy,
        options=line.options,
        state=state,
        predicted=line.predicted,
        achieved=line.achieved if achieved is None else achieved,
        interval=line.interval if interval is None else interval,
        price_ns=line.price_ns,
        class_=line.class_,
        reach=line.reach,
        default=line.default,
        why=line.why,
        token=line.token if token is None else token,
    )
