"""What a screen shows beside the snapshot: history, remedies that may be tried, the recipe so far.

In: a session, the last tuning. Out: `wire_answers.Details`. Asked for about once a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from autobrrr import recipe
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.errors import AutobrrrError
from autobrrr.recipe.recipe_contents import Value
from autobrrr.records import Diagnosis, ExactnessClass, JobFacts, Reach, TuneProgress, Tuning
from autobrrr.records.tuning_records import TuneRequest
from autobrrr.records.wire_answers import ActiveRemedy, Details, RecipeNow, RemedyLine
from autobrrr.sidecar.session.session import Session
from autobrrr.tuner.candidate_space import allowed_classes, candidates

MOST_OPERATORS = 12


def details(
    session: Session,
    tuned: Tuning | None,
    progress: TuneProgress | None,
    paused: bool,
    asked: TuneRequest | None,
) -> Details:
    """The session at this moment, as a screen shows it.

    Args:
        tuned: The result of the last tuning of this session.
        progress: Where the tuning that runs stands.
        asked: What the tuning that runs was asked for.
    """
    findings = session.findings
    on = list(session.active.on.values()) if session.active is not None else []
    traced = findings.traced
    widest = sorted(traced.by_op, key=lambda op: -op.kernel_ns) if traced is not None else []
    return Details(
        history=findings.history.history(findings.window.step_ns),
        active=on,
        remedies=_remedies(findings.facts, findings.cores_each, session.snapshot(), asked),
        operators=widest[:MOST_OPERATORS],
        recipe=recipe_now(on, tuned, findings.facts),
        progress=progress,
        tuned=tuned,
        paused=paused,
    )


def recipe_now(on: Iterable[ActiveRemedy], tuned: Tuning | None, facts: JobFacts | None) -> RecipeNow | None:
    """What is on as a recipe; with the tuning's evidence where that is exactly what it kept."""
    active = list(on)
    if not active:
        return None
    chosen = tuple(recipe.chosen(each.remedy, each.options) for each in active)
    kept = None if tuned is None else recipe.from_tuning(tuned)
    if kept is not None and _by_name(kept.remedies) == _by_name(chosen):
        made = kept
    else:
        made = recipe.Recipe(match=recipe.match_of(facts), remedies=chosen)
    text = recipe.dump(made)
    try:
        recipe.parse(text)
    except AutobrrrError as error:
        return RecipeNow(text=text, problem=error.message)
    return RecipeNow(text=text)


def _remedies(
    facts: JobFacts | None, cores: int | None, judged: Diagnosis, asked: TuneRequest | None
) -> list[RemedyLine]:
    if facts is None:
        return []
    allowed = allowed_classes(None if asked is None else asked.allow)
    only = None if asked is None else asked.only
    every: tuple[ExactnessClass, ...] = get_args(ExactnessClass)
    lines = [
        RemedyLine(
            remedy=each.choice.remedy,
            options=each.choice.settings,
            predicted=each.predicted,
            class_=each.cls,
            default=each.cls in allowed and (not only or each.choice.remedy in only),
            doc=REGISTRY[each.choice.remedy].doc,
        )
        for each in candidates(facts=facts, cores=cores, verdict=judged, allowed=every)
    ]
    listed = {line.remedy for line in lines}
    reaches: tuple[Reach, ...] = get_args(Reach)
    return lines + [
        RemedyLine(
            remedy=advice.remedy,
            predicted=advice.expected,
            reach=advice.reach if advice.reach in reaches else "relaunch",
            class_=advice.class_,
            default=False,
            doc=advice.why,
        )
        for advice in judged.advice
        if advice.remedy not in listed
    ]


def _by_name(remedies: Iterable[recipe.Chosen]) -> dict[str, dict[str, Value]]:
    return {each.name: dict(each.options) for each in remedies}
