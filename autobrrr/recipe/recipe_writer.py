"""Writes recipes: from a tuning's result, and as TOML."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from autobrrr.recipe.recipe_contents import SCHEMA, Chosen, Match, Measured, Recipe
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


def tables(recipe: Recipe) -> dict[str, dict[str, object]]:
    """What a recipe says beside its description, as the file has it: by table, what is there."""
    remedies = {chosen.name: dict(chosen.options) or True for chosen in recipe.remedies}
    found: dict[str, dict[str, object]] = {
        "match": msgspec.to_builtins(recipe.match),
        "remedies": dict(remedies),
        "args": dict(recipe.args),
        "env": dict(recipe.env),
    }
    found = {name: table for name, table in found.items() if table}
    if recipe.evidence is not None:
        found["evidence"] = msgspec.to_builtins(recipe.evidence)
    return found if recipe.numerics is None else {**found, "numerics": {"class": recipe.numerics}}


def dump(recipe: Recipe) -> str:
    """The recipe as TOML; reading it gives an equal recipe."""
    lines = [line("schema", SCHEMA)]
    lines += [] if recipe.description is None else [line("description", recipe.description)]
    for name, table in tables(recipe).items():
        lines += ["", f"[{name}]", *(line(key, value) for key, value in table.items())]
    return "\n".join(lines) + "\n"


def line(key: str, value: object) -> str:
    """A key with its value in one line, so that the order of the file is the recipe's."""
    if isinstance(value, dict):
        return f'"{key}" = {{ {", ".join(line(*option) for option in value.items())} }}'
    if isinstance(value, list | tuple):
        return f"{key} = [{', '.join(map(repr, value))}]"
    import tomli_w  # only where a recipe is written: a sidecar starts without it

    return tomli_w.dumps({key: value}).rstrip("\n")
