"""Cures that only the script's author can apply: what to write differently, at which line. Never tried.

One row an edit: what it does to the numbers, and a function from the measurements to the reason, None where
the job shows no need of it. Lines come from the code that was running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autobrrr.diagnosis.advice.gradient_accumulation import accumulation
from autobrrr.diagnosis.advice.ledger_edits import FEWEST_SAMPLES
from autobrrr.diagnosis.advice.written_attention import written_attention
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.sampled_frames import sites
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.records import Advice, CodeSite, ExactnessClass

NOTICEABLE = 0.03  # share of the step, or of the samples, from which an edit is worth its line
EACH_STEP = 0.9  # times a step
READ_BACK_OPS = ("_local_scalar_dense",)
GATED = "synchronises by hand"

Why = Callable[[Measurements], str | tuple[str, float | None] | None]  # the reason, what would go of the step


def needed_edits(measured: Measurements) -> list[Advice]:
    """Those that this job asks for."""
    found = []
    for name, (cls, why) in EDITS.items() if not measured.outside else ():
        said = why(measured)
        if said is not None:
            reason, saved = (said, None) if isinstance(said, str) else said
            expected = None if saved is None else round(1 / (1 - saved), 3)
            found.append(Advice(remedy=name, why=reason, reach="edit", class_=cls, expected=expected))
    return found


def _share(measured: Measurements, site: CodeSite) -> float:
    """The part of the samples that stood at a place; 0 where too few were taken."""
    frames = measured.frames
    enough = frames is not None and frames.samples > 0 and site.samples >= FEWEST_SAMPLES
    return site.samples / frames.samples if enough and frames is not None else 0.0


def _read_back(measured: Measurements) -> str | None:
    """On a CPU nothing waits for it: there it is no remedy."""
    places = sites(measured, "reads back")
    if not measured.on_device or not places:
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
    if not measured.on_device or not places:
        return None
    spent = _share(measured, places[0])
    if spent < NOTICEABLE:
        return None
    return (
        f"{places[0].where} copies to the device and waits, {of_one(spent)} of the step: from pinned memory "
        "(a DataLoader's pin_memory=True, else .pin_memory()) with non_blocking=True the host goes on"
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


def _padding(measured: Measurements) -> str | None:
    uneven = measured.anatomy.uneven if measured.anatomy is not None else []
    if not measured.on_device or not uneven:
        return None
    name, _, shape = uneven[0].partition(" ")
    side = next(side for side in map(int, shape.split("x")) if side % 8)
    return (
        f"{name} is {shape}, and {side} is no multiple of 8: tensor cores run such products below their "
        f"rate. Pad it to {-(-side // 64) * 64} (or {-(-side // 8) * 8}), with outputs that the loss "
        "leaves out"
    )


EDITS: Mapping[str, tuple[ExactnessClass, Why]] = {
    "edit.item_every_n": ("bitwise", _read_back),
    "edit.non_blocking_copy": ("bitwise", _blocking_copy),
    "edit.no_sync": ("rounding", _no_sync),
    "edit.fused_attention": ("rounding", written_attention),
    "edit.padding": ("rounding", _padding),
    "batch.accumulation": ("rounding", accumulation),
}
"""Edits that need their own code; `job_settings.toml` has those of settings, `ledger_edits.toml` of lines."""
