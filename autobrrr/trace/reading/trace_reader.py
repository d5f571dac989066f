"""Reads one trace: blocks of JSON in, columns out.

Only complete events (phase X) with a known category are kept; flows, instants and metadata
are passed over, and spans that stand in two events are counted.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import psutil

from autobrrr.errors import UsageError
from autobrrr.machine import control_groups
from autobrrr.readable import readable
from autobrrr.trace.reading.column_collector import Collector
from autobrrr.trace.reading.event_splitting import Splitter
from autobrrr.trace.reading.trace_columns import Trace
from autobrrr.trace.reading.trace_source import Blocks, TraceFile, open_blocks

WORKED_OUT_BYTES = 180  # that the analysis takes for each event kept, at its peak, beside the columns
_LOOK_EVERY = 1 << 20  # events kept


def spare_bytes() -> int:
    """Memory that this process could take now, on this machine and in its control group."""
    free = int(psutil.virtual_memory().available)
    of_group = control_groups.spare_memory_bytes(os.getpid())
    return free if of_group is None else min(free, of_group)


def read_trace(source: TraceFile) -> Trace:
    """Read one input to its end.

    Raises:
        UsageError: it is no trace, or cut so short that no event can be read.
    """
    stream, blocks = open_blocks(source)
    with stream:
        return read_blocks(source.name, blocks)


def read_blocks(
    name: str, blocks: Blocks, spare: Callable[[], int] = spare_bytes, look_every: int = _LOOK_EVERY
) -> Trace:
    """Read an open input to its end.

    Args:
        spare: Bytes that could be taken now; asked each time that `look_every` more events are kept.

    Raises:
        UsageError: it is no trace, cut so short that no event can be read, or too large for the memory.
    """
    splitter = Splitter(name)
    kept = Collector()
    collecting = gc.isenabled()
    due = look_every
    gc.disable()  # events hold no cycles, and millions of them would be walked again and again
    try:
        for batch in splitter.batches(blocks):
            kept.add(batch)
            if kept.kept >= due:
                due = kept.kept + look_every
                _refuse_what_does_not_fit(name, kept.kept, spare())
    except UsageError:
        if blocks.damage is None:
            raise
        raise _beyond_use(name, blocks.damage) from None
    finally:
        if collecting:
            gc.enable()
    damage = blocks.damage or splitter.damage
    if damage is not None and kept.seen == 0:
        raise _beyond_use(name, damage)
    if splitter.passed_over.count and kept.seen == 0:
        first = splitter.passed_over.first
        raise UsageError(f"{name} is not a trace: its list holds no events; {first}")
    trace = kept.trace(name, blocks.bytes_read, splitter, damage)
    if kept.seen and not len(trace.gpu) and not len(trace.host) and not trace.unread:
        raise _other_program(name, kept)
    return trace


def _other_program(name: str, kept: Collector) -> UsageError:
    if (accelerator := kept.accelerator()) is not None:
        return UsageError(
            f"{name} is the trace of {accelerator}: analyze reads what NVIDIA and AMD devices record"
        )
    categories = ", ".join(sorted({readable(each)[:30] for each in kept.kinds if each})[:4]) or "none"
    return UsageError(
        f"{name} is not a trace of torch.profiler: of its {kept.seen} events none is of a kind that"
        f" it records (categories: {categories})",
        "export it with torch.profiler's export_chrome_trace",
    )


def _refuse_what_does_not_fit(name: str, events: int, spare: int) -> None:
    """The kernel would end this program, or a job beside it, somewhere in the analysis."""
    needed = events * WORKED_OUT_BYTES
    if needed > spare:
        raise UsageError(
            f"{name} has more events than the memory can take: its first {events} need {needed / 1e9:.1f} GB,"
            f" and {spare / 1e9:.1f} GB are free",
            "profile fewer steps (torch.profiler.schedule(active=...)), or analyze it where more is free",
        )


def _beyond_use(name: str, damage: str) -> UsageError:
    return UsageError(f"{name} can't be used: {damage}", "export the trace again; nothing of it is left")
