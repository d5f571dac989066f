"""Several ranks side by side: who waits in collectives, and for whom.

The n-th collective from the end is the same one on all ranks (windows begin apart more often than they
end apart). It ends on all of them nearly at once, which sets the clocks; who starts it last kept the
others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from autobrrr.quantities import share
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.kernels.kernel_classes import COMMUNICATION
from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.reading.trace_columns import median
from autobrrr.trace.trace_records import DeviceAnalysis, RankComparison, Straggler, TraceAnalysis

_Arrival = tuple[int | None, int | None, int | None]
_SAME_COUNT = 0.5  # ranks whose numbers of collectives differ by more are not of one job


class Collectives(Struct, frozen=True, kw_only=True):
    """The collective kernels of one device, by start."""

    name: tuple[str, ...]
    start: Nanoseconds
    end: Nanoseconds


def collectives_of(device: DeviceWork) -> Collectives:
    """The kernels of communication libraries."""
    gpu, trace = device.gpu, device.trace
    rows = np.flatnonzero(device.work.of(COMMUNICATION))
    rows = rows[np.argsort(gpu.start[rows], kind="stable")]
    return Collectives(
        name=tuple(trace.names[name] for name in gpu.name[rows].tolist()),
        start=gpu.start[rows],
        end=gpu.end[rows],
    )


def compare_ranks(
    peers: Sequence[tuple[TraceAnalysis, DeviceAnalysis, Collectives]],
) -> RankComparison | None:
    """Compare ranks, by a device of a trace each; None where there are no two of them."""
    if len(peers) < 2:
        return None
    arrivals, matched, note = _arrivals([collectives for _, _, collectives in peers])
    rows = [
        Straggler(
            rank=device.rank if device.rank is not None else trace.rank,
            file=trace.file,
            device=device.device,
            step_median_ns=trace.step_ns.median,
            busy_ns=device.busy_ns,
            communication_ns=device.communication_ns,
            waiting_ns=waiting,
            late_ns=late,
            last_in=last,
        )
        for (trace, device, _), (waiting, late, last) in zip(peers, arrivals, strict=True)
    ]
    return RankComparison(matched_collectives=matched, note=note, ranks=rows)


def blame(comparison: RankComparison, own: Straggler) -> str:
    """Who keeps a rank waiting, in words; empty where nobody does."""
    others = [(each.late_ns or 0, each) for each in comparison.ranks if each is not own and each.late_ns]
    total = sum(late for late, _ in others)
    if not others or not own.waiting_ns:
        return ""
    others.sort(key=lambda item: -item[0])
    names = " and ".join(
        f"rank {each.rank if each.rank is not None else each.file} ({share(late / total)})"
        for late, each in others[:3]
        if late >= 0.2 * total
    )
    return f"it waits for {names}" if names else ""


class _Matched(Struct, frozen=True, kw_only=True):
    """The same collectives on all ranks, clocks aligned by their median end; shape [ranks, collectives]."""

    start: Nanoseconds
    end: Nanoseconds
    apart_ns: float  # how far the ends of one collective lie from each other, in the median


def _arrivals(each: list[Collectives]) -> tuple[list[_Arrival], int, str]:
    """Of each rank: time spent waiting, time that others waited for it, how often it came last.

    Also how many collectives were matched.
    """
    nobody: list[_Arrival] = [(None, None, None)] * len(each)
    sizes = [len(collectives.start) for collectives in each]
    if min(sizes) == 0:
        return nobody, 0, "no collectives in some of the traces"
    tried = [_matched(each, from_tail) for from_tail in (True, False)]
    possible = [one for one in tried if one is not None]
    if not possible:
        differ = f"the ranks' collectives differ ({min(sizes)} to {max(sizes)}): they can't be matched"
        return nobody, 0, differ
    best = min(possible, key=lambda one: one.apart_ns)  # of equals the tail: windows end together
    if best.apart_ns > 0.2 * median(np.max(best.end - best.start, axis=0)) + 20_000:
        apart = "the ends of the collectives do not line up: these are not ranks of one job, or clocks drift"
        return nobody, 0, apart
    last = best.start.max(axis=0)
    waiting = np.clip(np.minimum(last, best.end) - best.start, 0, None)
    who = best.start.argmax(axis=0)
    found: list[_Arrival] = [
        (
            int(waiting[index].sum()),
            int(waiting[:, who == index].sum() - waiting[index, who == index].sum()),
            int((who == index).sum()),
        )
        for index in range(len(each))
    ]
    count = best.start.shape[1]
    surplus = max(sizes) - count
    more = f"; some ranks have up to {surplus} more, which are left out" if surplus else ""
    note = f"clocks aligned by the ends of {count} collectives, within {best.apart_ns / 1000:.0f} us{more}"
    return found, count, note


def _matched(each: list[Collectives], from_tail: bool) -> _Matched | None:
    """The longest run of equally named collectives that all ranks end with, or begin with; None if short."""
    count = 0
    for names in zip(*(reversed(one.name) if from_tail else one.name for one in each), strict=False):
        if len(set(names)) > 1:
            break
        count += 1
    if count < _SAME_COUNT * max(len(one.start) for one in each):
        return None
    chosen = slice(-count, None) if from_tail else slice(count)
    start = np.stack([one.start[chosen] for one in each])
    end = np.stack([one.end[chosen] for one in each])
    offset = np.array([int(median(row)) for row in end - end[0]], np.int64)[:, None]
    return _Matched(start=start - offset, end=end - offset, apart_ns=median(np.ptp(end - offset, axis=0)))
