"""A tuning in words: a line of progress, a line for each trial, at the end the section that holds all."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.records import Advice, Trial, TuneProgress, Tuning
from autobrrr.records.gain_words import factor_words, gain_words
from autobrrr.report.page_model import (
    Cell,
    Forest,
    Gain,
    Line,
    PageTable,
    Section,
    count,
    factor,
    figure,
    listed,
    section,
    time,
    words,
)
from autobrrr.report.page_text import section_text
from autobrrr.report.text.trial_words import trial_label, trial_words, tuned_words

LATER = {"next_epoch": "from the next epoch on", "relaunch": "from the start on"}
TRIAL_HEADS = (
    *("remedy", "#predicted", "#achieved", "~#A/B pairs", "~#steps", "~#took"),
    *("memory", "class", "outcome", "why"),
)


def progress_line(progress: TuneProgress) -> str:
    """`[12 of 60 s] trying optimizer.fused: 1.12x [1.08–1.16], 8 A/B pairs`."""
    spent, whole = progress.elapsed_ns / 1e9, progress.budget_ns / 1e9
    return f"[{spent:.0f} of {whole:.0f} s] {progress.text}"


def trial_line(trial: Trial) -> str:
    """`kept optimizer.fused: faster: 1.12x ...`."""
    return trial_words(trial, _doubt(trial))


def tuning_text(tuning: Tuning, width: int | None = None) -> str:
    """What was proven, and predicted against achieved for every trial; wrapped to `width`."""
    return section_text(tuning_section(tuning.trials, tuning), width)


def tuning_section(trials: Sequence[Trial], tuned: Tuning | None) -> Section:
    """What was proven, what was tried, what was not and why."""
    ran = [each for each in trials if each.outcome not in ("refused", "skipped")]
    others = [*_refusals(trials), *_skipped(trials)]
    ends = [] if tuned is None else _verdict(tuned)
    drawn = section("", _gains(trials, tuned), on="page")
    return section(
        "Trials",
        *ends,
        drawn if drawn.parts else None,
        _table(ran),
        listed(others) if others else None,
        None if tuned is None or not tuned.recipe else Line(name="recipe", text=tuned.recipe),
    )


def _verdict(tuned: Tuning) -> list[Line]:
    undone = [f"the guard reverted {each.remedy}: {each.why}" for each in tuned.guard_undid]
    return [
        Line(text=tuned_words(tuned), tone="strong"),
        *([Line(name="note", text=tuned.note, tone="muted")] if tuned.note else []),
        *(Line(text=each, tone="worse") for each in undone),
    ]


def _gains(trials: Sequence[Trial], tuned: Tuning | None) -> Forest | None:
    gains = [
        interval_of(each, trial_label(each), each.outcome_word)
        for each in trials
        if each.achieved is not None or each.predicted is not None
    ]
    if tuned is not None and tuned.interval is not None:
        gains.append(
            Gain(name="all together", achieved=tuned.speedup, interval=tuned.interval, is_total=True)
        )
    return Forest(rows=gains) if gains else None


def interval_of(trial: Trial, name: str, said: str) -> Gain:
    """A trial's gain on an axis."""
    return Gain(
        name=name,
        achieved=trial.achieved,
        interval=trial.interval,
        predicted=trial.predicted,
        outcome=said,
        is_kept=trial.outcome == "kept",
    )


def _table(trials: Sequence[Trial]) -> PageTable:
    return PageTable(
        title="Every remedy that was tried, in its order.",
        heads=TRIAL_HEADS,
        rows=[
            [
                *(Cell(text=trial_label(each)), factor(each.predicted)),
                figure(gain_words(each.achieved, each.interval), each.achieved),
                *(count(each.blocks // 2), count(each.steps), time(each.duration_ns)),
                *words(each.peaks.words, f"{each.class_}{_doubt(each)}", each.outcome_word, each.why),
            ]
            for each in trials
        ],
    )


def _refusals(trials: Sequence[Trial]) -> list[str]:
    """One line for each remedy that does not fit the job, however many of its options were tried."""
    reasons: dict[str, str] = {}
    for trial in trials:
        if trial.outcome == "refused":
            reasons.setdefault(trial.remedy, trial.why)
    return [f"does not fit here: {remedy}: {why}" for remedy, why in reasons.items()]


def _skipped(trials: Sequence[Trial]) -> list[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for trial in trials:
        if trial.outcome == "skipped":
            predicted = "" if trial.predicted is None else f" ({factor_words(trial.predicted)} predicted)"
            reasons.setdefault(trial.why, []).append(trial_label(trial) + predicted)
    return [f"not tried: {', '.join(names)}: {why}" for why, names in reasons.items()]


def beyond(advice: Sequence[Advice]) -> list[str]:
    """What the diagnosis advises and no running step can try, with the command that would prove it."""
    lines = []
    for each in advice:
        if each.reach in LATER:
            gain = "" if each.expected is None else f", {factor_words(each.expected)} predicted"
            allow = "" if each.class_ in ("bitwise", "rounding") else f" --allow {each.class_}"
            command = f"autobrrr tune --param {each.remedy}{allow} -- CMD"
            said = f"{each.remedy} ({LATER[each.reach]}{gain}); to prove it: {command}"
            lines.append(f"advised, but not for a running job: {said}")
    return lines


def _doubt(trial: Trial) -> str:
    remedy = REGISTRY.get(trial.remedy)
    return " (unproven)" if remedy is not None and remedy.unproven else ""
