"""What to do about what was found, each with an upper bound of its gain, by the rows of `trace_advice.toml`.

A bound is the factor on speed if the named time vanished and nothing else changed. Several
bounds do not multiply: they may speak of the same time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import numpy as np

from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.trace.causes.gap_groups import PLACE_FROM, largest_groups
from autobrrr.trace.causes.host_causes import (
    ALLOCATION,
    DATA_LOADER,
    HELD_UP,
    LONG_OPERATOR,
    LONG_PYTHON,
    OP_DISPATCH,
    OPTIMIZER,
    PYTHON_CODE,
)
from autobrrr.trace.causes.idle_causes import LateCauses
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.kernels.kernel_classes import CLASSES, NORMALISATION, POINTWISE, short_name
from autobrrr.trace.reading.trace_columns import CALL, KERNEL, MEMCPY, coded
from autobrrr.trace.trace_records import DeviceAnalysis, GapGroup, Straggler, TraceAdvice
from autobrrr.trace.verdict.attention_weights import written_attention

WORTH = 0.03  # of the span: less is not worth a line
UNCACHED_FROM = 0.5  # allocations of the driver for each kernel: a cache would not ask it so often
UNDERFILLED_FROM, FILLED = 0.3, 0.7  # of kernel time; what of it goes
_CAUSES_OF = {
    "launch_bound": (OP_DISPATCH, PYTHON_CODE),
    "host_code": (LONG_PYTHON,),
    "host_operators": (LONG_OPERATOR,),
    "data_loader": (DATA_LOADER,),
    "allocation": (ALLOCATION,),
    "optimizer": (OPTIMIZER,),
}
_PAGEABLE = re.compile(r"HtoD \(Pageable|Host ?-> ?Device.*Pageable", re.IGNORECASE)


class Saving(msgspec.Struct, frozen=True):
    """Time that a row of the table would save, and the words that the row is filled with."""

    row: str
    ns: int
    words: Mapping[str, object] = {}
    where: str | None = None

    def advice(self, span_ns: int) -> TraceAdvice:
        """The row, said with the bound of its gain."""
        row = rows_beside(__file__)[self.row]
        return TraceAdvice(
            kind=row.get("kind", self.row),
            text=row["said"].format_map(self.words),
            saves_ns=self.ns,
            gain=round(span_ns / max(span_ns - self.ns, 1), 3),
            where=self.where,
            remedy=row.get("remedy"),
        )


def advise(device: DeviceWork, figures: DeviceAnalysis) -> list[TraceAdvice]:
    """Advice for one device, the largest bound first."""
    late = device.judged_late
    clock = figures.idle_clock_corrected
    causes = clock.host_late_by_cause_ns if clock is not None else figures.host_late_by_cause_ns
    python_ns, operators_ns, held_ns = (
        int(late.by_gap_ns[:, mark].sum()) for mark in (LONG_PYTHON, LONG_OPERATOR, HELD_UP)
    )
    found = [
        _graphs(figures, causes["op_dispatch"] + causes["python"] - python_ns - operators_ns - held_ns),
        Saving("host_code", python_ns, {}, figures.host_code[0].python if figures.host_code else None),
        Saving("host_operators", operators_ns),
        Saving("data_loader", causes["data_loader"], {"who": "The device", "pinned": ", pinned memory"}),
        _synchronisations(figures),
        _allocation(device, figures, causes["allocation"]),
        Saving("optimizer", causes["optimizer"]),
        _attention(device),
        _fusion(device),
        _tensor_cores(device),
        Saving("exposed_communication", figures.exposed_communication_ns),
        _input_copies(device, figures),
        _underfilled(figures),
    ]
    worth = [one for one in found if one is not None and one.ns >= WORTH * figures.span_ns]
    placed = (_placed(one.advice(figures.span_ns), device, late) for one in worth)
    return sorted(placed, key=lambda each: -(each.saves_ns or 0))


def _placed(advice: TraceAdvice, device: DeviceWork, late: LateCauses) -> TraceAdvice:
    """The same advice with the place that holds most of its idle time, where it has none of its own."""
    causes = _CAUSES_OF.get(advice.kind)
    if causes is None or advice.where is not None:
        return advice
    ns = late.by_gap_ns[:, list(causes)].sum(axis=1)
    groups = largest_groups(device.trace, device.groups, ns, 1)
    if not groups or groups[0].share < PLACE_FROM:
        return advice
    return msgspec.structs.replace(advice, where=group_words(groups[0]))


def group_words(group: GapGroup) -> str:
    """ "train.py:31 step, before gemm_kernel (6 gaps, 341 ms, 57 ms in the median)"."""
    place = ", ".join(each for each in (group.python, group.annotation) if each)
    gaps = "one gap" if group.count == 1 else f"{group.count} gaps"
    usual = "" if group.count == 1 else f", {duration(group.median_ns)} in the median"
    spent = f"{gaps}, {duration(group.idle_ns)}{usual}"
    return f"{place}{', ' if place else ''}before {short_name(group.ended_by)} ({spent})"


def for_peers(advice: list[TraceAdvice], own: Straggler, who: str) -> list[TraceAdvice]:
    """The same advice; where collectives mostly wait for a peer, no setting of theirs helps."""
    if not who or (own.waiting_ns or 0) < 0.5 * own.communication_ns:
        return advice
    text = rows_beside(__file__)["late_rank"]["said"].format(who=who)
    return [
        msgspec.structs.replace(each, kind="late_rank", text=text)
        if each.kind == "exposed_communication"
        else each
        for each in advice
    ]


def _graphs(figures: DeviceAnalysis, dispatch_ns: int) -> Saving:
    idle = figures.idle_clock_corrected.idle if figures.idle_clock_corrected is not None else figures.idle
    launching_ns = max(0, idle.in_launch_ns - figures.first_use_ns)
    used_already = figures.kernel_count / max(figures.launches, 1) > 1.2
    done = " Graphs are in use already; what is left runs outside them." if used_already else ""
    words = {"launches": figures.launches, "graphs": done}
    return Saving("launch_bound", dispatch_ns + launching_ns, words)


def _synchronisations(figures: DeviceAnalysis) -> Saving | None:
    places = [place for place in figures.synchronisations if place.idle_ns > 0]
    if not places:
        return None
    worst = max(places, key=lambda place: place.idle_ns)
    words = {
        "count": sum(place.count for place in places),
        "call": worst.call,
        "operator": worst.operator or "no operator",
        "often": worst.count,
    }
    where = worst.python or worst.operator or worst.call
    return Saving("synchronisation", sum(place.idle_ns for place in places), words, where)


def _allocation(device: DeviceWork, figures: DeviceAnalysis, ns: int) -> Saving:
    host = device.trace.host
    calls = host.name[(host.kind == CALL) & coded(host.thread, device.threads)]
    count = int(device.trace.named(calls, ("cudaMalloc", "hipMalloc").__contains__).sum())
    uncached = count >= UNCACHED_FROM * max(figures.kernel_count, 1)
    return Saving(
        "uncached" if uncached else "allocation", ns, {"calls": count, "kernels": figures.kernel_count}
    )


def _attention(device: DeviceWork) -> Saving | None:
    found = written_attention(device)
    if found is None:
        return None
    words = {"kernels": found.kernels, "example": found.example}
    return Saving("attention", found.saves_ns, words, f"aten::_softmax {found.example}")


def _fusion(device: DeviceWork) -> Saving | None:
    """Neighbouring pointwise kernels of one stream, priced by what they stream.

    Such kernels take as long as their bytes do; merged, a chain moves those of its largest member.
    """
    gpu, work = device.gpu, device.work
    order = np.lexsort((gpu.start, gpu.stream))
    order = order[gpu.kind[order] == KERNEL]
    mergeable = coded(work.class_[order], [CLASSES.index(POINTWISE), CLASSES.index(NORMALISATION)])
    if not mergeable.any():
        return None
    stream = gpu.stream[order]
    length = (gpu.end - gpu.start)[order]
    breaks = np.concatenate(([True], (stream[1:] != stream[:-1]) | ~mergeable[1:] | ~mergeable[:-1]))
    chain = np.cumsum(breaks)[mergeable] - 1
    chains = np.cumsum(np.concatenate(([0], np.diff(chain) != 0)))
    own = length[mergeable]
    total = np.bincount(chains, own)
    longest = np.zeros(len(total))
    np.maximum.at(longest, chains, own)
    members = np.bincount(chains)
    long = members >= 2
    count = int(long.sum())
    words = {
        "chains": f"{count} chain{'s' * (count != 1)}",
        "kernels": int(members[long].sum()),
        "time": duration(total[long].sum()),
    }
    return Saving("fusion", int((total - longest)[long].sum()), words)


def _tensor_cores(device: DeviceWork) -> Saving | None:
    gpu, work, peaks = device.gpu, device.work, device.peaks
    ns = int((gpu.end - gpu.start)[work.fp32_plain].sum())
    if ns == 0 or peaks is None:
        return None
    tf32, half = peaks.tf32_flops / peaks.fp32_flops, peaks.half_flops / peaks.fp32_flops
    how, ratio = "fp16 autocast with a GradScaler: changes the numbers", half if half >= 2 else 1.0
    if tf32 >= 1.5:
        how = 'torch.set_float32_matmul_precision("high") (TF32), or bf16 autocast: both change the numbers'
        ratio = tf32
    return Saving("tensor_cores", int(ns * (1 - 1 / ratio)), {"time": duration(ns), "how": how})


def _input_copies(device: DeviceWork, figures: DeviceAnalysis) -> Saving:
    gpu, trace = device.gpu, device.trace
    pageable = (gpu.kind == MEMCPY) & trace.named(gpu.name, _PAGEABLE.search)
    ns = int((gpu.end - gpu.start)[pageable].sum())
    most = ns > 0.5 * sum(each.ns for each in figures.copies if each.direction == "HtoD")
    row, words = "pageable" if most else "input_copies", {"copies": int(pageable.sum())}
    return Saving(row, figures.exposed_host_to_device_ns, words)


def _underfilled(figures: DeviceAnalysis) -> Saving | None:
    share = figures.signals.underfilled_share or 0.0
    ns = sum(each.underfilled_ns or 0 for each in figures.kernels.values())
    return Saving("underfilled", int(ns * FILLED) * (share >= UNDERFILLED_FROM), {"share": percent(share)})
