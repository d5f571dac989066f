"""Cures that only the script's author can apply: what to write differently, at which line. Never tried.

One row an edit: what it treats, what it does to the numbers, and a function from the measurements to
the reason, None where the job shows no need of it. Lines come from the code that was running.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.advice.gradient_accumulation import accumulation
from autobrrr.diagnosis.advice.written_attention import written_attention
from autobrrr.diagnosis.ledger import PYTHON, SAMPLER, WORKER, loading_parts, placed_trends, where_of, wheres
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.records import CodeSite, ExactnessClass, Where

NOTICEABLE = 0.03  # share of the step, or of the samples, from which an edit is worth its line
EACH_STEP = 0.9  # times a step
READ_BACK_OPS = ("_local_scalar_dense",)
GATED = "synchronises by hand"
FEWEST_SAMPLES = 3
MUCH_OF_IT = 0.25  # of a function's time, for its line to be the cause
LISTED = 0.9  # of a loop over tensors, what goes with operators over lists; an EMA over 222 measured 0.94
LINE_KINDS = ("collects", "saves", "picks rows", "guards", "makes tensors", "updates")
MANY_OPERATORS = 3  # in the optimizer, for each tensor of parameters

TORCH_OPTIMIZERS = ("Ada", "SGD", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "LBFGS")

Why = Callable[[Measurements], str | None]
Gain = Callable[[Measurements], float | None]


def _unpriced(measured: Measurements) -> float | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One edit of the script."""

    name: str
    cls: ExactnessClass
    why: Why
    gain: Gain = _unpriced


def needed_edits(measured: Measurements) -> list[tuple[Edit, str]]:
    """The edits that this job asks for, each with its reason."""
    if measured.outside:
        return []
    found = ((edit, edit.why(measured)) for edit in EDITS)
    return [(edit, why) for edit, why in found if why is not None]


def sites(measured: Measurements, what: str) -> list[CodeSite]:
    """Places of one kind in the code that was running, the dearest first."""
    found = measured.frames.code if measured.frames is not None else []
    return sorted((site for site in found if site.what == what), key=lambda site: -site.samples)


def _at_line(name: str, what: str, removed: float, said: str, cls: ExactnessClass = "bitwise") -> Edit:
    """An edit of a line that the thread was found at.

    Args:
        what: Kind of the place.
        removed: Of the time there, what goes.
        said: What to write there, after where it is and what it takes.
    """

    def found(measured: Measurements) -> tuple[str, float] | None:
        for site in sites(measured, what):
            row = where_of(measured, site.where)
            if row is not None and _share(measured, site) >= MUCH_OF_IT * row.share:
                return site.where, row.share
        return None

    def why(measured: Measurements) -> str | None:
        where, share = found(measured) or ("", 0.0)
        return f"{where} takes {of_one(share)} of the step with what is around it: {said}" if where else None

    def gain(measured: Measurements) -> float | None:
        _, share = found(measured) or ("", 0.0)
        return 1 / max(0.01, 1 - removed * share)

    return Edit(name=name, cls=cls, why=why, gain=gain)


def _on_cuda(measured: Measurements) -> bool:
    return measured.facts is not None and measured.facts.is_asynchronous


def _share(measured: Measurements, site: CodeSite) -> float:
    """The part of the samples that stood at a place; 0 where too few were taken."""
    frames = measured.frames
    enough = frames is not None and frames.samples > 0 and site.samples >= FEWEST_SAMPLES
    return site.samples / frames.samples if enough and frames is not None else 0.0


def _read_back(measured: Measurements) -> str | None:
    """On a CPU nothing waits for it: there it is no remedy."""
    places = sites(measured, "reads back")
    if not _on_cuda(measured) or not places:
        return None
    window = measured.profile
    counts = [one.count for one in window.by_op if one.op.endswith(READ_BACK_OPS)] if window else []
    waits = _share(measured, places[0])
    if sum(counts) < EACH_STEP and waits < NOTICEABLE:
        return None
    said = f"{of_one(waits)} of the samples stand there" if waits else f"{sum(counts):.0f} times a step"
    return (
        f"{places[0].where} reads a number back from the device in every step ({said}), and the host waits "
        "until all work queued before it is done: read it every n steps, or keep the sum on the device"
    )


