"""Mode 3: every remedy that may be tried on this job, what was predicted and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autobrrr.quantities import duration
from autobrrr.records import Trial
from autobrrr.records.gain_words import CLASS_WORDS, SURE, class_badge, factor_words, gain_words
from autobrrr.records.tuning_records import NO_PEAKS
from autobrrr.records.wire_answers import RemedyLine
from autobrrr_tui.list_choice import UNCHANGED, ListChoice, ListSort, chosen, head, left_out, listed
from autobrrr_tui.text_rows import (
    BLANK,
    Page,
    Row,
    clipped,
    facts,
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
NAMES, SHORT_NAMES = 27, 17  # cells of a remedy's name for which columns give way
WITH_INTERVAL = 19  # cells of a gain
DARING = ("stream", "changes-training")  # classes whose results are not the same up to rounding
REACHES = {
    "live": "on the running job",
    "next_epoch": "from the next epoch on",
    "relaunch": "at a new start: autobrrr run --recipe FILE",
}
BEGINS = {"next_epoch": "next epoch", "relaunch": "restart"}  # when what is not live takes effect
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
    means: str
    why: str = ""  # what a trial has ended with
    memory: str = ""  # the most with it on
    token: int | None = None


def lines(view: View) -> list[RemedyRow]:
    """Remedies in the order in which they are, or were, tried; those that need a new start last."""
    found: dict[str, RemedyRow] = {}
    details = view.details
    meanings = {each.remedy: each.doc for each in details.remedies} if details is not None else {}
    for trial in view.trials:
        found[key_of(trial)] = _tried(trial, meanings.get(trial.remedy, ""))
    for remedy in details.remedies if details is not None else ():
        key = label(remedy.remedy, remedy.options)
        if key not in found:
            found[key] = _untried(remedy, key, tuning=view.tuning)
    for applied in details.active if details is not None else ():
        key = label(applied.remedy, applied.options)
        known = found.get(key)
        state = known.state if known is not None and known.state in ("kept", "trying") else "on"
        base = known or _untried(
            RemedyLine(remedy=applied.remedy, options=applied.options, class_="rounding"), key, tuning=False
        )
        found[key] = replace(base, state=state, token=applied.token)
    now = view.progress
    if now is not None and now.remedy is not None:
        key = label(now.remedy, now.options)
        if key in found:
            state = STAGES.get(now.stage, now.stage)
            found[key] = replace(found[key], state=state)
            if now.achieved is not None:
                found[key] = replace(found[key], achieved=now.achieved, interval=now.interval)
    return sorted(found.values(), key=lambda line: (line.reach != "live", not line.default))


SORTS: tuple[ListSort[RemedyRow], ...] = (
    ListSort(column="achieved", key=lambda line: line.achieved, falling=True),
    ListSort(column="predicted", key=lambda line: line.predicted, falling=True),
    ListSort(column="trial", key=lambda line: line.price_ns, falling=True),
    ListSort(column="remedy", key=lambda line: line.key),
)


def page(view: View, width: int, height: int, choice: ListChoice = UNCHANGED) -> Page:
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
    shown = listed(found, choice, SORTS, lambda line: f"{line.key} {line.state} {line.class_} {line.why}")
    rows += left_out(len(shown), len(found), choice)
    sort = chosen(SORTS, choice)
    columns = _columns(width, None if sort is None else sort.column)
    names = max(SHORT_NAMES, min(34, width - 3 - sum(columns.values())))
    heads = (head(name, cells, sort) for name, cells in {"remedy": names + 1, **columns}.items())
    rows.append(row(piece(f"  {''.join(heads)}".rstrip(), "dim")))
    for line in shown:
        picks[len(rows)] = line.key
        rows.append(_row(line, names, columns))
    if columns.get("achieved") == WITH_INTERVAL and any(line.interval is not None for line in shown):
        said = f"achieved: with the remedy against without it [{SURE}]"
        if view.tuned is not None and view.tuned.kept and not view.tuning:
            said += "; tuned: all kept together against none"
        rows += [row(piece(f"  {line}", "dim")) for line in wrapped(said, width - 4)]
    if view.acting:
        rows += [BLANK, *(heading(line) for line in wrapped(_keys(view), width - 4))]
    return Page(rows=rows, picks=picks)


def _columns(width: int, sorted_by: str | None) -> dict[str, int]:
    """Cells of each column beside the name; with little room those give way that can be missed.

    The class keeps its words: half of `changes training` would say something else.
    """
    columns = {"state": 11, "predicted": 11, "achieved": WITH_INTERVAL, "trial": 8, "class": 16}
    for name in ("trial", "predicted"):
        if name != sorted_by and width - 3 - sum(columns.values()) < NAMES:
            del columns[name]
    if width - 3 - sum(columns.values()) < SHORT_NAMES:
        columns["achieved"] = 10  # the factor alone
    if sorted_by != "achieved" and width - 3 - sum(columns.values()) < SHORT_NAMES:
        del columns["achieved"]
    return columns


def note(line: RemedyRow, width: int) -> Row:
    """What stands under the list about the remedy that is chosen, its name in whole."""
    return row(piece(clipped(f"  {line.key}: {line.why or line.means}", width - 2), "dim"))


def _keys(view: View) -> str:
    if view.tuning:
        return "space continues the tuner" if view.paused else "space pauses the tuner"
    return "t tries them in turn and keeps what is proven; a applies one; u reverts it"


def details(view: View, key: str, width: int) -> list[Row]:
    """All that is known of one remedy."""
    line = next((each for each in lines(view) if each.key == key), None)
    if line is None:
        return []
    daring = line.class_ in DARING
    known = [
        ("state", line.state, TONES.get(line.state, "plain")),
        ("class", f"{line.class_}: {CLASS_WORDS.get(line.class_, '')}", "warn" if daring else "plain"),
        ("works", REACHES.get(line.reach, line.reach), "plain"),
        ("predicted", factor_words(line.predicted), "plain"),
        ("achieved", gain_words(line.achieved, line.interval), "plain"),
        ("trial", "" if line.price_ns is None else f"took {duration(line.price_ns)}", "plain"),
        ("memory", line.memory, "plain"),
        ("why", line.why, "plain"),
        ("means", line.means, "plain"),
    ]
    return facts(known, width)


def _row(line: RemedyRow, names: int, columns: dict[str, int]) -> Row:
    wide = columns.get("achieved") == WITH_INTERVAL
    achieved = gain_words(line.achieved, line.interval if wide else None)
    if wide and "predicted" not in columns and line.achieved is None and line.predicted is not None:
        achieved = f"{factor_words(line.predicted)} predicted"
    cells = {
        "state": piece(line.state, TONES.get(line.state, "plain")),
        "predicted": piece(factor_words(line.predicted)),
        "achieved": piece(achieved),
        "trial": piece(duration(line.price_ns)),
        "class": piece(class_badge(line.class_), "warn" if line.class_ in DARING else "plain"),
    }
    name = piece(
        f"  {padded(middled(line.key, names), names)} ", "strong" if line.token is not None else "plain"
    )
    return (
        name,
        *((padded(cells[column][0], wide), *cells[column][1:]) for column, wide in columns.items()),
    )


def _tried(trial: Trial, means: str) -> RemedyRow:
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
        means=means,
        why=trial.why,
        memory="" if trial.peaks == NO_PEAKS else f"at most {trial.peaks.words}",
    )


def _untried(remedy: RemedyLine, key: str, *, tuning: bool) -> RemedyRow:
    if remedy.reach != "live":
        state = BEGINS.get(remedy.reach, remedy.reach)
    else:
        state = "manual" if not remedy.default else "queued" if tuning else "not tried"
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
        means=remedy.doc,
    )
