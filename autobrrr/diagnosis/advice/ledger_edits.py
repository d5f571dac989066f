"""Edits of what the ledger shows, by the rows of `ledger_edits.toml`: lines of a kind, parts of the step.

In: measurements. Out: what to write differently at which line, with what it would bring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise, zip_longest
from math import gcd, prod

from msgspec.structs import replace

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
    row_of_loop,
    where_of,
    wheres,
)
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.batch_fit import BatchFit, fit_batch
from autobrrr.diagnosis.models.roofs import op_stem, shapes_of
from autobrrr.diagnosis.models.sampled_frames import is_loading, placed, sites, standing
from autobrrr.diagnosis.models.shares import MODEL_PHASES, step_parts, step_shares
from autobrrr.diagnosis.models.trends import evaluation_share, work_grows
from autobrrr.diagnosis.robust_stats import median, of_one, positive
from autobrrr.diagnosis.signals.machine import busy_machine
from autobrrr.diagnosis.signals.steps import uneven_steps
from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.records import Advice, CodeSite, OpWork, Where

Found = tuple[str, float] | None  # the user's line, its share of the step with what goes back through it
LOOPS, BY_ITEM, LAYERS, REPEATED = "loops", "layers by item", "layers", "repeats backward"
KEPT, UNUSED, PLAIN = "kept graphs", "unused graphs", "without gradients"
CALLED, BY_ROW, TRAINS_BY_ROW, TWINS = "calls the model", "calls by row", "trains by row", "twins"
AGAIN, ANEW = "recomputes", "makes anew"
DROPS = ("goes too far", "drops gradients")
TORCH_OPTIMIZERS = ("Ada", "SGD", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "LBFGS")
FEWEST_SAMPLES = 3
SMALL_ITEM_NS, JOINED_AT = 30_000.0, 0.1  # joining items takes so much of making them at least
MUCH_OF_IT = 0.25  # of a function's time, for its line to be the cause
MANY_OPERATORS = 100  # a step, for a loop of them to be one over items; fewer may be layers
EACH_AGAIN = 20  # operators for each tensor of parameters: layers are called many times
CALLED_OFTEN = 8  # times for one update
NO_GRADIENT = 3.0  # times what backward takes
DISPATCHED = 0.6  # of the rest of a phase, at most: to get to an operator takes Python
LEAST_RUN = 0.2  # of a step, for what is counted of it to say something
LEAST_DISPATCH_NS = 3_000.0  # of an operator where none was timed
MANY_TIMES, SPREAD_OUT = 8, ("sub", "add", "mul", "div")  # as many numbers out as the larger input holds
PRODUCTS, LARGE_GRAPH, NARROW = ("mm", "addmm"), 1000, 4  # nodes; times the width of what they have
PICKED_TIMES = 3  # each row
ENLARGED_BACK = [f"upsample_{kind}2d_backward" for kind in ("nearest", "bilinear", "bicubic")]
FEW_ROWS, ITEM_BYTES = 0.5, {"float64": 8, "bfloat16": 2, "float16": 2}
TRANSFORMS, SMALL_PRIMES = ("aten._fft_r2c", "aten._fft_c2c"), (2, 3, 5, 7, 11)
SUMS = ("sum", "mean", "norm", "linalg_vector_norm")  # of a large tensor: else no product does the same


def ledger_edits(measured: Measurements) -> list[Advice]:
    """Those that this job asks for."""
    found = []
    for name, row in rows_beside(__file__).items():
        if measured.on_device and not row.get("on_device", True):
            continue
        part = PARTS[name](measured) if name in PARTS else costly_line(measured, name)
        if part is not None and part[1] >= getattr(thresholds, str(row.get("least")), 0.0):
            removed = None if "removed" not in row else float(str(row["removed"])) * part[1]
            found.append(edit_advice(row, removed, part[0], share=of_one(part[1])))
    return found


def costly_line(measured: Measurements, what: str) -> Found:
    """The dearest line of a kind that is much of what its function takes."""
    looks, told = 0 if measured.frames is None else measured.frames.samples, rows_beside(__file__)[what]
    kinds = [f"calls {name}" for name in told.get("calls", ())] or [what]
    dearest: dict[str, CodeSite] = {}
    for site in sites(measured, *kinds):
        dearest.setdefault(site.where, site)  # a line may call several
    found = [(site, where_of(measured, site.where)) for site in dearest.values()]
    for site, row in found:
        if row is None or told.get("phase") not in (None, row.phase):
            continue
        if site.samples >= max(FEWEST_SAMPLES, MUCH_OF_IT * row.share * looks):
            own = sum(other.samples for other, at in found if at == row) / looks  # of the function's lines
            return site.where, min(row.share, own) if told.get("itself") else row.share
    return None


def _transforms(measured: Measurements) -> Found:
    """Of lengths that are not known, or that have a large prime factor."""
    shapes = [shapes_of(one)[:1] for one in _work(measured) if one.op.startswith(TRANSFORMS)]
    lengths = [shape[-1] for each in shapes for shape in each if shape]
    odd = [size for size in lengths if size != prod(gcd(size, prime**32) for prime in SMALL_PRIMES)]
    return costly_line(measured, "transforms") if odd or not lengths else None


def _loading(measured: Measurements, *kinds: str) -> Found:
    parts = [part for kind, part in loading_parts(measured).items() if kind in kinds]
    top = max(parts, key=lambda part: part.share, default=None)
    return None if top is None or top.where is None else (top.where, top.share)


def _items(measured: Measurements) -> Found:
    """What makes items, where no call of a known kind takes most of it, nor what could be made once."""
    place, share = found = _loading(measured, WORKER, LOADS, "collate") or ("", 0.0)
    told = [line[1] for line in _known_calls(measured) if line[0] == place]
    told += [line[1] for line in (_recording(measured, ANEW), _small_items(measured)) if line is not None]
    return found if place and max(told, default=0.0) < thresholds.NAMED_AT * share else None


def _small_items(measured: Measurements) -> Found:
    """A loader without workers that takes next to no time for an item: most of it is Python around each."""
    parts, spent = step_parts(measured), loading_parts(measured)
    batch = measured.phases and measured.phases.batch
    workers = measured.anatomy and measured.anatomy.loader_workers
    made, joined = (spent[kind].share if kind in spent else 0.0 for kind in (LOADS, "collate"))
    found = _loading(measured, LOADS, "collate")
    if found is None or parts is None or not batch or workers != 0 or joined < JOINED_AT * made:
        return None
    return (found[0], made + joined) if (made + joined) * parts.step_ns <= SMALL_ITEM_NS * batch else None


def _known_calls(measured: Measurements) -> list[tuple[str, float]]:
    found = (costly_line(measured, name) for name, row in rows_beside(__file__).items() if "calls" in row)
    return [line for line in found if line is not None]


def _unless_known(measured: Measurements, found: Found) -> Found:
    """Nothing where a call of a known kind, in the same place, explains enough of it."""
    _, share = found or ("", 0.0)
    known = [where_of(measured, at) for at, part in _known_calls(measured) if part >= MUCH_OF_IT * share]
    return None if found is None or where_of(measured, found[0]) in known else found


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
    """Steps with an evaluation, and the line that has most of these: unseen, it may start workers."""
    place = next((one.where or "" for one in placed_trends(measured) if one.kind == "periodic"), None)
    row = where_of(measured, place) if place else None
    workers = not place and measured.anatomy and measured.anatomy.loader_workers
    starts = workers if row is None else row.does == WORKER_START
    return None if place is None or starts else (place, evaluation_share(measured))


def _measures(measured: Measurements) -> Found:
    """Calls without gradients in all steps, where of as much work nothing but numbers comes."""
    found, work = sites(measured, PLAIN), _work(measured)
    calls = sum(site.samples for site in found) / max(1, measured.frames.samples if measured.frames else 0)
    unread = sum(one.unread_ns for one in work) / max(1.0, _ns(work))
    return (found[0].where, calls) if found and unread >= thresholds.NAMED_AT * calls else None


def _unknown(measured: Measurements, does: str) -> Found:
    """Code of the user's between the phases, of no kind known here, by what it does."""
    kinds = (does, EITHER) if does == OPERATORS and not measured.on_device else (does,)
    row = next((row for row in wheres(measured) if row.phase == "other" and row.does in kinds), None)
    known = {*rows_beside(__file__)} - {LOOPS, KEPT, "validates"}  # checks are never all that a line does
    lines = (*(costly_line(measured, what) for what in known), _evaluates(measured))
    told = [where_of(measured, line[0]) for line in lines if line is not None]
    _, by_row = _recording(measured, BY_ROW) or ("", 0.0)  # with what is around these calls
    if row is None or row in told or row.share <= by_row or _in_loop(row, _loops(measured)):
        return None
    if _grows(measured):
        return None
    parts = step_parts(measured)  # by the clock the loss is part of forward, and no step can do without it
    less = parts is not None and parts.phase.get("other", 1.0) < thresholds.NAMED_AT * row.share
    seen = (uneven_steps(measured).value or 0.0) < thresholds.NAMED_AT  # by the clock: long steps are few
    return None if does != SLEEPS and less and seen else (row.place, row.share)


