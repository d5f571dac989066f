"""What the operators of a step had to do, next to the time that their kernels took.

In: the step whose operators were counted, the traced steps that were only timed. Out: the table
`work` of `records.TracedSteps`. Where a timed step dispatched the very same operators, call by call,
times are the timed steps'; otherwise the counted step's own, scaled to what each operator takes.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..phases.phase_clock import DATA_WAIT, NAMES
from .op_work import NOTHING, Work

TOP = 96
Key = tuple[object, int, str, str]


class StepReadings(Protocol):
    """A traced step's readings, one for each operator."""

    ops: list[object]
    spent: array[int]
    where: bytearray
    work: list[Work | None]


def work_table(
    counted: StepReadings,
    timed: Sequence[StepReadings],
    floor: Callable[[object], int],
    kernel_ns: Mapping[object, float],
) -> list[dict[str, object]]:
    """Operators by phase and shape, the dearest first; without those of the loader.

    Args:
        counted: The step with `work`.
        timed: Steps to take the times from.
        floor: What an operator takes on a few elements.
        kernel_ns: Kernel time a step of each operator, by the timed steps.
    """
    own = _own_ns(counted, timed, floor, kernel_ns)
    sums: dict[Key, list[float]] = {}
    for op, where, work, ns in zip(counted.ops, counted.where, counted.work, own, strict=True):
        if where == DATA_WAIT:
            continue
        known = work if work is not None else NOTHING
        total = sums.setdefault((op, where, known.shapes, known.dtype), [0, 0, 0, 0, 0])
        total[0] += 1
        total[1] += ns
        total[2] += known.flops
        total[3] += known.bytes
        total[4] += work is None
    dearest = sorted(sums.items(), key=lambda item: -item[1][1])[:TOP]
    return [
        {
            "op": str(op),
            "phase": NAMES[where],
            "shapes": shapes,
            "dtype": dtype,
            "count": count,
            "kernel_ns": ns,
            "flops": None if uncounted else flops,
            "bytes": None if uncounted else moved,
        }
        for (op, where, shapes, dtype), (count, ns, flops, moved, uncounted) in dearest
    ]


def _own_ns(
    counted: StepReadings,
    timed: Sequence[StepReadings],
    floor: Callable[[object], int],
    kernel_ns: Mapping[object, float],
) -> list[float]:
    """Kernel time of each call of the counted step."""
    same = [step for step in timed if step.ops == counted.ops]
    floors = [floor(op) for op in counted.ops]
    if same:
        sums = [0.0] * len(floors)
        for step in same:
            for at, (spent, least) in enumerate(zip(step.spent, floors, strict=True)):
                if spent > least:
                    sums[at] += spent - least
        return [ns / len(same) for ns in sums]
    own = [float(max(0, spent - least)) for spent, least in zip(counted.spent, floors, strict=True)]
    seen: dict[object, float] = defaultdict(float)
    for op, ns in zip(counted.ops, own, strict=True):
        seen[op] += ns
    return [
        ns * kernel_ns.get(op, 0.0) / seen[op] if seen[op] else 0.0
        for op, ns in zip(counted.ops, own, strict=True)
    ]
