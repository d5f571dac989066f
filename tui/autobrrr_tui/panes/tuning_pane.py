"""Mode 3: every remedy that may be tried on this job, what was predicted and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autobrrr.quantities import duration
from autobrrr.records import Trial
from autobrrr.records.gain_words import CLASS_WORDS, SURE, class_badge, factor_words, gain_words
from autobrrr.records.tuning_records import NO_PEAKS
from autobrrr.records.wire_answers import RemedyLine
from autobrrr.report.page_model import Cell, Gain, Line, PageTable, Tone, factor, figure
from autobrrr.report.text.trial_words import label, trial_label, tuned_words
from autobrrr_tui.page_rows import ScreenPart
from autobrrr_tui.text_rows import Row, clipped, piece, row
from autobrrr_tui.view_state import View

STATES: dict[str, Tone] = {
    "kept": "better",
    "on": "better",
    "trying": "warn",
    "reverted": "muted",
    "refused": "muted",
    "skipped": "muted",
}
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
    class_: str
    reach: str = "live"
    default: bool = True
    means: str = ""
    achieved: float | None = None
    interval: list[float] | None = None
    price_ns: int | None = None  # what its trial took
    why: str = ""  # what a trial has ended with
    memory: str = ""  # the most with it on
    token: int | None = None


def lines(view: View) -> list[RemedyRow]:
    """Remedies in the order in which they are, or were, tried; those that need a new start last."""
    found: dict[str, RemedyRow] = {}
    details = view.details
    listed = details.remedies if details is not None else []
    meanings = {each.remedy: each.doc for each in listed}
    for trial in view.trials:
        found[trial_label(trial)] = _tried(trial, meanings.get(trial.remedy, ""))
    for remedy in listed:
        key = label(remedy.remedy, remedy.options)
        found.setdefault(key, _untried(remedy, key, tuning=view.tuning))
    for applied in details.active if details is not None else ():
        key = label(applied.remedy, applied.options)
        on = RemedyLine(remedy=applied.remedy, options=applied.options, class_="rounding")
        base = found.get(key) or _untried(on, key, tuning=False)
        state = base.state if base.state in ("kept", "trying") else "on"
        found[key] = replace(base, state=state, token=applied.token)
    now = view.progress
    key = "" if now is None or now.remedy is None else label(now.remedy, now.options)
    if now is not None and key in found:
        found[key] = replace(found[key], state=STAGES.get(now.stage, now.stage))
        if now.achieved is not None:
            found[key] = replace(found[key], achieved=now.achieved, interval=now.interval)
    return sorted(found.values(), key=lambda line: (line.reach != "live", not line.default))


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    ends = [Line(text=view.failed, tone="worse")] if view.failed else []
    kept = view.tuned.kept if view.tuned is not None and not view.tuning else []
    if view.tuned is not None and not view.tuning:
        ends.append(Line(text=f"tuned: {tuned_words(view.tuned)}", tone="better" if kept else ""))
        ends += [Line(text=view.tuned.note, tone="muted")] if view.tuned.note else []
    found = lines(view)
    if not found:
        return [*ends, Line(text="no remedy is known yet for this job", tone="muted")]
    below = [Line(text=_keys(view), tone="accent")] if view.acting else []
    if any(line.interval is not None for line in found):
        said = f"achieved: with the remedy against without it [{SURE}]"
        said += "; tuned: all kept together against none" if kept else ""
        below.append(Line(text=said, tone="muted"))
    return [*ends, table(found), *below]


def table(found: Sequence[RemedyRow]) -> PageTable:
    """The list of remedies: what became of each, its interval on the axis of all where there is room."""
    return PageTable(
        title="",
        heads=("remedy", "state", "~-", "~#achieved", "~#predicted", "~#took", "class"),
        rows=[_cells(line) for line in found],
        keys=[line.key for line in found],
        more={line.key: more_of(line) for line in found},
    )


def note(line: RemedyRow, width: int) -> Row:
    """What stands under the list about the remedy that is chosen, its name in whole."""
    return row(piece(clipped(f"  {line.key}: {line.why or line.means}", width - 2), "dim"))


def _keys(view: View) -> str:
    if view.tuning:
        return "space continues the tuner" if view.paused else "space pauses the tuner"
    return "t tries them in turn and keeps what is proven; a applies one; u reverts it"


def _cells(line: RemedyRow) -> list[Cell]:
    said, short = gain_words(line.achieved, line.interval), factor_words(line.achieved)
    gain = Gain(name=line.key, achieved=line.achieved, interval=line.interval)
    if line.achieved is None and line.predicted is not None and not line.why:  # no use after a trial
        said, short = f"{factor_words(line.predicted)} predicted", "-"
    return [
        Cell(text=line.key, tone="strong" if line.token is not None else ""),
        Cell(text=line.state, tone=STATES.get(line.state, "")),
        Cell(gain=None if gain.achieved is None else gain),
        Cell(text=said, short=short, sort=line.achieved),
        factor(line.predicted),
        figure("" if line.price_ns is None else duration(line.price_ns), line.price_ns),
        Cell(text=class_badge(line.class_), tone="warn" if line.class_ in DARING else ""),
    ]


def more_of(line: RemedyRow) -> list[Line]:
    tone: Tone = "warn" if line.class_ in DARING else ""
    return [
        Line(name="class", text=f"{line.class_}: {CLASS_WORDS.get(line.class_, '')}", tone=tone),
        Line(name="works", text=REACHES.get(line.reach, line.reach)),
        Line(name="memory", text=line.memory),
        Line(name="why", text=line.why),
        Line(name="means", text=line.means),
    ]


def _tried(trial: Trial, means: str) -> RemedyRow:
    return RemedyRow(
        key=trial_label(trial),
        remedy=trial.remedy,
        options=trial.options,
        state=trial.outcome_word,
        predicted=trial.predicted,
        achieved=trial.achieved,
        interval=trial.interval,
        price_ns=trial.duration_ns or None,
        class_=trial.class_,
        means=means,
        why=trial.why,
        memory="" if trial.peaks == NO_PEAKS else f"at most {trial.peaks.words}",
    )


def _untried(remedy: RemedyLine, key: str, *, tuning: bool) -> RemedyRow:
    waits = "manual" if not remedy.default else "queued" if tuning else "not tried"
    return RemedyRow(
        key=key,
        remedy=remedy.remedy,
        options=remedy.options,
        state=waits if remedy.reach == "live" else BEGINS.get(remedy.reach, remedy.reach),
        predicted=remedy.predicted,
        class_=remedy.class_,
        reach=remedy.reach,
        default=remedy.default,
        means=remedy.doc,
    )
