"""Mode 3: every remedy that may be tried on this job, what was predicted and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autobrrr.records import Advice, Trial
from autobrrr.records.gain_words import CLASS_WORDS, SURE, factor_words, gain_words
from autobrrr.records.tuning_records import NO_PEAKS
from autobrrr.records.verdict_records import label
from autobrrr.report import page_model
from autobrrr.report.page_model import Cell, Gain, Line, PageTable, Tone
from autobrrr.report.page_text import ScreenPart
from autobrrr.report.pages.tuning_parts import tuned_lines
from autobrrr.report.text_rows import Row, clipped, piece, row
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

    remedy: Advice
    state: str
    turn: int = 0  # 1: only where a tuner is told to try it; 2: not on a running job
    trial: Trial | None = None
    achieved: float | None = None
    interval: list[float] | None = None
    token: int | None = None

    @property
    def key(self) -> str:
        return self.remedy.label

    @property
    def why(self) -> str:
        """What a trial has ended with."""
        return "" if self.trial is None else self.trial.why

    @property
    def class_tone(self) -> Tone:
        return "warn" if self.remedy.class_ in DARING else ""


def lines(view: View) -> list[RemedyRow]:
    """Remedies in the order in which they are, or were, tried; those that need a new start last."""
    listed = (view.details.remedies, view.details.manual, view.details.later)
    means = {remedy.remedy: remedy.why for remedies in listed for remedy in remedies}
    found: dict[str, RemedyRow] = {}
    for trial in view.trials:
        tried = Advice(
            remedy=trial.remedy,
            why=means.get(trial.remedy, ""),
            expected=trial.predicted,
            reach="live",
            class_=trial.class_,
            options=trial.options,
        )
        found[tried.label] = RemedyRow(
            remedy=tried,
            state=trial.outcome_word,
            trial=trial,
            achieved=trial.achieved,
            interval=trial.interval,
        )
    for turn, remedies in enumerate(listed):
        for remedy in remedies:
            begins = BEGINS.get(remedy.reach, remedy.reach)
            state = ("queued" if view.tuning else "not tried", "manual", begins)[turn]
            found.setdefault(remedy.label, RemedyRow(remedy=remedy, state=state, turn=turn))
    for applied in view.details.active:
        base = found.get(applied.label) or RemedyRow(remedy=applied, state="on")
        state = base.state if base.state in ("kept", "trying") else "on"
        found[base.key] = replace(base, state=state, token=applied.token)
    now = view.progress
    key = "" if now is None or now.remedy is None else label(now.remedy, now.options)
    if now is not None and key in found:
        found[key] = replace(found[key], state=STAGES.get(now.stage, now.stage))
        if now.achieved is not None:
            found[key] = replace(found[key], achieved=now.achieved, interval=now.interval)
    return sorted(found.values(), key=lambda line: line.turn)


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    ends = [Line(text=view.failed, tone="worse")] if view.failed else []
    tuned = None if view.tuning else view.tuned
    ends += [] if tuned is None else tuned_lines(tuned)
    found = lines(view)
    if not found:
        return [*ends, Line(text="no remedy is known yet for this job", tone="muted")]
    keys = "t tries them in turn and keeps what is proven; a applies one; u reverts it"
    if view.tuning:
        keys = "space continues the tuner" if view.paused else "space pauses the tuner"
    below = [Line(text=keys, tone="accent")] if view.acting else []
    if any(line.interval is not None for line in found):
        said = f"achieved: with the remedy against without it [{SURE}]"
        said += "; speed-up: all kept together against none" if tuned is not None and tuned.kept else ""
        below.append(Line(text=said, tone="muted"))
    return [*ends, table(found), *below]


def table(found: Sequence[RemedyRow]) -> PageTable:
    """The list of remedies: what became of each, its interval on the axis of all where there is room."""
    return page_model.table(
        "",
        ("remedy", "state", "~-", "~#achieved", "~predicted:factor", "~took:ns", "class"),
        [_values(line) for line in found],
        keys=[line.key for line in found],
        more={line.key: more_of(line) for line in found},
        tall=1,
    )


def note(line: RemedyRow, width: int) -> Row:
    """What stands under the list about the remedy that is chosen, its name in whole."""
    return row(piece(clipped(f"  {line.key}: {line.why or line.remedy.why}", width - 2), "muted"))


def _values(line: RemedyRow) -> list[page_model.Value]:
    said, short = gain_words(line.achieved, line.interval), factor_words(line.achieved)
    gain = Gain(achieved=line.achieved, interval=line.interval)
    predicted, took_ns = line.remedy.expected, line.trial.duration_ns if line.trial is not None else 0
    if line.achieved is None and predicted is not None and not line.why:  # no use after a trial
        said, short = f"{factor_words(predicted)} predicted", "-"
    return [
        Cell(text=line.key, tone="strong" if line.token is not None else ""),
        Cell(text=line.state, tone=STATES.get(line.state, "")),
        Cell(gain=None if gain.achieved is None else gain),
        Cell(text=said, short=short, sort=line.achieved),
        *(predicted, took_ns or ""),
        Cell(text=line.remedy.class_, tone=line.class_tone),
    ]


def more_of(line: RemedyRow) -> list[Line]:
    remedy, peaks = line.remedy, NO_PEAKS if line.trial is None else line.trial.peaks
    words = f"{remedy.class_}: {CLASS_WORDS.get(remedy.class_, '')}"
    return [
        Line(name="class", text=words, tone=line.class_tone),
        Line(name="works", text=REACHES.get(remedy.reach, remedy.reach)),
        Line(name="memory", text="" if peaks == NO_PEAKS else f"at most {peaks.words}"),
        Line(name="why", text=line.why),
        Line(name="means", text=remedy.why),
    ]