def _in_loop(row: Where, loop: Found) -> bool:
    """Whether it is a line of this loop: one below its first, with no more of the looks."""
    place, share = loop or ("", 0.0)
    file, line, function = placed(place)
    return (row.file, row.function) == (file, function) and row.line >= line and row.share <= share


def _own_optimizer(measured: Measurements) -> Found:
    """The dearest line of optimizers that are all the script's own, where it is no loop over tensors."""
    names = [] if measured.anatomy is None else measured.anatomy.optimizers
    row = next((row for row in wheres(measured) if (row.phase, row.does) == ("optimizer", OPERATORS)), None)
    if row is None or not names or any(mark in name for name in names for mark in TORCH_OPTIMIZERS):
        return None
    return None if costly_line(measured, "updates") else (row.place, row.share)


def _loops(measured: Measurements, back: bool | None = None) -> Found:
    """The dearest loop of operators, with what it calls; `back`: whether backward goes through it."""
    found = (_loop(measured, site) for site in sites(measured, LOOPS, BY_ITEM, LAYERS))
    place, share, goes_back = next((one for one in found if one is not None), (None, 0.0, None))
    return None if place is None or back not in (None, goes_back) else (place, share)


def _loop(measured: Measurements, site: CodeSite) -> tuple[str, float, bool] | None:
    """Whether there are many, and those that the rest of the phase can't hold explain enough of it."""
    traced, parts, row = measured.traced, step_parts(measured), row_of_loop(measured, site.where)
    frames = measured.frames
    if traced is None or parts is None or frames is None or site.samples < FEWEST_SAMPLES:
        return None
    share = site.samples / max(1, frames.samples)
    phase = "forward" if row is None else row.phase
    known = share <= parts.phase.get(phase, 0.0) if row is None else share >= MUCH_OF_IT * row.share
    if not known or phase not in (*MODEL_PHASES, "other"):
        return None
    share = max(share, row.share) if row is not None and row == where_of(measured, site.where) else share
    by_phase, phases, cost_ns = traced.operations_by_phase, [phase], positive(traced.op_cost_ns)
    if phase == "other" and by_phase.get("other", 0.0) < by_phase.get("forward", 0.0):
        phases.append("forward")  # to the clock, what lies between model and backward is forward
    operators = sum(by_phase.get(name) or 0.0 for name in phases)
    elsewhere = max(0.0, sum(parts.phase.get(name, 1.0) for name in phases) - share)
    if not by_phase:  # too many to be timed: counted over all phases
        operators, elsewhere = positive(median(traced.operations)) or 0.0, 0.0
    tensors = (None if measured.anatomy is None else measured.anatomy.parameter_tensors) or operators
    if site.what == LAYERS and operators < EACH_AGAIN * tensors:
        return None  # each may be another layer
    ran = max(LEAST_RUN, 1 - (busy_machine(measured).value or 0.0))  # else it waited for a CPU
    dispatch = operators * (cost_ns or LEAST_DISPATCH_NS) / (parts.step_ns * ran)
    straight = EACH_AGAIN * tensors / max(operators, 1.0) * dispatch  # at most, of all that no loop calls
    if site.what != LOOPS:  # most of its time is within layers, which have operators like all others
        dispatch, elsewhere = dispatch * share / (share + elsewhere), 0.0
    rest = min(DISPATCHED * elsewhere, straight)
    if operators < MANY_OPERATORS or dispatch - rest < thresholds.EXCLUDED_AT * share:
        return None
    goes_back = "forward" in phases and NO_GRADIENT * by_phase.get("backward", operators) >= operators
    # Looks tell the loop from the model, clocks how long both take: looks into backward may be more likely.
    looks = standing(frames, lambda at: at.samples * (at.phase in phases and not is_loading(at)))
    part = min(1.0, share / looks) if looks and goes_back else 0.0
    both = sum(parts.phase.get(name, 0.0) for name in (*phases, "backward"))
    return site.where, min(1.0, max(share, part * both)), goes_back or phase == "backward"


