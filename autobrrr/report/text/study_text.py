"""A study of relaunched trials as text: every trial with its gain, then the confirmed figure."""

from __future__ import annotations

from autobrrr.records import Trial, Tuning
from autobrrr.records.gain_words import factor_words, gain_words, interval_words
from autobrrr.report.text_table import text_table

UNITS = {"samples_per_s": "samples/s", "tokens_per_s": "tokens/s"}


def relaunch_table(tuning: Tuning, width: int | None = None) -> str:
    """Trials, the best first, and the figure of the fresh starts at the end."""
    rows = [("trial", "speed", "interval", "class", "outcome", "memory", "why")]
    for trial in sorted(tuning.trials, key=lambda each: -(each.achieved or 0.0)):
        rows.append(
            (
                trial.remedy,
                factor_words(trial.achieved),
                interval_words(trial.interval),
                trial.class_,
                outcome(trial),
                memory(trial.memory_bytes),
                trial.why if trial.outcome == "refused" else "",
            )
        )
    lines = text_table(rows, width=width, wrap=(0, 6))
    lines += ["", verdict(tuning)]
    if tuning.note:
        lines.append(f"note: {tuning.note}")
    if tuning.recipe:
        lines.append(f"recipe: {tuning.recipe}")
    return "\n".join(lines)


def verdict(tuning: Tuning) -> str:
    """One sentence: what was proven."""
    if not tuning.kept:
        ran = sum(trial.outcome != "skipped" for trial in tuning.trials)
        counted = f"{ran} of {len(tuning.trials)} trials ran"
        return f"No faster setting was proven ({counted}). Yours: {rate(tuning, tuning.baseline)}."
    return (
        f"speed-up {gain_words(tuning.speedup, tuning.interval)} with {', '.join(tuning.kept)}"
        f" (class {tuning.class_}), from fresh starts side by side: {rate(tuning, tuning.baseline)}"
        f" as given, {rate(tuning, tuning.best)} now"
    )


def rate(tuning: Tuning, value: float | None) -> str:
    """A figure of the objective with its unit."""
    if value is None:
        return "not measured"
    unit = UNITS.get(tuning.objective)
    return f"{value / 1e6:.3g} ms a step" if unit is None else f"{value:.4g} {unit}"


def outcome(trial: Trial) -> str:
    return {"kept": "kept", "undone": "tried", "refused": "not possible"}.get(trial.outcome, trial.outcome)


def memory(count: int | None) -> str:
    """What a trial took, for people."""
    if count is None:
        return "-"
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
