"""Edits of what the ledger shows, by the rows of `ledger_edits.toml`: lines of a kind, parts of the step.

In: measurements. Out: what to write differently at which line, with what it would bring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import zip_longest
from math import prod

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.advice.job_settings import edit_advice
from autobrrr.diagnosis.ledger import (
    EITHER,
    LOADS,
    OPERATORS,
    PYTHON,
    SAMPLER,
    SLEEPS,
    WORKER,
    WORKER_START,
    loading_parts,
    placed_trends,
    where_of,
    wheres,
)
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.roofs import op_stem, shapes_of
from autobrrr.diagnosis.models.sampled_frames import sites
from autobrrr.diagnosis.models.shares import MODEL_PHASES, step_parts, step_shares
from autobrrr.diagnosis.models.trends import evaluation_share, work_grows
from autobrrr.diagnosis.robust_stats import median, of_one, positive
from autobrrr.diagnosis.signals.uneven_steps import uneven_steps
from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.records import Advice, OpWork

Found = tuple[str, float] | None  # the user's line, its share of the step with what goes back through it
LOOPS, KEPT, UNUSED, REPEATED = "loops", "kept graphs", "unused graphs", "repeats backward"
CALLED, DROPS, TWINS = "calls the model", "drops gradients", "twins"
TORCH_OPTIMIZERS = ("Ada", "SGD", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "LBFGS")
FEWEST_SAMPLES = 3
MUCH_OF_IT = 0.25  # of a function's time, for its line to be the cause
MANY_OPERATORS = 100  # a step, for a loop of them to be one over items; fewer may be layers
CALLED_OFTEN = 8  # times for one update
LEAST_DISPATCH_NS = 3_000.0  # of an operator where none was timed
MANY_TIMES, SPREAD_OUT = 8, ("sub", "add", "mul", "div")  # as many numbers out as the larger input holds
SUMS = ("sum", "mean", "norm", "linalg_vector_norm")  # of a large tensor: else no product does the same
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


def costly_line(measured: Measurements, what: str) -> Found:
    """The dearest line of a kind that is much of what its function takes."""
    looks = 0 if measured.frames is None else measured.frames.samples
    found = [(site, where_of(measured, site.where)) for site in sites(measured, what)]
    for site, row in found:
        if row is not None and site.samples >= max(FEWEST_SAMPLES, MUCH_OF_IT * row.share * looks):
            own = sum(other.samples for other, at in found if at == row) / looks  # of the function's lines
            return site.where, min(row.share, own) if what in ITSELF else row.share
    return None


def _loading(measured: Measurements, *kinds: str) -> Found:
    parts = [part for kind, part in loading_parts(measured).items() if kind in kinds]
    top = max(parts, key=lambda part: part.share, default=None)
    return None if top is None or top.where is None else (top.where, top.share)


def _grows(measured: Measurements) -> Found:
    """The function that grows, in a job whose steps do, and what of the step that is."""
    grown = [one for one in placed_trends(measured) if (one.what, one.kind) == ("step", "grows")]
    row = where_of(measured, grown[0].where or "") if grown else None
    if row is None:
        return None
    sure = work_grows(measured) or row.phase not in MODEL_PHASES or row.does != OPERATORS
    # A model works without growing, too: of its line no more may go than steps grew by.
    return row.place, row.share if sure else min(row.share, 1 - grown[0].first / grown[0].last)


def _evaluates(measured: Measurements) -> Found:
    """The line that has most of the long steps, where these are those with an evaluation."""
    found = [one.where for one in placed_trends(measured) if one.kind == "periodic"]
    if not found or found[0] is None:
        return None
    row = where_of(measured, found[0])
    return None if row is not None and row.does == WORKER_START else (found[0], evaluation_share(measured))


def _unknown(measured: Measurements, does: str) -> Found:
    """Code of the user's between the phases, of no kind known here, by what it does."""
    kinds = (does, EITHER) if does == OPERATORS and not measured.on_device else (does,)
    row = next((row for row in wheres(measured) if row.phase == "other" and row.does in kinds), None)
    known = {*rows_beside(__file__)} - {LOOPS, KEPT, "validates"}  # checks are never all that a line does
    places = [site.where for site in sites(measured, *known)]
    places += [one[0] for one in (_loops(measured), _evaluates(measured)) if one is not None]
    if row is None or _grows(measured) or row in [where_of(measured, place) for place in places]:
        return None
    parts = step_parts(measured)  # by the clock the loss is part of forward, and no step can do without it
    less = parts is not None and parts.phase.get("other", 1.0) < thresholds.NAMED_AT * row.share
    seen = (uneven_steps(measured).value or 0.0) < thresholds.NAMED_AT  # by the clock: long steps are few
    return None if does != SLEEPS and less and seen else (row.place, row.share)


def _own_optimizer(measured: Measurements) -> Found:
    """The dearest line of optimizers that are all the script's own, where it is no loop over tensors."""
    names = [] if measured.anatomy is None else measured.anatomy.optimizers
    row = next((row for row in wheres(measured) if (row.phase, row.does) == ("optimizer", OPERATORS)), None)
    if row is None or not names or any(mark in name for name in names for mark in TORCH_OPTIMIZERS):
        return None
    return None if costly_line(measured, "updates") else (row.place, row.share)


