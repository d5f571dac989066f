"""The sentence with figures that stands behind a named regime: its share, then what confirms or places it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autobrrr.diagnosis.ledger import SAMPLER, WORKER, WORKER_START, loading_parts
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.batch_fit import BatchFit, fit_batch
from autobrrr.diagnosis.models.cpu_delay import is_oversubscribed
from autobrrr.diagnosis.models.held_phase import held_phase
from autobrrr.diagnosis.models.roofs import Roofs, roofs
from autobrrr.diagnosis.models.sampled_frames import busiest, in_collective, in_loading, in_own_code
from autobrrr.diagnosis.part_names import WORDS
from autobrrr.diagnosis.robust_stats import duration, median, of_one, positive
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals.dispatch import doubling
from autobrrr.diagnosis.signals.loading import workers_keep_up
from autobrrr.records import Regime, Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A reason in two halves; the first is what the sentence of the limit may have said already."""

    known: str = ""
    adds: str = ""

    @property
    def text(self) -> str:
        return ": ".join(half for half in (self.known, self.adds) if half)


def named_reason(
    regime: Regime, measured: Measurements, readings: Mapping[str, Reading], shares: Shares
) -> Sentence:
    """Why the regime is named; raises KeyError for a regime without a sentence."""
    share = getattr(shares, regime) or 0.0
    lead = f"{of_one(share)} of a step"
    if regime == "overhead" and is_oversubscribed(measured):
        return Sentence(
            known=f"{lead} is dispatch and kernels that wait for threads",
            adds=readings["oversubscription"].note,
        )
    held = held_phase(measured) if regime == "overhead" else None
    if held is not None:
        return Sentence(adds=f"{lead} is overhead, most of it {held.told()}")
    if regime == "overhead":
        fit = fit_batch(measured.probe)
        doubled = doubling(fit.probe).removeprefix("; ") if isinstance(fit, BatchFit) else ""
        adds = _joined(_operators(measured), doubled)
        return Sentence(known=f"{lead} is Python and dispatch", adds=adds)
    if regime == "input":
        return Sentence(known=f"{lead} waits for the next batch", adds=_loader(measured, readings))
    if regime == "host":
        place = busiest(measured.frames, in_own_code)
        if readings["host_time"].abstained:
            lead = f"at least {lead}"
        return Sentence(
            known=f"{lead} is code between the phases without an operator",
            adds=f"most at {place}" if place else "",
        )
    if regime == "communication":
        ranks = measured.facts.world_size if measured.facts is not None else None
        among = f" of {ranks}" if ranks else ""
        place = busiest(measured.frames, in_collective)
        where = f", most at {place}" if place else ""
        return Sentence(
            known=f"{lead} waits for other ranks{among}", adds=f"{readings['collective_wait'].note}{where}"
        )
    if regime in ("memory", "compute", "underfilled"):
        words, adds = _kernels(regime, measured, readings)
        return Sentence(known=f"{lead} is {words}", adds=adds)
    raise KeyError(regime)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _kernels(regime: Regime, measured: Measurements, readings: Mapping[str, Reading]) -> tuple[str, str]:
    """What the kernels are; which ones, and the figure that confirms it."""
    found = roofs(measured)
    kinds = found.by_kind(regime) if isinstance(found, Roofs) else {}
    listed = ", ".join(f"{kind} {of_one(share)}" for kind, share in list(kinds.items())[:3] if share >= 0.005)
    words, seconds = {
        "memory": ("kernels that move tensors", ("traffic", "batch_probe")),
        "compute": ("matrix products", ("matmul_rate", "batch_probe")),
    }.get(regime, (WORDS[regime], ("roofline",)))
    heard = [readings[name] for name in seconds if not readings[name].abstained]
    return words, _joined(listed, heard[0].note if heard else "")


def _operators(measured: Measurements) -> str:
    traced = measured.traced
    if traced is None:
        return ""
    operations, cost_ns = positive(median(traced.operations)), positive(traced.op_cost_ns)
    if operations is None:
        return ""
    each = f", about {duration(cost_ns)} to dispatch one" if cost_ns else ""
    return f"{operations:.0f} operators{each}"


def _loader(measured: Measurements, readings: Mapping[str, Reading]) -> str:
    workers = None if measured.anatomy is None else measured.anatomy.loader_workers
    queue = readings["loader_queue"]
    parts = loading_parts(measured)
    kind = max(parts, key=lambda name: parts[name].share, default="")
    where = parts[kind].where if kind else None
    at = f", most at {where}" if where else ""
    if kind == SAMPLER:
        return f"the sampler runs in the training process, whatever the workers{at}"
    if kind == WORKER_START:
        return f"{workers or 'its'} workers start anew in each epoch, and open what they read{at}"
    if kind == WORKER and workers:
        return f"{workers} workers are busy{at}" if workers > 1 else f"its one worker is busy{at}"
    if workers and workers_keep_up(measured):
        return f"the {workers} workers keep up, so the time goes into handing batches over"
    if workers and not queue.abstained and queue.value is not None:
        return f"{workers} workers leave their queue empty {of_one(queue.value)} of the time"
    place = busiest(measured.frames, in_loading)
    where = f"most of it at {place}" if place else ""
    here = "it is loaded in the training process itself" if workers == 0 else ""
    return ", ".join(part for part in (here, where) if part)
