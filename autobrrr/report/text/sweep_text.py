"""A sweep over a size of the data in words: step time at each size, and what of memory it would take."""

from __future__ import annotations

from autobrrr.quantities import duration
from autobrrr.records import BatchMemory, SizeSweep

MOST_POINTS = 12


def sweep_text(sweep: SizeSweep) -> str:
    """A few lines; one where there was no sweep."""
    if sweep.status != "ok" or sweep.size is None:
        return f"  sweep of the {sweep.along}: none: {sweep.why}"
    now_ns = next((point.step_ns for point in sweep.points if point.size == sweep.size), None)
    lines = [f"  sweep of the {sweep.along}, {sweep.size} now"]
    for point in sweep.points[:MOST_POINTS]:
        times = f", {point.step_ns / now_ns:.2f}x the step" if now_ns else ""
        work = (
            f", {point.size / sweep.size * now_ns / point.step_ns:.2f}x the work a second" if now_ns else ""
        )
        lines.append(f"    {sweep.along} {point.size:>6} {duration(point.step_ns):>9}{times}{work}")
    lines += [f"    {note}" for note in sweep.notes]
    if sweep.memory is not None:
        lines.append(f"    {memory_text(sweep.memory)}")
    return "\n".join(lines)


def memory_text(memory: BatchMemory) -> str:
    """What a step takes, what twice the batch would, what fits."""
    text = (
        f"memory of a step: about {_amount(memory.peak_bytes)} at its peak, "
        f"{_amount(memory.peak_2x_bytes)} at twice the batch"
    )
    if memory.largest_batch is None:
        return text
    return f"{text}; about {memory.largest_batch} samples fit into {_amount(memory.free_bytes or 0)}"


def _amount(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"
