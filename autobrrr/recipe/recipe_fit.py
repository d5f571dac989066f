"""A recipe on this machine: what of it does not fit, one line each; the rest as an order.

The order is for the agents of a job that starts, or for the session of one that runs.
"""

from __future__ import annotations

import fnmatch
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused
from autobrrr.recipe.recipe_contents import Recipe
from autobrrr.records import Advice

LONGEST_VERSIONS = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """What is here; None is not known, and fits."""

    script: str | None = None
    device: str | None = None
    torch: str | None = None
    cores: int | None = None
    environment: Mapping[str, str] | None = None


def here(script: str | None = None, program: str | None = None, root: Path = Path("/")) -> Here:
    """This machine, found without importing torch.

    Args:
        program: What is to run. Where it does not lie beside our own interpreter, its torch is not known.
    """
    found = None if program is None else shutil.which(program)
    ours = os.path.dirname(sys.executable)
    try:
        is_ours = program is None or (found is not None and os.path.dirname(os.path.abspath(found)) == ours)
        version = importlib.metadata.version("torch") if is_ours else None
    except importlib.metadata.PackageNotFoundError:
        version = None
    gpu = (root / "dev/nvidiactl").exists() or (root / "dev/kfd").exists()
    return Here(
        script=script,
        device="cuda" if gpu else "cpu",
        torch=version,
        cores=len(os.sched_getaffinity(0)),
        environment=os.environ,
    )


def misfits(recipe: Recipe, now: Here) -> list[str]:
    """One line for each thing of a valid recipe that does not fit; empty where all does."""
    found = []
    match = recipe.match
    if match.script is not None and now.script is not None and not _is_script(match.script, now.script):
        found.append(f"it is for {match.script}, this is {Path(now.script).name}")
    # A job on the CPU of a machine with a GPU is no misfit; a GPU that is missing is one.
    if match.device == "cuda" and now.device == "cpu":
        found.append("it is for a GPU, and this machine has none")
    if match.torch is not None and now.torch is not None and not satisfies(now.torch, match.torch):
        found.append(f"it is for torch {match.torch}, this is {now.torch}")
    for chosen in recipe.remedies:
        threads = chosen.options.get("threads")
        if isinstance(threads, int) and now.cores is not None and threads > now.cores:
            asks = f"{chosen.remedy} asks for {threads} threads, and {now.cores} CPUs are here"
            found.append(f"line {recipe.lines[chosen.remedy]}: {asks}")
    for name, why in unavailable(recipe, now).items():
        found.append(f"line {recipe.lines[name]}: {name} is left out: {why}")
    return found


def unavailable(recipe: Recipe, now: Here) -> dict[str, str]:
    """Remedies that can't be had here, whatever the job is, each with the reason."""
    found = {}
    for chosen in recipe.remedies:
        remedy = REGISTRY[chosen.remedy]
        if "cuda" in remedy.needs and now.device == "cpu":
            found[chosen.remedy] = "this machine has no GPU"
        elif remedy.environment is not None and now.environment is not None:
            begins_with = {**now.environment, **recipe.env}
            try:
                remedy.environment(remedy.option_values(chosen.options), begins_with)
            except Refused as refused:
                found[chosen.remedy] = str(refused)
    return found


def versions_problem(text: str) -> str | None:
    """What is wrong with a list of versions; None where nothing is."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # only where a recipe names versions

    try:
        if all(map(str.strip, text.split(","))) and len(text) <= LONGEST_VERSIONS:
            SpecifierSet(text).contains("1")
            return None
    except (InvalidSpecifier, ValueError):
        pass
    return f'versions {text[:60]!r}: write them like ">=2.4,<3" or "==2.13.*"'


def satisfies(version: str, clauses: str) -> bool:
    """True where a version meets every clause; local and pre-release parts are left out."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(clauses).contains(Version(version).base_version)
    except InvalidVersion:  # of a build of somebody's own
        return True


def _is_script(pattern: str, script: str) -> bool:
    return fnmatch.fnmatchcase(script if "/" in pattern else Path(script).name, pattern)


def plan(recipe: Recipe, left_out: Collection[str] = ()) -> dict[str, object]:
    """The plan that the agents of a starting run apply, in the order of the file.

    Args:
        left_out: Remedies that can't be had here.
    """
    return {
        "source": recipe.source,
        "script": recipe.match.script,
        "class": recipe.numerics,
        "remedies": [
            {"name": chosen.remedy, "options": dict(chosen.options)}
            for chosen in recipe.remedies
            if chosen.remedy not in left_out
        ],
    }


def environment(recipe: Recipe, env: Mapping[str, str], left_out: Collection[str] = ()) -> dict[str, str]:
    """Variables that the recipe, and its remedies, want the job to start with."""
    found = dict(recipe.env)
    for chosen in recipe.remedies:
        remedy = REGISTRY[chosen.remedy]
        if remedy.environment is not None and chosen.remedy not in left_out:
            found |= remedy.environment(remedy.option_values(chosen.options), {**env, **found})
    return found


def live_remedies(recipe: Recipe) -> tuple[list[Advice], list[str]]:
    """What can be switched on in a job that runs, and a line for each thing that can't, or not at once."""
    live: list[Advice] = []
    said: list[str] = []
    for chosen in recipe.remedies:
        if chosen.reach == "relaunch":
            said.append(f"{chosen.remedy} is left out: it takes effect only when a run starts")
            continue
        live.append(chosen)
        if chosen.reach == "next_epoch":
            said.append(f"{chosen.remedy} takes effect from the next epoch on")
    # Workers before what needs workers: the job takes one after the other.
    order = list(REGISTRY)
    live.sort(key=lambda each: order.index(each.remedy) if each.reach == "next_epoch" else -1)
    said += [f"{flag} is left out: flags take effect only when a run starts" for flag in recipe.args]
    said += [f"{name} is left out: variables take effect only when a run starts" for name in recipe.env]
    return live, said
