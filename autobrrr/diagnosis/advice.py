"""Remedies that fit the verdict, each with its reason and what it would bring, best first.

Names, reach and class come from the registry; two cures that no remedy applies (a larger batch,
more workers: the user's own arguments) have their place in a table here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from autobrrr.diagnosis.figures import duration, of_one, positive
from autobrrr.diagnosis.gains import implementation, predicted_gain
from autobrrr.diagnosis.kernel_work import KernelWork, kernel_work
from autobrrr.diagnosis.loader_queue import workers_keep_up
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.shares import step_parts
from autobrrr.records import Advice, ExactnessClass, Reach, Verdict
from autobrrr.remedies import optimizer_foreach, optimizer_fused
from autobrrr.remedies.catalog import REGISTRY

WORTH_SAYING = 1.03
SMALL_KERNEL_NS = 50_000  # mean kernel below which waking a second thread costs more than it brings


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A cure in the user's own hands: an argument of the script."""

    reach: Reach
    class_: ExactnessClass
    treats: tuple[str, ...]


UNDERSTOOD = {"optimizer.fused": optimizer_fused.CLASSES, "optimizer.foreach": optimizer_foreach.CLASSES}

ARGUMENTS = {
    "batch.larger": Argument(reach="relaunch", class_="changes-training", treats=("overhead",)),
    "loader.workers": Argument(reach="relaunch", class_="stream", treats=("input",)),
}


def advise(measured: Measurements, verdict: Verdict) -> list[Advice]:
    """Cures of the named regime; without one, those alone whose gain the measured step shows."""
    gains = predicted_gain(measured)
    found = []
    for name in (*REGISTRY, *ARGUMENTS):
        expected = gains.get(name)
        treats = ARGUMENTS[name].treats if name in ARGUMENTS else REGISTRY[name].treats
        fits = verdict.regime in treats and (expected is None or expected >= WORTH_SAYING)
        shown = expected is not None and expected >= WORTH_SAYING and name in REGISTRY
        why = _why(name, measured) if fits or shown else None
        if why is not None:
            found.append(_advice(name, why, expected))
    return sorted(found, key=lambda one: -(one.expected or 1.0))


def _advice(name: str, why: str, expected: float | None) -> Advice:
    rounded = None if expected is None else round(expected, 3)
    if name in ARGUMENTS:
        argument = ARGUMENTS[name]
        return Advice(remedy=name, why=why, expected=rounded, reach=argument.reach, class_=argument.class_)
    remedy = REGISTRY[name]
    return Advice(
        remedy=name,
        why=why,
        expected=rounded,
        reach=cast(Reach, remedy.reach),
        class_=cast(ExactnessClass, remedy.cls),
    )


def _why(name: str, measured: Measurements) -> str | None:
    """The reason, from this job's figures; None where the remedy has nothing to do here."""
    if name in ("optimizer.fused", "optimizer.foreach"):
        return _optimizer(name, measured)
    if name == "threads.intra_op":
        return _threads(measured)
    if name == "loader.workers":
        return _workers(measured)
    if name == "batch.larger":
        return "what does not grow with the batch is shared by more samples; it changes the training"
    return REGISTRY[name].doc


def _optimizer(name: str, measured: Measurements) -> str | None:
    if implementation(measured) in (name, "optimizer.fused"):
        return None
    parts, classes = step_parts(measured), UNDERSTOOD[name]
    if parts is None or parts.phase.get("optimizer", 0.0) < 0.01:
        return None
    if measured.anatomy is not None and not any(one in classes for one in measured.anatomy.optimizers):
        return None
    spent = parts.phase["optimizer"]
    idle = parts.idle("optimizer")
    tensors = None if measured.anatomy is None else measured.anatomy.parameter_tensors
    what = f"the optimizer takes {of_one(spent)} of the step"
    if idle is not None:
        what += f", {of_one(idle)} of the step is its dispatch"
    each = f" over {tensors} tensors" if tensors else ""
    how = "one kernel updates all" if name == "optimizer.fused" else "lists of tensors need fewer calls"
    return f"{what}{each}; {how}"


def _threads(measured: Measurements) -> str | None:
    threads = None if measured.facts is None else measured.facts.threads
    work = kernel_work(measured.traced)
    if not threads or threads < 2 or not isinstance(work, KernelWork) or work.operations is None:
        return None
    each_ns = work.share * work.step_ns / work.operations
    if each_ns > SMALL_KERNEL_NS:
        return None
    return f"a kernel takes {duration(each_ns)} on average, too short to share among {threads} threads"


def _workers(measured: Measurements) -> str | None:
    workers = None if measured.anatomy is None else measured.anatomy.loader_workers
    if workers is None:
        return None
    if workers == 0:
        return "batches are loaded in the training process itself; workers load them meanwhile"
    cores = positive(measured.cores)
    if workers_keep_up(measured) or (cores is not None and workers >= cores):
        return None
    return f"{workers} workers do not keep up; more of them, or cheaper samples"