def _blocking_copy(measured: Measurements) -> str | None:
    places = sites(measured, "copies")
    if not _on_cuda(measured) or not places:
        return None
    parts = step_parts(measured)
    spent = max(0.0 if parts is None else parts.phase.get("host_to_device", 0.0), _share(measured, places[0]))
    if spent < NOTICEABLE:
        return None
    return (
        f"{places[0].where} copies to the device and waits, {of_one(spent)} of the step: from pinned memory "
        "(pin_memory=True in the DataLoader) with non_blocking=True the host goes on meanwhile"
    )


def _no_sync(measured: Measurements) -> str | None:
    facts, anatomy = measured.facts, measured.anatomy
    if facts is None or anatomy is None or measured.frames is None or sites(measured, GATED):
        return None
    backwards = (measured.phases.backwards if measured.phases is not None else None) or 1
    if not facts.has_other_ranks or backwards < 2 or "DistributedDataParallel" not in anatomy.roots:
        return None
    return (
        f"{backwards} backwards a step each exchange all gradients between {facts.world_size} ranks; inside "
        "`with model.no_sync():` only the last one does"
    )


def _updates(measured: Measurements) -> str | None:
    """A loop over tensors in Python where torch has operators over lists."""
    places = sites(measured, "updates")
    if places and _share(measured, places[0]) >= NOTICEABLE:
        stand = of_one(_share(measured, places[0]))
        return (
            f"the loop at {places[0].where} updates tensors one by one, {stand} of the samples stand in "
            "it: torch._foreach_* (and torch.optim's foreach) do a list in one call"
        )
    traced, anatomy = measured.traced, measured.anatomy
    if traced is None or anatomy is None or not isinstance(kernel_work(traced), KernelWork):
        return None
    own = [name for name in anatomy.optimizers if not any(mark in name for mark in TORCH_OPTIMIZERS)]
    parts, tensors = step_parts(measured), anatomy.parameter_tensors or 0
    operators = traced.operations_by_phase.get("optimizer", 0.0)
    idle = None if parts is None else parts.idle("optimizer")
    if not own or not tensors or operators < MANY_OPERATORS * tensors or idle is None or idle < NOTICEABLE:
        return None
    return (
        f"{own[0]} runs {operators:.0f} operators a step for {tensors} tensors, and {of_one(idle)} of the "
        "step is their dispatch: torch._foreach_* does a list of tensors in one call"
    )


def _at_once(measured: Measurements) -> float | None:
    rows = [
        row for site in sites(measured, "updates")[:1] if (row := where_of(measured, site.where)) is not None
    ]
    return _without(LISTED * rows[0].share) if rows else None


def _loading(measured: Measurements, kind: str) -> float:
    part = loading_parts(measured).get(kind)
    return 0.0 if part is None else part.share


def _without(share: float) -> float | None:
    return 1 / max(0.01, 1 - share) if share >= NOTICEABLE else None


def _draws(measured: Measurements) -> str | None:
    part = loading_parts(measured).get(SAMPLER)
    if part is None or part.share < thresholds.OWN_WORK_AT:
        return None
    return (
        f"{of_one(part.share)} of the step draws indices, most at {part.where}, in the training process "
        "whatever the workers: draw those of an epoch at once, from tables that are made once"
    )


def _items(measured: Measurements) -> str | None:
    """What each item costs, where training waits for it: in a worker or in the loop itself."""
    parts = [part for kind, part in loading_parts(measured).items() if kind in (WORKER, "loads", "collate")]
    top = max(parts, key=lambda part: part.share, default=None)
    if top is None or top.share < thresholds.EXCLUDED_AT:
        return None
    return (
        f"{of_one(top.share)} of the step is making items, most at {top.where}: do once, ahead of training, "
        "what is the same in every epoch, and no more than the model takes"
    )


