"""A tuning in words: a line of progress, a line for each trial, at the end the section that holds all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from autobrrr.quantities import size
from autobrrr.records import Advice, NoClaim, Trial, TuneProgress, Tuning
from autobrrr.records.gain_words import factor_words, gain_words
from autobrrr.records.tuning_records import NO_PEAKS
from autobrrr.records.verdict_records import label
from autobrrr.report import page_model as pm
from autobrrr.report.next_step import at_next_start, proving
from autobrrr.report.page_text import section_text

LATER = {"next_epoch": "from the next epoch on", "relaunch": "from the start on"}
TRIAL_HEADS = (
    *("remedy", "~-", "predicted:factor", "#achieved", "~A/B pairs:count", "~steps:count", "~took:ns"),
    *("memory", "~predicted memory:bytes", "class", "outcome", "why"),
)


def progress_line(progress: TuneProgress) -> str:
    """`[12 of 60 s] trying optimizer.fused: 1.12x [1.08–1.16], 8 A/B pairs`."""
    spent, whole = progress.elapsed_ns / 1e9, progress.budget_ns / 1e9
    return f"[{spent:.0f} of {whole:.0f} s] {progress.text}"


def trial_line(trial: Trial) -> str:
    """`kept optimizer.fused: faster: 1.12x ...`."""
    return f"{trial.outcome_word} {trial_label(trial)}{_doubt(trial)}: {trial.why}"


def tuning_text(tuning: Tuning, width: int | None = None) -> str:
    """What was proven, and predicted against achieved for every trial; wrapped to `width`."""
    return section_text(tuning_section(tuning.trials, tuning), width)


def tuning_section(trials: Sequence[Trial], tuned: Tuning | None) -> pm.Section:
    """What was proven, what was tried, what was not and why."""
    ran = [each for each in trials if each.outcome not in ("refused", "skipped")]
    others = [*_refusals(trials), *_skipped(trials)]
    ends = [] if tuned is None else tuned_lines(tuned)
    return pm.section(
        "Trials",
        *ends,
        trials_table("Every remedy that was tried, in its order.", ran, tuned) if ran else None,
        pm.listed(others) if others else None,
        None if tuned is None or not tuned.recipe else pm.Line(name="recipe", text=tuned.recipe),
    )


def tuned_lines(tuned: Tuning) -> list[pm.Line]:
    """What was kept, a note, and what the guard has reverted since."""
    undone = [f"the guard reverted {each.remedy}: {each.why}" for each in tuned.guard_undid]
    return [
        pm.Line(text=tuned_words(tuned), tone="better" if tuned.kept else "strong"),
        *([pm.Line(name="note", text=tuned.note, tone="muted")] if tuned.note else []),
        *(pm.Line(text=each, tone="worse") for each in undone),
    ]


def trials_table(
    title: str, trials: Sequence[Trial], tuned: Tuning | None, words: Mapping[str, str] = MappingProxyType({})
) -> pm.PageTable:
    """Every trial, what was predicted against what it achieved, and what was confirmed of all that is kept.

    Args:
        words: Words for outcomes, in place of the usual ones.
    """
    rows: list[Sequence[pm.Value]] = [
        (
            *(trial_label(each), _gain(each.achieved, each.interval, each.predicted), each.predicted),
            pm.figure(gain_words(each.achieved, each.interval), each.achieved),
            *(each.blocks // 2, each.steps, each.duration_ns),
            size(each.memory_bytes) if each.peaks == NO_PEAKS else each.peaks.words,
            *(each.predicted_memory_bytes, f"{each.class_}{_doubt(each)}"),
            *(words.get(each.outcome, each.outcome_word), each.why),
        )
        for each in trials
    ]
    if tuned is not None and tuned.interval is not None:
        sure = (_gain(tuned.speedup, tuned.interval), "", gain_words(tuned.speedup, tuned.interval))
        rows.append(("all together", *sure, *[""] * 7, "from a confirmation run"))
    return pm.table(title, TRIAL_HEADS, rows)


def _gain(
    achieved: float | None, interval: Sequence[float] | None, predicted: float | None = None
) -> pm.Cell:
    known = achieved is not None or predicted is not None
    return pm.Cell(gain=pm.Gain(achieved=achieved, interval=interval, predicted=predicted) if known else None)


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


def beyond(advice: Sequence[Advice], tuning: Tuning) -> list[str]:
    """What the diagnosis advises and no trial names, with its proof; the edit that beats what was kept."""
    lines, named = [], {each.remedy for each in tuning.trials}
    for each in advice:
        if each.reach in LATER and each.remedy not in named:
            gain = "" if each.expected is None else f", {factor_words(each.expected)} predicted"
            said = f"{each.remedy} ({LATER[each.reach]}{gain}); to prove it: {proving(each)}"
            lines.append(f"advised, but not for a running job: {said}")
    edits = [each for each in advice if each.reach == "edit" and (each.expected or 1.0) > tuning.speedup]
    return lines + [f"more than what is kept: {at_next_start(each)}" for each in edits[:1] if tuning.kept]


def _doubt(trial: Trial) -> str:
    from autobrrr.agent.remedies.families import REGISTRY  # not for --help, nor for a screen's first paint

    remedy = REGISTRY.get(trial.remedy)
    return " (unproven)" if remedy is not None and remedy.unproven else ""


def trial_label(trial: Trial) -> str:
    return label(trial.remedy, trial.options)


def tuned_words(tuning: Tuning) -> str:
    """What was kept, and what it brings."""
    kept = f"{', '.join(tuning.kept)} (class {tuning.class_})"
    if not tuning.kept:
        return "no remedy was proven faster; the job runs as before"
    if tuning.no_claim is NoClaim.CROWDED:
        return f"kept {kept}: faster beside other programs"
    if tuning.interval is None:
        return f"kept {kept}; no confirmation run, so their joint speed-up was not measured"
    gain = gain_words(tuning.speedup, tuning.interval)
    return f"speed-up {gain} with {kept}, from a confirmation run of all against none"
