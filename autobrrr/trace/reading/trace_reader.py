"""Reads one trace: blocks of JSON in, columns out.

Only complete events (phase X) with a known category are kept; flows, instants and metadata
events are passed over.
"""

from __future__ import annotations

import gc

from autobrrr.errors import UsageError
from autobrrr.readable import readable
from autobrrr.trace.reading.column_collector import Collector
from autobrrr.trace.reading.event_splitting import Splitter
from autobrrr.trace.reading.trace_columns import Trace
from autobrrr.trace.reading.trace_source import Blocks, TraceFile, open_blocks


def read_trace(source: TraceFile) -> Trace:
    """Read one input to its end.

    Raises:
        UsageError: it is no trace, or cut so short that no event can be read.
    """
    stream, blocks = open_blocks(source)
    with stream:
        return read_blocks(source.name, blocks)


def read_blocks(name: str, blocks: Blocks) -> Trace:
    """Read an open input to its end.

    Raises:
        UsageError: it is no trace, or cut so short that no event can be read.
    """
    splitter = Splitter(name)
    kept = Collector()
    collecting = gc.isenabled()
    gc.disable()  # events hold no cycles, and millions of them would be walked again and again
    try:
        for batch in splitter.batches(blocks):
            kept.add(batch)
            splitter.exact = kept.exact
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
    trace = kept.trace(name, blocks.bytes_read, splitter, damage, blocks.notes)
    if kept.complete and not len(trace.gpu) and not len(trace.host) and not trace.unread:
        raise _other_program(name, kept)
    return trace


def _other_program(name: str, kept: Collector) -> UsageError:
    categories = ", ".join(sorted({readable(each)[:30] for each in kept.kinds if each})[:4]) or "none"
    return UsageError(
        f"{name} is not a trace of torch.profiler: of its {kept.seen} events none is of a kind that"
        f" it records (categories: {categories})",
        "export it with torch.profiler's export_chrome_trace",
    )


def _beyond_use(name: str, damage: str) -> UsageError:
    return UsageError(f"{name} can't be used: {damage}", "export the trace again; nothing of it is left")
