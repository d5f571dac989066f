"""Writes recipes: from a tuning's result, and as TOML."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from pathlib import Path

from autobrrr.recipe.recipe_contents import FIGURES, SCHEMA, Chosen, Match, Measured, Recipe
from autobrrr.records import JobFacts, Tuning


def from_tuning(tuning: Tuning, cores: int | None = None) -> Recipe:
    """What a tuning has kept, with its evidence.

    Args:
        cores: CPUs of the machine that it ran on; this process's own where it is None.
    """
    kept = [trial for trial in tuning.trials if trial.outcome == "kept"]
    job = tuning.job
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    machine = f"{cores} {'core' if cores == 1 else 'cores'}"
    measured_on = machine if job is None or job.torch is None else f"{machine}, torch {job.torch}"
    interval = None if tuning.interval is None else (tuning.interval[0], tuning.interval[1])
    return Recipe(
        match=match_of(job),
        remedies=tuple(chosen(trial.remedy, trial.options) for trial in kept),
        # Without an interval the speed-up was not confirmed by a closing run: no evidence.
        evidence=None
        if interval is None
        else Measured(
            speedup=tuning.speedup,
            at_least=True,
            interval=interval,
            baseline_ns=tuning.baseline,
            best_ns=tuning.best,
            host_peak_bytes=tuning.peaks.host_bytes,
            device_peak_bytes=tuning.peaks.device_bytes,
            measured_on=measured_on,
        ),
        numerics=tuning.class_,
    )


def match_of(job: JobFacts | None) -> Match:
    """The scripts and device that a recipe of this job is for."""
    if job is None:
        return Match()
    return Match(script=glob.escape(Path(job.script).name) or None, device=job.recipe_device)


def chosen(remedy: str, options: Mapping[str, object]) -> Chosen:
    """A remedy with those of its options that a recipe can hold."""
    values = {key: value for key, value in options.items() if isinstance(value, str | int | float | bool)}
    return Chosen(name=remedy, options=values)


def dump(recipe: Recipe) -> str:
    """The recipe as TOML; reading it gives an equal recipe."""
    top: dict[str, object] = {"schema": SCHEMA}
    if recipe.description is not None:
        top["description"] = recipe.description
    match = {key: getattr(recipe.match, key) for key in ("script", "device", "torch")}
    tables = {
        "match": [_line(key, value) for key, value in match.items() if value is not None],
        "remedies": [_remedy(chosen) for chosen in recipe.remedies],
        "args": [_line(flag, value) for flag, value in recipe.args.items()],
        "env": [_line(name, value) for name, value in recipe.env.items()],
        "evidence": [] if recipe.evidence is None else _evidence(recipe.evidence),
        "numerics": [] if recipe.numerics is None else [_line("class", recipe.numerics)],
    }
    written = {
        name: lines
        for name, lines in tables.items()
        if lines or (name == "evidence" and recipe.evidence is not None)
    }
    sections = [
        _dumps(top),
        *("\n".join([f"[{name}]", *lines]) + "\n" for name, lines in written.items()),
    ]
    return "\n".join(sections)


def _line(key: str, value: object) -> str:
    return _dumps({key: value}).rstrip("\n")


def _remedy(chosen: Chosen) -> str:
    """`"name" = { option = value }`: in one line, so that the order of the file is the recipe's."""
    if not chosen.options:
        return _line(chosen.name, True)
    options = ", ".join(_line(key, value) for key, value in chosen.options.items())
    return f'"{chosen.name}" = {{ {options} }}'


def _evidence(measured: Measured) -> list[str]:
    lines = [
        _line(key, value)
        for key in ("speedup", *FIGURES, "measured_on")
        if (value := getattr(measured, key)) is not None
    ]
    if measured.interval is not None:
        low, high = measured.interval
        lines.insert(1 if measured.speedup is not None else 0, f"interval = [{low!r}, {high!r}]")
    if measured.at_least:
        lines.append(_line("at_least", True))
    return lines


def _dumps(table: dict[str, object]) -> str:
    import tomli_w  # only where a recipe is written: a sidecar starts without it

    return tomli_w.dumps(table)
