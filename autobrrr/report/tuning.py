"""A tuning in words: a line of progress, a line for each trial, a table at the end."""

from __future__ import annotations

from autobrrr.records import Trial, TuneProgress, Tuning

HEADINGS: tuple[str, ...] = ("remedy", "predicted", "achieved", "interval", "class", "outcome", "why")


def progress_line(progress: TuneProgress) -> str:
    """`[12 of 60 s] trying optimizer.fused: +12.0 % (+8.1 % to +16.0 %), 8 pairs of blocks`."""
    spent, whole = progress.elapsed_ns / 1e9, progress.budget_ns / 1e9
    return f"[{spent:.0f} of {whole:.0f} s] {progress.text}"


def trial_line(trial: Trial) -> str:
    """`kept optimizer.fused: faster: +12.0 % ...`."""
    return f"{trial.outcome} {label(trial)}: {trial.why}"


def tuning_table(tuning: Tuning) -> str:
    """Predicted against achieved for every trial, then the figure of the closing run."""
    rows = [HEADINGS]
    refused = [trial for trial in tuning.trials if trial.outcome == "refused"]
    for trial in tuning.trials:
        if trial in refused:
            continue
        rows.append(cells(trial))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
    lines += _refusals(refused)
    lines += ["", verdict(tuning)]
    if tuning.note:
        lines.append(f"note: {tuning.note}")
    lines += [f"the guard undid {each.remedy}: {each.why}" for each in tuning.guard_undid]
    if tuning.recipe:
        lines.append(f"recipe: {tuning.recipe}")
    return "\n".join(lines)


def _refusals(refused: list[Trial]) -> list[str]:
    """One line for each remedy that does not fit the job, however many of its options were tried."""
    reasons: dict[str, str] = {}
    for trial in refused:
        reasons.setdefault(trial.remedy, trial.why.removeprefix("refused: "))
    return (
        ["", *(f"does not fit here: {remedy}: {why}" for remedy, why in reasons.items())] if reasons else []
    )


def verdict(tuning: Tuning) -> str:
    """The sentence at the end: what was kept, and what it brings."""
    if not tuning.kept:
        return "nothing worth keeping was proven: speed-up 1.0, the job runs as before"
    kept = ", ".join(tuning.kept)
    if tuning.interval is None:
        return f"kept {kept} (class {tuning.class_}); no closing run, so no figure for all together"
    return (
        f"speed-up {factor(tuning.speedup)} ({bounds(tuning.interval)}), from a closing run of "
        f"all on against all off; kept {kept} (class {tuning.class_})"
    )


def cells(trial: Trial) -> tuple[str, ...]:
    """A trial's row under `HEADINGS`."""
    return (
        label(trial),
        factor(trial.predicted),
        factor(trial.achieved),
        bounds(trial.interval),
        trial.class_,
        trial.outcome,
        trial.why,
    )


def label(trial: Trial) -> str:
    """`threads.intra_op(threads=1)`."""
    inside = ", ".join(f"{name}={value}" for name, value in trial.options.items())
    return f"{trial.remedy}({inside})" if inside else trial.remedy


def factor(value: float | None) -> str:
    """`1.30x`."""
    return "-" if value is None else f"{value:.2f}x"


def bounds(interval: list[float] | None) -> str:
    """`1.21 to 1.39`."""
    return "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