def _trained_by_row(measured: Measurements) -> Found:
    """Calls of one row that one backward goes through, with what is around each and what goes back."""
    found, parts = _recording(measured, TRAINS_BY_ROW), step_parts(measured)
    if found is None or parts is None or measured.frames is None:
        return None
    loops = {back: _loops(measured, back) or ("", 0.0) for back in (True, False)}
    around = {back: share * _in_one(place, found[0]) for back, (place, share) in loops.items()}
    looks = standing(measured.frames, lambda at: at.samples * (at.phase == "forward"))
    part = min(1.0, found[1] / looks) if looks else 0.0
    ahead = max(found[1], around[False])
    return found[0], min(1.0, max(around[True], ahead + part * parts.phase.get("backward", 0.0)))


def _other_loops(measured: Measurements, back: bool) -> Found:
    found, by_row = _loops(measured, back), _recording(measured, TRAINS_BY_ROW)
    return None if found and by_row and _in_one(found[0], by_row[0]) else found


def _in_one(place: str, other: str) -> bool:
    """Whether both are in one function."""
    return placed(place)[::2] == placed(other)[::2]


def _called_often(measured: Measurements) -> Found:
    """A loop that calls the model many times as a rule: the model's part of it, and its own."""
    calls, found = measured.anatomy and measured.anatomy.calls_per_step, _recording(measured, CALLED)
    if found is None or (calls or 0) < CALLED_OFTEN:
        return None
    row = where_of(measured, found[0])
    return found[0], min(1.0, found[1] + (row.share if row is not None and row.phase == "other" else 0.0))


