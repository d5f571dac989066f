"""A recipe as an order: for the agent of a job that starts, or for the session of one that runs."""

from __future__ import annotations

from autobrrr.recipe.contents import Recipe
from autobrrr.remedies.catalog import REGISTRY


def plan(recipe: Recipe) -> dict[str, object]:
    """The plan that the agent of a starting job applies, in the order of the file."""
    return {
        "source": recipe.source,
        "remedies": [{"name": chosen.name, "options": dict(chosen.options)} for chosen in recipe.remedies],
    }


def live_remedies(recipe: Recipe) -> tuple[list[tuple[str, dict[str, object]]], list[str]]:
    """What can be switched on in a job that runs, and a line for each thing that can't."""
    live: list[tuple[str, dict[str, object]]] = []
    said: list[str] = []
    for chosen in recipe.remedies:
        remedy = REGISTRY[chosen.name]
        if remedy.reach == "live":
            live.append((chosen.name, dict(chosen.options)))
        else:
            said.append(f"{chosen.name} is left out: it works from the start of a run only")
    said += [f"{flag} is left out: flags work from the start of a run only" for flag in recipe.args]
    return live, said
