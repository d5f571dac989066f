"""Edits of what the ledger shows, by the rows of `ledger_edits.toml`: lines of a kind, parts of the step.

In: measurements. Out: what to write differently at which line, with what it would bring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.advice.job_settings import edit_advice
from autobrrr.diagnosis.ledger import (
    LOADS,
    OPERATORS,
    PYTHON,
    SAMPLER,
    SLEEPS,
    WORKER,
    loading_parts,
    placed_trends,
    where_of,
    wheres,
)
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import MODEL_PHASES, step_parts
from autobrrr.diagnosis.models.trends import evaluation_share
from autobrrr.diagnosis.robust_stats import of_one, positive
from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.records import Advice, CodeSite

Found = tuple[str, float] | None  # the user's line, its share of the step
LOOPS, KEPT, UNUSED = "loops", "kept graphs", "unused graphs"
FEWEST_SAMPLES = 3
MUCH_OF_IT = 0.25  # of a function's time, for its line to be the cause
MANY_OPERATORS = 100  # a step, for a loop of them to be one over items; fewer may be layers
# An edit makes the call cheaper alone, and nothing around it.
ITSELF = ("makes tensors", "validates", "prints", "parametrizes", "deep copies")


def ledger_edits(measured: Measurements) -> list[Advice]:
    """Those that this job asks for."""
    found = []
    for name, row in rows_beside(__file__).items():
        part = PARTS[name](measured) if name in PARTS else costly_line(measured, name)
        if part is not None and part[1] >= getattr(thresholds, str(row.get("least")), 0.0):
            removed = None if "removed" not in row else float(str(row["removed"])) * part[1]
            found.append(edit_advice(row, removed, place=part[0], share=of_one(part[1])))
    return found


def sites(measured: Measurements, *kinds: str) -> list[CodeSite]:
    """Places of these kinds in the code that was running, the dearest first."""
    found = measured.frames.code if measured.frames is not None else []
    return sorted((site for site in found if site.what in kinds), key=lambda site: -site.samples)


def costly_line(measured: Measurements, what: str) -> Found:
    """The dearest line of a kind that is much of what its function takes."""
    looks = 0 if measured.frames is None else measured.frames.samples
    for site in sites(measured, what):
        row = where_of(measured, site.where)
        if row is not None and site.samples >= max(FEWEST_SAMPLES, MUCH_OF_IT * row.share * looks):
            return site.where, min(row.share, site.samples / looks) if what in ITSELF else row.share
    return None


def _loading(measured: Measurements, *kinds: str) -> Found:
    parts = [part for kind, part in loading_parts(measured).items() if kind in kinds]
    top = max(parts, key=lambda part: part.share, default=None)
    return None if top is None or top.where is None else (top.where, top.share)


def _grows(measured: Measurements) -> Found:
    """The function that much of the step goes to, in a job whose steps grow."""
    grown = [one.where for one in placed_trends(measured) if (one.what, one.kind) == ("step", "grows")]
    row = where_of(measured, grown[0]) if grown and grown[0] is not None else None
    return None if row is None else (row.place, row.share)


def _evaluates(measured: Measurements) -> Found:
    """The line that has most of the long steps, where these are those with an evaluation."""
    found = [one.where for one in placed_trends(measured) if one.kind == "periodic"]
    return (found[0], evaluation_share(measured)) if found and found[0] is not None else None


def _unknown(measured: Measurements, does: str) -> Found:
    """Code of the user's between the phases, of no kind known here, by what it does."""
    row = next((row for row in wheres(measured) if (row.phase, row.does) == ("other", does)), None)
    known = {*rows_beside(__file__)} - {LOOPS, KEPT, "validates"}  # checks are never all that a line does
    places, looped = [site.where for site in sites(measured, *known)], _loops(measured)
    places += [] if looped is None else [looped[0]]
    if row is None or _grows(measured) or row in [where_of(measured, place) for place in places]:
        return None
    return row.place, row.share


def _loops(measured: Measurements) -> Found:
    """A loop of operators: many, and those that the rest of the phase can't hold explain enough of it."""
    found, traced, parts = costly_line(measured, LOOPS), measured.traced, step_parts(measured)
    row = None if found is None else where_of(measured, found[0])
    if row is None or traced is None or parts is None or row.phase not in (*MODEL_PHASES, "other"):
        return None
    operators = traced.operations_by_phase.get(row.phase) or 0.0
    dispatch = operators * (positive(traced.op_cost_ns) or 0.0) / parts.step_ns
    elsewhere = max(0.0, parts.phase.get(row.phase, 1.0) - row.share)
    enough = dispatch - elsewhere >= thresholds.EXCLUDED_AT * row.share
    return found if enough and operators >= MANY_OPERATORS else None


def _prints(measured: Measurements) -> Found:
    """Tensors that are turned to text; not a device's: the line waits for kernels, as another would then."""
    waits = measured.facts is not None and measured.facts.is_asynchronous
    return None if waits else costly_line(measured, "prints")


def _recording(measured: Measurements, what: str) -> Found:
    """The call of the model whose graphs have this end, and its part of the looks."""
    looks = 1 if measured.frames is None else measured.frames.samples
    return next(((site.where, site.samples / max(1, looks)) for site in sites(measured, what)), None)


PARTS: Mapping[str, Callable[[Measurements], Found]] = {
    LOOPS: _loops,
    "sampler": lambda measured: _loading(measured, SAMPLER),
    "items": lambda measured: _loading(measured, WORKER, LOADS, "collate"),
    "grows": _grows,
    "evaluates": _evaluates,
    "prints": _prints,
    **{does: partial(_unknown, does=does) for does in (OPERATORS, PYTHON, SLEEPS)},
    KEPT: lambda measured: _recording(measured, KEPT),
    UNUSED: lambda measured: _recording(measured, UNUSED),
}