def _repeated(measured: Measurements) -> Found:
    """Losses, each of which goes back through what they share; what one backward would save."""
    found, count = sites(measured, REPEATED), (measured.phases and measured.phases.backwards) or 0
    if not found or count < 2 or measured.frames is None:
        return None
    back = [row for row in wheres(measured) if row.phase == "backward"]
    file, _, function = placed(found[0].where)
    share = sum(row.share for row in back if (row.file, row.function) == (file, function))
    samples = sum(site.samples for site in found)
    much = samples >= max(FEWEST_SAMPLES, MUCH_OF_IT * share * measured.frames.samples)
    return (found[0].where, share * (1 - 1 / count)) if much else None


def _spread_out(measured: Measurements) -> Found:
    """Kernels on a large tensor that is made of two small ones."""
    sizes = [(max(map(prod, shapes_of(one)), default=0), one) for one in _work(measured)]
    # Of backward alone, it is a weight's gradient, or a sum that was spread out again.
    ahead = ((size, one) for size, one in sizes if size and one.phase != "backward")
    summed = {(size, one.phase) for size, one in ahead if op_stem(one) in SUMS}
    made = {size for _, one in sizes if (size := _made_of_small(one), one.phase) in summed}
    return _worked(measured, [one for size, one in sizes if size in made or _made_of_small(one) in made])


def _enlarged(measured: Measurements) -> Found:
    """What is enlarged to be given to a convolution of 1 x 1 that makes far fewer channels of it."""
    sides = [(one, op_stem(one), shapes_of(one) or [()]) for one in _work(measured)]
    back = {shapes[0]: stem for _, stem, shapes in sides if stem in ENLARGED_BACK}
    convolved = [(one, pairwise(shapes)) for one, stem, shapes in sides if stem.startswith("convolution")]
    wide = {x for _, stem, (x, *by) in sides if stem == "convolution" and by and by[0][2:] != (1, 1)}
    back = {x: stem for x, stem in back.items() if x not in wide}  # else another tensor may have its shape
    pairs = [(one, x, weight) for one, each in convolved for x, weight in each if x in back]
    narrow = {x: one for one, x, by in pairs if by[2:] == (1, 1) and NARROW * by[0] <= by[1]}
    enlarge = {(back[x].removesuffix(end), x[:2]) for x in narrow for end in ("", "_backward")}
    found = [one for one, stem, shapes in sides if (stem, shapes[0][:2]) in enlarge]
    return _worked(measured, [*(one for one, x, _ in pairs if x in narrow), *found])


