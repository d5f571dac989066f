"""What to do about what was found, each with an upper bound of its gain, by the rows of `trace_advice.toml`.

A bound is the factor on speed if the named time vanished and nothing else changed. Several
bounds do not multiply: they may speak of the same time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import msgspec
import numpy as np

from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.trace.causes.host_causes import (
    ALLOCATION,
    DATA_LOADER,
    LONG_OPERATOR,
    LONG_PYTHON,
    OP_DISPATCH,
    OPTIMIZER,
    PYTHON_CODE,
)
from autobrrr.trace.causes.host_places import PLACE_FROM, largest_groups
from autobrrr.trace.causes.idle_causes import NOT_FOUND
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.kernels.kernel_classes import CONTRACTIONS, NORMALISATION, POINTWISE, short_name
from autobrrr.trace.kernels.operator_flops import recorded_dims
from autobrrr.trace.reading.trace_columns import CALL, KERNEL, MEMCPY
from autobrrr.trace.trace_records import DeviceAnalysis, GapGroup, Straggler, TraceAdvice

WORTH = 0.03  # of the span: less is not worth a line
UNCACHED_FROM = 0.5  # allocations of the driver for each kernel: a cache would not ask it so often
UNDERFILLED_FROM, FILLED = 0.3, 0.7  # of kernel time; what of it goes
_CAUSES_OF = {
    "launch_bound": [OP_DISPATCH, PYTHON_CODE],
    "host_code": [LONG_PYTHON],
    "host_operators": [LONG_OPERATOR],
    "data_loader": [DATA_LOADER],
    "allocation": [ALLOCATION],
    "optimizer": [OPTIMIZER],
}
_SMALL_ATTENTION = 32  # sequences below it are no attention worth fusing
_LONGEST_CHAIN = 12  # kernels from one product to the next
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
    late_ns = device.judged_late.by_gap_ns.sum(axis=0).tolist()  # by mark
    python = next((each.python for each in figures.host_code), None)
    found = [
        _graphs(device, figures, late_ns[OP_DISPATCH] + late_ns[PYTHON_CODE]),
        Saving("host_code", late_ns[LONG_PYTHON], {}, python),
        Saving("host_operators", late_ns[LONG_OPERATOR]),
        Saving("data_loader", late_ns[DATA_LOADER], {"who": "The device", "pinned": ", pinned memory"}),
        _synchronisations(figures),
        _allocation(device, figures, late_ns[ALLOCATION]),
        Saving("optimizer", late_ns[OPTIMIZER]),
        _attention(device),
        _fusion(device),
        _tensor_cores(device),
        Saving("exposed_communication", figures.exposed_communication_ns),
        _input_copies(device, figures),
        _underfilled(figures),
    ]
    worth = [one for one in found if one is not None and one.ns >= WORTH * figures.span_ns]
    placed = (_placed(one.advice(figures.span_ns), device) for one in worth)
    return sorted(placed, key=lambda each: -(each.saves_ns or 0))


def _placed(advice: TraceAdvice, device: DeviceWork) -> TraceAdvice:
    """The same advice with the place that holds most of its idle time, where it has none of its own."""
    causes = _CAUSES_OF.get(advice.kind)
    if causes is None or advice.where is not None:
        return advice
    ns = device.judged_late.by_gap_ns[:, causes].sum(axis=1)
    for group in largest_groups(device.trace, device.groups, ns, 1):
        if group.share >= PLACE_FROM:
            return msgspec.structs.replace(advice, where=group_words(group))
    return advice


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


def _graphs(device: DeviceWork, figures: DeviceAnalysis, dispatch_ns: int) -> Saving:
    launching_ns = max(0, int(device.judged.in_launch.sum()) - figures.first_use_ns)
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
    calls = host.name[(host.kind == CALL) & np.isin(host.thread, device.threads)]
    count = int(device.trace.named(calls, ("cudaMalloc", "hipMalloc").__contains__).sum())
    row = "uncached" if count >= UNCACHED_FROM * max(figures.kernel_count, 1) else "allocation"
    return Saving(row, ns, {"calls": count, "kernels": figures.kernel_count})


def _attention(device: DeviceWork) -> Saving | None:
    """Attention written out: a softmax between two products, over what the first one made.

    A softmax over [..., rows, columns] after a batched product of such a size is one of attention
    weights; whatever runs between that product and the next one goes over them. Only recorded shapes tell.
    """
    gpu, trace = device.gpu, device.trace
    order = np.flatnonzero(gpu.kind == KERNEL)
    order = order[np.lexsort((gpu.start[order], gpu.stream[order]))]
    operators, length = device.shaped[order], (gpu.end - gpu.start)[order]
    contracts = device.work.of(*CONTRACTIONS)[order]
    products = np.flatnonzero(contracts)
    softmax = operators != NOT_FOUND
    names = trace.host.name[operators[softmax]]
    softmax[softmax] = trace.named(names, lambda name: "softmax" in name)
    saves = kernels = 0
    weights: Counter[str] = Counter()
    priced = -1
    for place in np.flatnonzero(softmax & ~contracts).tolist():
        behind = int(np.searchsorted(products, place))
        if not 0 < behind < len(products):
            continue
        before, after = products[behind - 1], products[behind]
        sizes = (_sizes(device, operators[place]) or [[]])[0]
        if len(sizes) < 3 or min(sizes[-2:]) < _SMALL_ATTENTION or after - before > _LONGEST_CHAIN:
            continue
        if before == priced or gpu.stream[order[before]] != gpu.stream[order[after]]:
            continue  # the former: a softmax of several kernels
        if _product_of(device, operators[before]) != sizes[-2:]:
            continue
        priced = before
        saves += int(length[before + 1 : after].sum())
        kernels += int(after - before) - 1
        weights["x".join(map(str, sizes))] += 1
    if not weights:
        return None
    example = weights.most_common(1)[0][0]
    return Saving("attention", saves, {"kernels": kernels, "example": example}, f"aten::_softmax {example}")


def _sizes(device: DeviceWork, operator: int) -> list[list[int]]:
    """The sizes of an operator's arguments, where they were recorded."""
    if operator == NOT_FOUND:
        return []
    return recorded_dims(device.trace.shapes[device.trace.host.shape[operator]].dims) or []


def _product_of(device: DeviceWork, operator: int) -> list[int] | None:
    """Rows and columns of the batched product that an operator makes."""
    dims = _sizes(device, operator)
    if dims and device.trace.names[device.trace.host.name[operator]].endswith("baddbmm"):
        dims = dims[1:]
    if len(dims) < 2 or min(len(dims[0]), len(dims[1])) < 3:
        return None
    return [dims[0][-2], dims[1][-1]]


def _fusion(device: DeviceWork) -> Saving | None:
    """Neighbouring pointwise kernels of one stream, priced by what they stream.

    Such kernels take as long as their bytes do; merged, a chain moves those of its largest member.
    """
    gpu, work = device.gpu, device.work
    order = np.lexsort((gpu.start, gpu.stream))
    order = order[gpu.kind[order] == KERNEL]
    mergeable = work.of(POINTWISE, NORMALISATION)[order]
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