def _growing(measured: Measurements) -> Where | None:
    """The function that much of the step goes to, in a job whose steps grow."""
    grown = [one.where for one in placed_trends(measured) if (one.what, one.kind) == ("step", "grows")]
    row = where_of(measured, grown[0]) if grown and grown[0] is not None else None
    return row if row is not None and row.share >= thresholds.EXCLUDED_AT else None


def _grows(measured: Measurements) -> str | None:
    row = _growing(measured)
    if row is None:
        return None
    return (
        f"{row.place} takes {of_one(row.share)} of the step, and steps grow: it may go over all that was "
        "kept so far. A running figure, or once an epoch, costs the same in every step"
    )


def _beside(measured: Measurements) -> Where | None:
    """Python of the user's between the phases that takes much of the step, and is of no kind known here."""
    rows = [row for row in wheres(measured) if (row.phase, row.does) == ("other", PYTHON)]
    top = next((row for row in rows if row.share >= thresholds.EXCLUDED_AT), None)
    known = [where_of(measured, site.where) for kind in LINE_KINDS for site in sites(measured, kind)]
    return None if top in known or _growing(measured) is not None else top


def _less_often(measured: Measurements) -> str | None:
    row = _beside(measured)
    if row is None:
        return None
    return (
        f"{row.place} takes {of_one(row.share)} of the step in Python, between the phases: do it ahead of "
        "training, beside it in a thread or worker, or in every 10th step"
    )


def _padding(measured: Measurements) -> str | None:
    uneven = measured.anatomy.uneven if measured.anatomy is not None else []
    if not _on_cuda(measured) or not uneven:
        return None
    name, _, shape = uneven[0].partition(" ")
    side = next(side for side in map(int, shape.split("x")) if side % 8)
    return (
        f"{name} is {shape}, and {side} is no multiple of 8: tensor cores run such products below their "
        f"rate. Pad it to {-(-side // 64) * 64} (or {-(-side // 8) * 8}), with outputs that the loss "
        "leaves out"
    )


EDITS = (
    Edit(
        name="edit.sampler",
        cls="stream",
        why=_draws,
        gain=lambda measured: _without(_loading(measured, SAMPLER)),
    ),
    Edit(
        name="edit.running_figure",
        cls="bitwise",
        why=_grows,
        gain=lambda measured: _without(0.9 * (row.share if (row := _growing(measured)) is not None else 0.0)),
    ),
    Edit(
        name="edit.less_often",
        cls="stream",
        why=_less_often,
        gain=lambda measured: _without(0.9 * (row.share if (row := _beside(measured)) is not None else 0.0)),
    ),
    Edit(name="edit.cheaper_items", cls="bitwise", why=_items),
    _at_line("edit.gc_collect", "collects", 1.0, "call gc.collect every few hundred steps, or not at all"),
    _at_line("edit.save_less_often", "saves", 0.9, "save less often, or a copy in a thread"),
    _at_line("edit.rows_once", "picks rows", 0.9, "convert the table to arrays once, and index these"),
    _at_line(
        "edit.one_check",
        "guards",
        0.9,
        "torch.nn.utils.get_total_norm(grads, error_if_nonfinite=True) checks all at once",
    ),
    _at_line(
        "edit.stack_first",
        "makes tensors",
        0.9,
        "of a list of arrays, torch.from_numpy(np.stack(list)) is far faster",
    ),
    Edit(name="edit.item_every_n", cls="bitwise", why=_read_back),
    Edit(name="edit.non_blocking_copy", cls="bitwise", why=_blocking_copy),
    Edit(name="edit.no_sync", cls="rounding", why=_no_sync),
    Edit(name="edit.fused_attention", cls="rounding", why=written_attention),
    Edit(name="edit.foreach_update", cls="rounding", why=_updates, gain=_at_once),
    Edit(name="edit.padding", cls="rounding", why=_padding),
    Edit(name="batch.accumulation", cls="rounding", why=accumulation),
)
"""The one visible table of edits."""