def _loops(measured: Measurements) -> Found:
    """A loop of operators: many, and those that the rest of the phase can't hold explain enough of it."""
    found, traced, parts = costly_line(measured, LOOPS), measured.traced, step_parts(measured)
    row = None if found is None else where_of(measured, found[0])
    if row is None or traced is None or parts is None or row.phase not in (*MODEL_PHASES, "other"):
        return None
    by_phase, phases, cost_ns = traced.operations_by_phase, [row.phase], positive(traced.op_cost_ns)
    if row.phase == "other" and by_phase.get("other", 0.0) < by_phase.get("forward", 0.0):
        phases.append("forward")  # to the clock, what lies between model and backward is forward
    operators = sum(by_phase.get(name) or 0.0 for name in phases)
    elsewhere = max(0.0, sum(parts.phase.get(name, 1.0) for name in phases) - row.share)
    if not by_phase:  # too many to be timed: counted over all phases
        operators, elsewhere = positive(median(traced.operations)) or 0.0, 0.0
    dispatch = operators * (cost_ns or LEAST_DISPATCH_NS) / parts.step_ns
    if operators < MANY_OPERATORS or dispatch - elsewhere < thresholds.EXCLUDED_AT * row.share:
        return None
    forward = sum(parts.phase.get(name, 0.0) for name in phases) if "forward" in phases else 0.0
    back = min(1.0, row.share / forward) * parts.phase.get("backward", 0.0) if forward else 0.0
    return row.place, min(1.0, row.share + back)


def _called_often(measured: Measurements) -> Found:
    """A loop that calls the model many times as a rule: the model's part of it, and its own."""
    calls, found = measured.anatomy and measured.anatomy.calls_per_step, _recording(measured, CALLED)
    if found is None or (calls or 0) < CALLED_OFTEN:
        return None
    row = where_of(measured, found[0])
    return found[0], min(1.0, found[1] + (row.share if row is not None and row.phase == "other" else 0.0))


def _repeated(measured: Measurements) -> Found:
    """A loop over losses, each of which goes back through what they share; what one backward would save."""
    found, phases = costly_line(measured, REPEATED), measured.phases
    count = (0 if phases is None else phases.backwards) or 0
    return None if found is None or count < 2 else (found[0], found[1] * (1 - 1 / count))


def _spread_out(measured: Measurements) -> Found:
    """Kernels on a large tensor that is made of two small ones, and the line with most of that phase."""
    parts, traced = step_parts(measured), measured.traced
    if parts is None or parts.kernels is None or traced is None:
        return None
    sizes = [(max(map(prod, shapes_of(one)), default=0), one) for one in traced.work]
    summed = {(size, one.phase) for size, one in sizes if size and op_stem(one) in SUMS}
    made = {size for one in traced.work if (size := _made_of_small(one), one.phase) in summed}
    found = [one for size, one in sizes if size in made or _made_of_small(one) in made]
    ahead = [one for one in found if one.phase != "backward"]  # the line that makes it
    phases = {one.phase for one in ahead}
    phases |= {"other"} if "forward" in phases else set()  # to the clock, a loss is forward
    row = next((row for row in wheres(measured) if row.phase in phases and row.does != SLEEPS), None)
    if row is None or not _ns(traced.work):
        return None
    whole = sum(parts.kernels.values()) / _ns(traced.work)
    much = row.share >= thresholds.NAMED_AT * whole * _ns(ahead)
    return (row.place, whole * _ns(found)) if much else None


def _ns(work: Iterable[OpWork]) -> float:
    return sum(one.kernel_ns for one in work)


def _made_of_small(one: OpWork) -> int:
    """How many numbers it makes by holding each of one tensor against each of another; 0: it does not."""
    shapes = shapes_of(one)[:2]
    if len(shapes) < 2 or op_stem(one) not in SPREAD_OUT:
        return 0
    made = prod(map(max, zip_longest(*map(reversed, shapes), fillvalue=1)))
    return made if made >= MANY_TIMES * max(map(prod, shapes)) else 0


def _half_on_cpu(measured: Measurements) -> Found:
    """What products of short floats take beyond float32 on a CPU that has no instructions for them."""
    parts, traced, peaks = step_parts(measured), measured.traced, measured.peaks
    if measured.bf16 is not False or parts is None or parts.kernels is None:
        return None
    if traced is None or peaks is None:
        return None
    short = [one for one in traced.work if one.dtype in ("bfloat16", "float16") and one.flops]
    more_ns = sum(max(0.0, one.kernel_ns - 1e9 * (one.flops or 0.0) / peaks.matmul_flops) for one in short)
    return "", sum(parts.kernels.values()) * more_ns / max(1.0, sum(one.kernel_ns for one in traced.work))


def _prints(measured: Measurements) -> Found:
    """Tensors that are turned to text; not a device's: the line waits for kernels, as another would then."""
    return None if measured.on_device else costly_line(measured, "prints")


def _twins(measured: Measurements) -> Found:
    """The call of many networks of one shape, and what dispatch takes of the step."""
    found, overhead = _recording(measured, TWINS), step_shares(measured).overhead
    return None if found is None or overhead is None else (found[0], overhead)


def _recording(measured: Measurements, what: str) -> Found:
    """The call of the model whose graphs have this end, and its part of the looks."""
    looks = 1 if measured.frames is None else measured.frames.samples
    return next(((site.where, site.samples / max(1, looks)) for site in sites(measured, what)), None)


PARTS: Mapping[str, Callable[[Measurements], Found]] = {
    LOOPS: _loops,
    CALLED: _called_often,
    REPEATED: _repeated,
    "spreads out": _spread_out,
    "short floats": _half_on_cpu,
    "sampler": lambda measured: _loading(measured, SAMPLER),
    "items": lambda measured: _loading(measured, WORKER, LOADS, "collate"),
    "grows": _grows,
    "evaluates": _evaluates,
    "own optimizer": _own_optimizer,
    "prints": _prints,
    **{does: partial(_unknown, does=does) for does in (OPERATORS, PYTHON, SLEEPS)},
    KEPT: lambda measured: _recording(measured, KEPT),
    TWINS: _twins,
    **{what: partial(_recording, what=what) for what in (UNUSED, DROPS)},
}
