"""A tuning in words: a line of progress, a line for each trial, a table at the end."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.records import Advice, NoClaim, Trial, TuneProgress, Tuning
from autobrrr.records.gain_words import factor_words, gain_words, interval_words
from autobrrr.records.tuning_records import NO_PEAKS
from autobrrr.report.text_table import text_table

LATER = {"next_epoch": "from the next epoch on", "relaunch": "from the start on"}
HEADINGS: tuple[str, ...] = (
    "remedy",
    "predicted",
    "achieved",
    "interval",
    "memory",
    "class",
    "outcome",
    "why",
)


def progress_line(progress: TuneProgress) -> str:
    """`[12 of 60 s] trying optimizer.fused: 1.12x [1.08–1.16], 8 A/B pairs`."""
    spent, whole = progress.elapsed_ns / 1e9, progress.budget_ns / 1e9
    return f"[{spent:.0f} of {whole:.0f} s] {progress.text}"


def trial_line(trial: Trial) -> str:
    """`kept optimizer.fused: faster: 1.12x ...`."""
    return f"{trial.outcome_word} {label(trial)}{_doubt(trial)}: {trial.why}"


def tuning_table(tuning: Tuning, width: int | None = None) -> str:
    """Predicted against achieved for every trial, then the figure of the confirmation run.

    Args:
        width: Of the terminal, for cells to be wrapped; None: they are not.
    """
    rows = [HEADINGS]
    refused = [trial for trial in tuning.trials if trial.outcome == "refused"]
    skipped = [trial for trial in tuning.trials if trial.outcome == "skipped"]
    rows += [cells(trial) for trial in tuning.trials if trial not in refused and trial not in skipped]
    if all(trial.peaks == NO_PEAKS for trial in tuning.trials):
        memory = HEADINGS.index("memory")
        rows = [(*row[:memory], *row[memory + 1 :]) for row in rows]
    lines = text_table(rows, width=width, wrap=(0, len(rows[0]) - 1)) if len(rows) > 1 else []
    lines += _refusals(refused)
    lines += _skipped(skipped)
    lines += ["", verdict(tuning)]
    if tuning.note:
        lines.append(f"note: {tuning.note}")
    lines += [f"the guard reverted {each.remedy}: {each.why}" for each in tuning.guard_undid]
    if tuning.recipe:
        lines.append(f"recipe: {tuning.recipe}")
    return "\n".join(lines).lstrip("\n")


def _refusals(refused: list[Trial]) -> list[str]:
    """One line for each remedy that does not fit the job, however many of its options were tried."""
    reasons: dict[str, str] = {}
    for trial in refused:
        reasons.setdefault(trial.remedy, trial.why)
    return (
        ["", *(f"does not fit here: {remedy}: {why}" for remedy, why in reasons.items())] if reasons else []
    )


def _skipped(skipped: list[Trial]) -> list[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for trial in skipped:
        predicted = "" if trial.predicted is None else f" ({factor_words(trial.predicted)} predicted)"
        reasons.setdefault(trial.why, []).append(label(trial) + predicted)
    return (
        ["", *(f"not tried: {', '.join(names)}: {why}" for why, names in reasons.items())] if reasons else []
    )


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


def verdict(tuning: Tuning) -> str:
    """The sentence at the end: what was kept, and what it brings."""
    if not tuning.kept:
        return "no remedy was proven faster; the job runs as before"
    kept = ", ".join(tuning.kept)
    if tuning.no_claim is NoClaim.CROWDED:
        return f"kept {kept} (class {tuning.class_}): faster beside other programs"
    if tuning.interval is None:
        unsaid = "no confirmation run, so their joint speed-up was not measured"
        return f"kept {kept} (class {tuning.class_}); {unsaid}"
    return (
        f"speed-up {gain_words(tuning.speedup, tuning.interval)}, from a confirmation run of "
        f"all against none; kept {kept} (class {tuning.class_})"
    )


def cells(trial: Trial) -> tuple[str, ...]:
    """A trial's row under `HEADINGS`."""
    return (
        label(trial),
        factor_words(trial.predicted),
        factor_words(trial.achieved),
        interval_words(trial.interval),
        trial.peaks.words,
        f"{trial.class_}{_doubt(trial)}",
        trial.outcome_word,
        trial.why,
    )


def _doubt(trial: Trial) -> str:
    remedy = REGISTRY.get(trial.remedy)
    return " (unproven)" if remedy is not None and remedy.unproven else ""


def label(trial: Trial) -> str:
    """`threads.intra_op(threads=1)`."""
    inside = ", ".join(f"{name}={value}" for name, value in trial.options.items())
    return f"{trial.remedy}({inside})" if inside else trial.remedy