def _drops_rows(measured: Measurements) -> Found:
    """A product wider than what goes in, of whose rows few are read on: what the others take."""
    work = [(one, shapes_of(one) or [()]) for one in _work(measured)]
    kept: defaultdict[tuple[int, int], float] = defaultdict(float)
    for one, (first, *index) in work:
        numbers = (one.bytes or 0.0) / (2 * ITEM_BYTES.get(one.dtype, 4))  # read and written
        if op_stem(one) in ("index", "index_select") and first and numbers >= first[-1] and index:
            kept[prod(first), first[-1]] += numbers / prod(first) if numbers != prod(index[0]) else 1.0
    wide = [
        (left[0] * right[-1], right[-1])
        for one, shapes in work
        if op_stem(one) in PRODUCTS and one.phase != "backward" and len(shapes) > 1
        for left, right in [shapes[-2:]]
        if right[-1] >= NARROW * left[-1]
    ]
    rest = {key: 1 - kept[key] for key in wide if 0 < kept[key] <= FEW_ROWS}
    found = [
        replace(one, kernel_ns=one.kernel_ns * max(left))
        for one, shapes in work
        if (left := [rest[key] for key in _sides(one, shapes) if key in rest])
    ]
    return _worked(measured, found, MUCH_OF_IT)


def _picks_first(measured: Measurements) -> Found:
    """Products of rows that were picked several times each: what once for each row would save."""
    work = [(one, shapes_of(one) or [()]) for one in _work(measured)]
    once = {
        (prod(index[0]) * first[-1], first[-1]): first[0] / prod(index[0])
        for one, (first, *index) in work
        if op_stem(one) in ("index", "index_select") and len(first) == 2 and index
        if prod(index[0]) > PICKED_TIMES * first[0]
    }
    found = [
        replace(one, kernel_ns=one.kernel_ns * (1 - max(again)))
        for one, shapes in work
        if op_stem(one) in PRODUCTS
        if (again := [once[key] for key in _sides(one, shapes) if key in once])
    ]
    return _worked(measured, found)


