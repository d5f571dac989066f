"""What to do about what was found, each with an upper bound of its gain.

A bound is the factor on speed if the named time vanished and nothing else changed. Several
bounds do not multiply: they may speak of the same time.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

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
from autobrrr.trace.reading.trace_columns import CALL, KERNEL, MEMCPY, coded, used
from autobrrr.trace.trace_records import DeviceAnalysis, GapGroup, Straggler, TraceAdvice
from autobrrr.trace.verdict.attention_weights import written_attention

WORTH = 0.03  # of the span: less is not worth a line
UNCACHED_FROM = 0.5  # allocations of the driver for each kernel: a cache would not ask it so often
_CAUSES_OF = {
    "launch_bound": (OP_DISPATCH, PYTHON_CODE),
    "host_code": (LONG_PYTHON,),
    "host_operators": (LONG_OPERATOR,),
    "data_loader": (DATA_LOADER,),
    "allocation": (ALLOCATION,),
    "optimizer": (OPTIMIZER,),
}
_PAGEABLE = re.compile(r"HtoD \(Pageable|Host ?-> ?Device.*Pageable", re.IGNORECASE)


def advise(device: DeviceWork, figures: DeviceAnalysis) -> list[TraceAdvice]:
    """Advice for one device, the largest bound first."""
    late = device.corrected[1] if device.corrected is not None else device.late
    python_ns = int(late.by_gap_ns[:, LONG_PYTHON].sum())
    operators_ns = int(late.by_gap_ns[:, LONG_OPERATOR].sum())
    held_ns = python_ns + operators_ns + int(late.by_gap_ns[:, HELD_UP].sum())
    found = [
        _graphs(figures, held_ns),
        _host_code(figures, python_ns),
        _host_operators(figures, operators_ns),
        _loader(figures),
        _synchronisations(figures),
        _allocation(device, figures),
        _optimizer(figures),
        _attention(device, figures),
        _fusion(device, figures),
        _tensor_cores(device, figures),
        _communication(figures),
        _input_copies(device, figures),
        _underfilled(figures),
    ]
    kept = [each for each in found if each is not None]
    return sorted((_placed(each, device, late) for each in kept), key=lambda each: -(each.saves_ns or 0))


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


def _advice(
    figures: DeviceAnalysis,
    kind: str,
    saves_ns: int,
    text: str,
    *,
    where: str | None = None,
    remedy: str | None = None,
) -> TraceAdvice | None:
    if saves_ns < WORTH * figures.span_ns:
        return None
    gain = figures.span_ns / max(figures.span_ns - saves_ns, 1)
    return TraceAdvice(
        kind=kind, text=text, saves_ns=saves_ns, gain=round(gain, 3), where=where, remedy=remedy
    )


def _late(figures: DeviceAnalysis) -> dict[str, int]:
    clock = figures.idle_clock_corrected
    return clock.host_late_by_cause_ns if clock is not None else figures.host_late_by_cause_ns


def _graphs(figures: DeviceAnalysis, held_ns: int) -> TraceAdvice | None:
    late = _late(figures)
    idle = figures.idle_clock_corrected.idle if figures.idle_clock_corrected is not None else figures.idle
    launching = max(0, idle.in_launch_ns - figures.first_use_ns)
    saves = late["op_dispatch"] + late["python"] + launching - held_ns
    per_launch = figures.kernel_count / max(figures.launches, 1)
    done = " Graphs are in use already; what is left runs outside them." if per_launch > 1.2 else ""
    return _advice(
        figures,
        "launch_bound",
        saves,
        f"{figures.launches} launches leave the device waiting for dispatch and Python. torch.compile with"
        ' mode="reduce-overhead" (CUDA graphs), or a larger batch, would hide them at best entirely.' + done,
        remedy="compile.default",
    )


def _host_code(figures: DeviceAnalysis, python_ns: int) -> TraceAdvice | None:
    place = figures.host_code[0] if figures.host_code else None
    return _advice(
        figures,
        "host_code",
        python_ns,
        "Python holds the host for a millisecond or more at a time while the device idles: vectorise it,"
        " move it to a worker, or do it less often.",
        where=place.python if place is not None else None,
    )


def _host_operators(figures: DeviceAnalysis, operators_ns: int) -> TraceAdvice | None:
    return _advice(
        figures,
        "host_operators",
        operators_ns,
        "Operators compute on the CPU while the device waits: make and process these tensors on the device.",
    )


def _loader(figures: DeviceAnalysis) -> TraceAdvice | None:
    return _advice(
        figures,
        "data_loader",
        _late(figures)["data_loader"],
        "The device waits for the DataLoader: more workers, persistent_workers=True, prefetch_factor,"
        " pinned memory.",
    )


def _synchronisations(figures: DeviceAnalysis) -> TraceAdvice | None:
    places = [place for place in figures.synchronisations if place.idle_ns > 0]
    if not places:
        return None
    worst = places[0] if len(places) == 1 else max(places, key=lambda place: place.idle_ns)
    where = worst.python or worst.operator or worst.call
    return _advice(
        figures,
        "synchronisation",
        sum(place.idle_ns for place in places),
        f"The host waits for the device {sum(place.count for place in places)} times, and the device then"
        " for the"
        f" host; most idle time after {worst.call} in {worst.operator or 'no operator'} ({worst.count}"
        " times)."
        " Keep values on the device, log every n steps, copy with non_blocking=True from pinned memory.",
        where=where,
    )


def _allocation(device: DeviceWork, figures: DeviceAnalysis) -> TraceAdvice | None:
    calls = _allocating_calls(device)
    each = calls / max(figures.kernel_count, 1)
    if each >= UNCACHED_FROM:
        text = (
            f"cudaMalloc runs {calls} times for {figures.kernel_count} kernels while the device waits: the"
            " caching allocator is off. Take PYTORCH_NO_CUDA_MEMORY_CACHING out of the environment."
        )
    else:
        text = (
            "cudaMalloc or cudaFree run while the device waits: keep shapes steady, warm the cache up, avoid"
            " empty_cache, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )
    return _advice(figures, "allocation", _late(figures)["allocation"], text)


def _allocating_calls(device: DeviceWork) -> int:
    host, names = device.trace.host, device.trace.names
    calls = (host.kind == CALL) & coded(host.thread, device.threads)
    wanted = [name for name in used(host.name[calls]) if names[name] in ("cudaMalloc", "hipMalloc")]
    return int(coded(host.name[calls], wanted).sum())


def _optimizer(figures: DeviceAnalysis) -> TraceAdvice | None:
    return _advice(
        figures,
        "optimizer",
        _late(figures)["optimizer"],
        "The device waits for the optimizer's Python: fused=True (or foreach=True),"
        " zero_grad(set_to_none=True).",
        remedy="optimizer.fused",
    )


def _fusion(device: DeviceWork, figures: DeviceAnalysis) -> TraceAdvice | None:
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
    if not long.any():
        return None
    count, saves = int(long.sum()), int((total - longest)[long].sum())
    return _advice(
        figures,
        "fusion",
        saves,
        f"{count} chain{'s' * (count != 1)} of neighbouring pointwise and normalisation kernels"
        f" ({int(members[long].sum())} kernels, {duration(total[long].sum())}): fused by torch.compile,"
        " each would move the bytes of its largest member once.",
        remedy="compile.default",
    )


def _tensor_cores(device: DeviceWork, figures: DeviceAnalysis) -> TraceAdvice | None:
    gpu, work = device.gpu, device.work
    ns = int((gpu.end - gpu.start)[work.fp32_plain].sum())
    peaks = device.peaks
    if ns == 0 or peaks is None:
        return None
    tf32 = peaks.tf32_flops / peaks.fp32_flops
    if tf32 >= 1.5:
        how = 'torch.set_float32_matmul_precision("high") (TF32), or bf16 autocast: both change the numbers'
        ratio = tf32
    elif peaks.half_flops / peaks.fp32_flops >= 2:
        how = "fp16 autocast with a GradScaler: changes the numbers"
        ratio = peaks.half_flops / peaks.fp32_flops
    else:
        return None
    return _advice(
        figures,
        "tensor_cores",
        int(ns * (1 - 1 / ratio)),
        f"{duration(ns)} of matrix products and convolutions run in fp32 without tensor cores: {how}.",
    )


def _communication(figures: DeviceAnalysis) -> TraceAdvice | None:
    return _advice(
        figures,
        "exposed_communication",
        figures.exposed_communication_ns,
        "Collectives run with no computation beside them: larger buckets, gradient_as_bucket_view,"
        " static_graph,"
        " no_sync while accumulating; and see whether a peer comes late (analyze all ranks together).",
    )


def for_peers(advice: list[TraceAdvice], own: Straggler, who: str) -> list[TraceAdvice]:
    """The same advice; where collectives mostly wait for a peer, no setting of theirs helps."""
    if not who or (own.waiting_ns or 0) < 0.5 * own.communication_ns:
        return advice
    text = f"Collectives mostly wait for a peer that comes late: {who}. Speed it up; nothing here will help."
    return [
        msgspec.structs.replace(each, kind="late_rank", text=text)
        if each.kind == "exposed_communication"
        else each
        for each in advice
    ]


def _input_copies(device: DeviceWork, figures: DeviceAnalysis) -> TraceAdvice | None:
    gpu, trace = device.gpu, device.trace
    copied = gpu.kind == MEMCPY
    pageable = copied & coded(
        gpu.name, [name for name in used(gpu.name[copied]) if _PAGEABLE.search(trace.names[name])]
    )
    ns = int((gpu.end - gpu.start)[pageable].sum())
    text = "Copies from the host run with no kernel beside them: "
    if ns > 0.5 * sum(each.ns for each in figures.copies if each.direction == "HtoD"):
        text += (
            f"{int(pageable.sum())} of them come from pageable memory, for which the host waits:"
            " pin_memory=True in the DataLoader (or tensor.pin_memory()), with non_blocking=True."
        )
    else:
        text += "non_blocking=True, and prefetch on a side stream."
    return _advice(figures, "input_copies", figures.exposed_host_to_device_ns, text)


def _attention(device: DeviceWork, figures: DeviceAnalysis) -> TraceAdvice | None:
    found = written_attention(device)
    if found is None:
        return None
    return _advice(
        figures,
        "attention",
        found.saves_ns,
        f"Attention is written out: {found.kernels} kernels go over its weights ({found.example})."
        " torch.nn.functional.scaled_dot_product_attention never writes them.",
        where=f"{found.operator} {found.example}",
    )


def _underfilled(figures: DeviceAnalysis) -> TraceAdvice | None:
    share = figures.signals.underfilled_share
    if share is None or share < 0.3:
        return None
    ns = sum(each.underfilled_ns or 0 for each in figures.kernels.values())
    return _advice(
        figures,
        "underfilled",
        int(ns * 0.7),
        f"{percent(share)} of kernel time is in kernels too small to fill the device: a larger batch, fusion,"
        " or independent work on a second stream.",
    )
