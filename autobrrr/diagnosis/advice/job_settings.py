"""Settings that make a job slow whatever it computes, by the rows of `job_settings.toml`.

In: facts of the census and of the machine. Out: what to write instead, with what it would bring. They are
exact reads: no second signal is needed, and they hold on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import cast

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.ledger import wheres
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.roofs import shapes_of
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.robust_stats import median, of_one
from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.records import Advice, ExactnessClass, SettingFact

DENORMAL_TIMES = 5.0  # longer than others take, in an optimizer's update; measured
STILL_PADDED = 0.05  # of batches of similar length; measured on lognormal lengths in pools of 50 batches
WORTH, MODEL = 1.03, ("forward", "backward")
HIGHEST = 100.0


def costly_settings(measured: Measurements) -> list[Advice]:
    """Those that this job has, in the order of the table."""
    stopped = median([one.throttled_share for one in measured.host if one.throttled_share is not None])
    facts = {fact.name: fact for fact in measured.settings}
    if not any("conv" in one.op for one in (measured.profile.by_op if measured.profile else ())):
        facts.pop("cudnn_benchmark", None)
    if stopped is not None:
        facts["throttled"] = SettingFact(name="throttled", value=stopped)
    found = [
        _advice(row, facts[name], measured)
        for name, row in rows_beside(__file__).items()
        if name in facts and facts[name].value >= getattr(thresholds, str(row.get("least")), 0.0)
    ]
    return [one for one in found if one.expected is None or one.expected >= WORTH]


def edit_advice(row: Mapping[str, object], removed: float | None, place: str = "", **words: str) -> Advice:
    """One row, said of this job; `removed`: what of the step goes."""
    return Advice(
        remedy=str(row["edit"]),
        why=str(row["said"]).format(place=place, most=f", most at {place}" if place else "", **words),
        place=place,
        expected=None if removed is None else round(1 / max(1 / HIGHEST, 1 - removed), 3),
        reach="edit",
        class_=cast(ExactnessClass, row.get("class", "bitwise")),
    )


def _advice(row: Mapping[str, object], fact: SettingFact, measured: Measurements) -> Advice:
    where = f" at {fact.where}" if fact.where else ""
    removed = GAINS[str(row["gain"])](measured, fact) if "gain" in row else None
    value = of_one(fact.value if fact.value == 1 else min(fact.value, 0.99))
    return edit_advice(row, removed, value=value, detail=fact.detail, where=where)


def _update(measured: Measurements, fact: SettingFact) -> float | None:
    dearer = DENORMAL_TIMES * fact.value
    part = dearer / (1 + dearer) if fact.name == "denormals" else fact.value
    return _of_phase(measured, "optimizer", part)


def _of_phase(measured: Measurements, phase: str, part: float) -> float | None:
    parts = step_parts(measured)
    return None if parts is None or phase not in parts.phase else parts.phase[phase] * part


def _of_rows(measured: Measurements, fact: SettingFact) -> float | None:
    """With the update, what backward does to fill and add up gradients of rows that nothing uses."""
    update, parts, traced = _update(measured, fact), step_parts(measured), measured.traced
    spent_ns = {one.op: one.kernel_ns for one in traced.by_op} if traced else {}
    dense = spent_ns.get("aten.embedding_dense_backward", 0.0) / max(1.0, sum(spent_ns.values()))
    kernels = sum(parts.kernels.values()) if parts and parts.kernels else 0.0
    return None if update is None else update + fact.value * kernels * dense


def _half_of_kernels(measured: Measurements, fact: SettingFact) -> float | None:
    parts = step_parts(measured)
    kernels = None if parts is None or parts.kernels is None else sum(parts.kernels.values())
    return None if kernels is None else fact.value * min(1.0, kernels) / 2


def _of_copies(measured: Measurements, fact: SettingFact) -> float | None:
    """What the looks into the function of a hook take, which is given by its first line."""
    file, _, function = fact.detail.partition(":")
    ours = (file, function.partition(" ")[2])
    rows = [one for one in wheres(measured) if (one.file, one.function) == ours]
    return sum(one.share for one in rows) * fact.value if rows else None


def _of_padding(measured: Measurements, fact: SettingFact) -> float:
    """What kernels of the model spend on it: packed sequences have none, nor have other inputs."""
    parts, traced = step_parts(measured), measured.traced
    packed = traced is not None and any("_pack_padded" in one.op for one in traced.by_op)
    if packed or traced is None or parts is None or parts.kernels is None:
        return 0.0
    model = parts.kernels.get("forward", 0.0) + parts.kernels.get("backward", 0.0)
    rows, _, length = fact.detail.partition(" x ")
    sides = {int(length), int(rows) * int(length)} if length else set()
    work = [(one.kernel_ns, {*chain(*shapes_of(one))}) for one in traced.work if one.phase in MODEL]
    whole_ns = sum(ns for ns, _ in work)
    on_it = sum(ns for ns, shapes in work if sides & shapes) / whole_ns if sides and whole_ns else 1
    return model * on_it * max(0.0, fact.value - STILL_PADDED)


GAINS: Mapping[str, Callable[[Measurements, SettingFact], float | None]] = {
    "all": lambda measured, fact: fact.value,
    "copies": _of_copies,
    "half_of_backward": lambda measured, fact: _of_phase(measured, "backward", fact.value / 2),
    "half_of_kernels": _half_of_kernels,
    "padding": _of_padding,
    "rows": _of_rows,
    "update": _update,
}
"""The share of the step that the edit saves; None if unknown."""