def _sides(one: OpWork, shapes: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Of each tensor how many numbers it has, and how long its rows or columns are; of products', too."""
    made = [(shapes[-2][0], shapes[-1][-1])] if op_stem(one) in PRODUCTS and len(shapes) > 1 else []
    return [(prod(each), side) for each in [*shapes, *made] if each for side in (each[0], each[-1])]


def _dense_graph(measured: Measurements) -> Found:
    """Products of one large square matrix with narrow ones, ahead and, as gradients of these, back."""
    found = [one for one in _work(measured) if op_stem(one) in PRODUCTS and _is_graph(*shapes_of(one)[-2:])]
    return _worked(measured, found) if {one.phase for one in found} >= {"forward", "backward"} else None


def _is_graph(left: tuple[int, ...] = (), right: tuple[int, ...] = ()) -> bool:
    return len(left) == 2 and left[0] == left[1] >= max(LARGE_GRAPH, NARROW * right[-1])


def _one_hot(measured: Measurements, targets: bool = False) -> Found:
    """Products with what a scatter has made of indices; or what a loss does with it besides a softmax."""
    sides = [(one, {(prod(each), each[-1]) for each in shapes_of(one)}) for one in _work(measured)]
    hot = {(prod(each), each[-1]) for one, _ in sides if "scatter" in one.op for each in shapes_of(one)[:1]}
    found = [one for one, each in sides if each & hot and (op_stem(one) in PRODUCTS) != targets]
    rest = [one for one in found if "log_softmax" not in one.op]
    return _worked(measured, rest) if not targets or rest != found else None


def _twice(measured: Measurements) -> Found:
    """What the step computes again, of the same tensors, ahead of backward."""
    again = [replace(one, kernel_ns=one.repeated_ns) for one in _work(measured) if one.repeated_ns]
    return _unless_known(measured, _worked(measured, again, MUCH_OF_IT))


def _worked(measured: Measurements, found: list[OpWork], most: float = thresholds.NAMED_AT) -> Found:
    """What these kernels take of the step, and the line with so much of the phase in which they begin."""
    parts, traced = step_parts(measured), measured.traced
    if parts is None or parts.kernels is None or traced is None or not found:
        return None
    ahead = [one for one in found if one.phase != "backward"]  # the line that makes it
    phases = {one.phase for one in ahead}
    phases |= {"other"} if "forward" in phases else set()  # to the clock, a loss is forward
    rows = (row for row in wheres(measured) if row.phase in phases and row.does not in (SLEEPS, PYTHON))
    row = next(rows, None)
    if row is None or not _ns(traced.work):
        return None
    whole = sum(parts.kernels.values()) / _ns(traced.work)
    much = row.share >= most * whole * _ns(ahead)
    return (row.place, whole * _ns(found)) if much else None


def _one_sample(measured: Measurements) -> Found:
    """What four samples in a step would save for each, where it has one, by the probe or by all products."""
    fit, ahead = fit_batch(measured.probe), [one for one in _work(measured) if one.phase == "forward"]
    sides = [shapes_of(one)[-2:-1] for one in ahead if op_stem(one) in (*PRODUCTS, "convolution")]
    known = fit.share if isinstance(fit, BatchFit) and fit.probe.batch == 1 else None
    share = step_shares(measured).overhead if {size[0] for side in sides for size in side} == {1} else known
    return None if share is None else ("", share * 3 / 4)


def _no_gradient(measured: Measurements) -> Found:
    """Kernels ahead of backward in which no weight has a part, or Python within the model."""
    rows = [row for row in wheres(measured) if row.phase in ("forward", "other") and row.does != SLEEPS]
    row = max(rows, key=lambda row: row.share, default=None)
    if row is None or measured.on_device or sites(measured, UNUSED):
        return None
    before = [one for one in _work(measured) if one.phase != "backward"]
    fixed = _worked(measured, [replace(one, kernel_ns=one.fixed_ns) for one in before])
    found = (row.place, row.share) if (row.phase, row.does) == ("forward", PYTHON) else fixed
    told = (_unknown(measured, does) for does in (OPERATORS, PYTHON))
    better = any(know(measured) for know in (_loops, _called_often, _evaluates, _grows, _measures))
    return None if better or found in told else _unless_known(measured, found)


def _work(measured: Measurements) -> list[OpWork]:
    return [] if measured.traced is None else measured.traced.work


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
    if measured.bf16 is not False or not (parts and parts.kernels and traced and peaks):
        return None
    short = [one for one in traced.work if one.dtype in ("bfloat16", "float16") and one.flops]
    more_ns = sum(max(0.0, one.kernel_ns - 1e9 * (one.flops or 0.0) / peaks.matmul_flops) for one in short)
    return "", sum(parts.kernels.values()) * more_ns / max(1.0, sum(one.kernel_ns for one in traced.work))


def _dispatched(measured: Measurements, what: str) -> Found:
    """A call that is made many times where once would do, and what dispatch takes of the step."""
    found, overhead = _recording(measured, what), step_shares(measured).overhead
    often = what == TWINS or ((measured.phases and measured.phases.backwards) or 0) >= CALLED_OFTEN
    return None if found is None or overhead is None or not often else (found[0], overhead)


def _recording(measured: Measurements, what: str) -> Found:
    """The call of the model whose graphs have this end, and its part of the looks."""
    found, looks = sites(measured, what), 1 if measured.frames is None else measured.frames.samples
    samples = sum(site.samples for site in found[: None if what == AGAIN else 1])  # each of a layer's lines
    return (found[0].where, samples / max(1, looks)) if found else None


PARTS: Mapping[str, Callable[[Measurements], Found]] = {
    **{what: partial(_other_loops, back=what == LOOPS) for what in (LOOPS, "plain loops")},
    TRAINS_BY_ROW: _trained_by_row,
    CALLED: _called_often,
    REPEATED: _repeated,
    "spreads out": _spread_out,
    "enlarges first": _enlarged,
    "drops rows": _drops_rows,
    "picks first": _picks_first,
    "dense graph": _dense_graph,
    "one-hot": _one_hot,
    "dense targets": partial(_one_hot, targets=True),
    "one sample": _one_sample,
    "no gradient": _no_gradient,
    "computes again": _twice,
    "short floats": _half_on_cpu,
    "sampler": lambda measured: _loading(measured, SAMPLER),
    "items": _items,
    "small items": _small_items,
    "grows": _grows,
    "evaluates": _evaluates,
    PLAIN: _measures,
    "own optimizer": _own_optimizer,
    "transforms": _transforms,
    **{does: partial(_unknown, does=does) for does in (OPERATORS, PYTHON, SLEEPS)},
    KEPT: lambda measured: _recording(measured, KEPT),
    **{what: partial(_dispatched, what=what) for what in (TWINS, "accumulates")},
    **{what: partial(_recording, what=what) for what in (UNUSED, *DROPS, AGAIN, BY_ROW, ANEW)},
}
