"""Trials and tunings in a sentence each, the same on the screen, on a page and in a log."""

from __future__ import annotations

from collections.abc import Mapping

from autobrrr.records import NoClaim, Trial, Tuning
from autobrrr.records.gain_words import gain_words


def label(remedy: str, options: Mapping[str, object]) -> str:
    """`threads.intra_op(threads=1)`."""
    inside = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{remedy}({inside})" if inside else remedy


def trial_label(trial: Trial) -> str:
    return label(trial.remedy, trial.options)


def trial_words(trial: Trial, doubt: str = "") -> str:
    """`kept optimizer.fused: faster: 1.12x ...`."""
    return f"{trial.outcome_word} {trial_label(trial)}{doubt}: {trial.why}"


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
