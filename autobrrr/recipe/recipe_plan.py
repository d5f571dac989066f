"""A recipe as an order: for the agent of a job that starts, or for the session of one that runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.recipe.recipe_contents import Recipe
from autobrrr.records.wire_answers import RemedyChoice


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
            {"name": chosen.name, "options": dict(chosen.options)}
            for chosen in recipe.remedies
            if chosen.name not in left_out
        ],
    }


def environment(recipe: Recipe, env: Mapping[str, str], left_out: Collection[str] = ()) -> dict[str, str]:
    """Variables that the recipe, and its remedies, want the job to start with."""
    found = dict(recipe.env)
    for chosen in recipe.remedies:
        remedy = REGISTRY[chosen.name]
        if remedy.environment is not None and chosen.name not in left_out:
            found |= remedy.environment(remedy.option_values(chosen.options), {**env, **found})
    return found


def live_remedies(recipe: Recipe) -> tuple[list[RemedyChoice], list[str]]:
    """What can be switched on in a job that runs, and a line for each thing that can't, or not at once."""
    live: list[RemedyChoice] = []
    said: list[str] = []
    for chosen in recipe.remedies:
        reach = REGISTRY[chosen.name].reach
        if reach == "relaunch":
            said.append(f"{chosen.name} is left out: it takes effect only when a run starts")
            continue
        live.append(
            RemedyChoice(remedy=chosen.name, options=dict(chosen.options), most_class=recipe.numerics)
        )
        if reach == "next_epoch":
            said.append(f"{chosen.name} takes effect from the next epoch on")
    # Workers before what needs workers: the job takes one after the other.
    order = list(REGISTRY)
    live.sort(
        key=lambda each: order.index(each.remedy) if REGISTRY[each.remedy].reach == "next_epoch" else -1
    )
    said += [f"{flag} is left out: flags take effect only when a run starts" for flag in recipe.args]
    said += [f"{name} is left out: variables take effect only when a run starts" for name in recipe.env]
    return live, said
