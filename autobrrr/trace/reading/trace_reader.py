"""Reads one trace: blocks of JSON in, columns out.

Only complete events (phase X) with a known category are kept; flows, instants and metadata
are passed over, and spans that stand in two events are counted. No event outlives its batch, so that
memory stays near that of the columns.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import TypeVar

import numpy as np
import psutil
from msgspec import structs
from numpy.typing import NDArray

from autobrrr.errors import UsageError
from autobrrr.machine import control_groups
from autobrrr.readable import readable
from autobrrr.trace.reading import nanoseconds
from autobrrr.trace.reading.event_splitting import Splitter
from autobrrr.trace.reading.nanoseconds import MISSING, Nanoseconds
from autobrrr.trace.reading.trace_columns import (
    ACCELERATOR_OF_CATEGORY,
    ANNOTATION,
    CALL,
    KERNEL,
    KIND_OF_CATEGORY,
    MEMSET,
    OPERATOR,
    Codes,
    GpuColumns,
    HostColumns,
    OperatorShape,
    Table,
    Thread,
    Trace,
    joined_columns,
)
from autobrrr.trace.reading.trace_events import Args, Begin, Label, TraceEvent, whole
from autobrrr.trace.reading.trace_metadata import read_metadata
from autobrrr.trace.reading.trace_source import Blocks, TraceFile, open_blocks

WORKED_OUT_BYTES = 180  # that the analysis takes for each event kept, at its peak, beside the columns
_LOOK_EVERY = 1 << 20  # events kept
COUNTED_OPERATORS = re.compile(
    r"::(_?(add)?b?mm|addbmm|baddbmm|matmul|linear|_?convolution|conv\dd|cudnn_convolution\w*|miopen_convolution\w*"
    r"|convolution_backward|_scaled_mm|_?scaled_dot_product\w*|_flash_attention\w*|_efficient_attention\w*"
    r"|_?(log_)?softmax(_backward_data)?|mv|addmv|dot|cudnn_convolution_backward\w*|_grouped_mm|\w*fmha\w*|\w*flash_attn\w*)$"
)
_LANE = attrgetter("pid", "tid")
_NO_ARGS = Args()
_STREAM_BITS = 20  # a place is a device's number, shifted, and a stream's

T = TypeVar("T")
Kinds = NDArray[np.int8]


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
    read = _Collector(splitter)
    collecting = gc.isenabled()
    due = look_every
    gc.disable()  # events hold no cycles, and millions of them would be walked again and again
    try:
        for events in splitter.batches(blocks):
            read.add(events)
            if read.kept >= due:
                due = read.kept + look_every
                _refuse_what_does_not_fit(name, read.kept, spare())
    except UsageError:
        if blocks.damage is None:
            raise
        raise _beyond_use(name, blocks.damage) from None
    finally:
        if collecting:
            gc.enable()
    damage = blocks.damage or splitter.damage
    if damage is not None and read.seen == 0:
        raise _beyond_use(name, damage)
    if splitter.unread.count and read.seen == 0:
        raise UsageError(f"{name} is not a trace: its list holds no events; {splitter.unread.first}")
    if read.seen and not read.kept and not splitter.unread.count:
        raise _other_program(name, read)
    return read.trace(blocks.bytes_read, damage)


def _other_program(name: str, read: _Collector) -> UsageError:
    if (accelerator := read.accelerator()) is not None:
        return UsageError(
            f"{name} is the trace of {accelerator}: analyze reads what NVIDIA and AMD devices record"
        )
    categories = ", ".join(sorted({readable(each)[:30] for each in read.kinds if each})[:4]) or "none"
    return UsageError(
        f"{name} is not a trace of torch.profiler: of its {read.seen} events none is of a kind that"
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


class _Kinds(Table["str | None"]):
    """The kind of a category, of several in one text the first known; 0 for those that are passed over."""

    def __missing__(self, category: str | None) -> int:
        kinds = (KIND_OF_CATEGORY.get(each.strip(), 0) for each in (category or "").lower().split(","))
        kind = self[category] = next(filter(None, kinds), 0)
        return kind


class _Places(Table[tuple[Label, Label, Label, Label, Label]]):
    """Device and stream of an operation, from its arguments, or from the lane on which it is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: Table[str] = Table()
        self.streams: Table[tuple[int, str]] = Table()
        self.ranks: dict[str, int] = {}

    def __missing__(self, place: tuple[Label, Label, Label, Label, Label]) -> int:
        device, stream, pid, tid, rank = place
        label = readable(str(pid if device is None else device))
        number = self.devices[label]
        if rank is not None:
            self.ranks[label] = whole(rank, -1)
        lane = self.streams[number, readable(str(tid if stream is None else stream))]
        found = self[place] = number << _STREAM_BITS | lane
        return found


class _Collector:
    """Collects columns batch by batch; `seen` counts events of any kind, `kept` those that have a row."""

    def __init__(self, splitter: Splitter) -> None:
        self.splitter = splitter
        self.seen = self.kept = 0
        self.kinds: Table[str | None] = _Kinds()
        self.names: Table[str | None] = Table()
        self.threads: Table[tuple[Label, Label]] = Table()
        self.places = _Places()
        self.grids: Table[bytes] = Table()
        self.shapes: Table[OperatorShape] = Table()
        self.counted: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.begun = 0  # spans in two events
        self.negative_host = 0
        # A first part without rows, for traces that have none.
        none, no_kinds, no_names = np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int32)
        self.gpu = [self._operations([], none, none, no_kinds, no_names)]
        self.host = [self._host_events([], none, none, no_kinds, no_names)]

    def add(self, events: list[object]) -> None:
        self.seen += len(events)
        self.begun += sum(type(each) is Begin for each in events)
        kinds = self.kinds
        complete = [each for each in events if type(each) is TraceEvent]
        kind = np.array([kinds[each.cat] or _kind_of_step(each) for each in complete], np.int8)
        start = nanoseconds.from_texts([each.ts for each in complete])
        length = nanoseconds.from_numbers([each.dur for each in complete])
        timed, known = start != MISSING, kind > 0
        for _ in range(int((known & ~timed).sum())):
            self.splitter.unread.add(self.splitter.offset, "from there on, an event whose ts can't be read")
        rows = np.flatnonzero(known & timed)
        self.kept += len(rows)
        name = np.full(len(complete), -1, np.int32)  # numbered in the order of the file
        name[rows] = _coded(self.names, (complete[row].name for row in rows.tolist()), len(rows))
        on_gpu = kind[rows] <= MEMSET

        def part(mine: NDArray[np.int64]) -> tuple[list[TraceEvent], Nanoseconds, Nanoseconds, Kinds, Codes]:
            return [complete[row] for row in mine.tolist()], start[mine], length[mine], kind[mine], name[mine]

        if on_gpu.any():
            self.gpu.append(self._operations(*part(rows[on_gpu])))
        if not on_gpu.all():
            self.host.append(self._host_events(*part(rows[~on_gpu])))

    def _operations(
        self, events: Sequence[TraceEvent], start: Nanoseconds, length: Nanoseconds, kind: Kinds, name: Codes
    ) -> GpuColumns:
        args = [event.args or _NO_ARGS for event in events]
        places, grids = self.places, self.grids
        place = np.array(
            [
                places[each.device, each.stream, event.pid, event.tid, each.rank]
                for event, each in zip(events, args, strict=True)
            ],
            np.int64,
        )
        sizes = np.full(len(args), -1, np.int64)
        for row in np.flatnonzero(kind != KERNEL).tolist():
            sizes[row] = whole(args[row].bytes, -1)
        return GpuColumns(
            start=start,
            end=start + np.maximum(length, 0),
            kind=kind,
            name=name,
            device=(place >> _STREAM_BITS).astype(np.int32),
            stream=(place & (1 << _STREAM_BITS) - 1).astype(np.int32),
            correlation=_correlations([each.correlation for each in args]),
            grid=np.array([grids[bytes(each.grid)] if each.grid else -1 for each in args], np.int32),
            block=np.array([grids[bytes(each.block)] if each.block else -1 for each in args], np.int32),
            bytes=sizes,
            bad=np.select([length == MISSING, length < 0, length == 0], [1, 2, 3]).astype(np.int8),
        )

    def _host_events(
        self, events: Sequence[TraceEvent], start: Nanoseconds, length: Nanoseconds, kind: Kinds, name: Codes
    ) -> HostColumns:
        self.negative_host += int(((length < 0) & (length != MISSING)).sum())
        correlation = np.zeros(len(events), np.int64)
        calls = np.flatnonzero(kind == CALL)
        correlation[calls] = _correlations(
            [(events[row].args or _NO_ARGS).correlation for row in calls.tolist()]
        )
        shape = np.full(len(events), -1, np.int32)
        for row in np.flatnonzero((kind == OPERATOR) & self._are_counted()[name]).tolist():
            args = events[row].args or _NO_ARGS
            dims = args.dims or args.dims_old
            if dims:
                shape[row] = self.shapes[OperatorShape(bytes(dims), bytes(args.types), bytes(args.concrete))]
        return HostColumns(
            start=start,
            end=start + np.maximum(length, 0),
            kind=kind,
            name=name,
            thread=_coded(self.threads, map(_LANE, events), len(events)),
            correlation=correlation,
            shape=shape,
        )

    def _are_counted(self) -> NDArray[np.bool_]:
        """Of each name met so far, whether it is an operator whose work can be counted."""
        known = len(self.counted)
        if known < len(self.names):
            new = [
                COUNTED_OPERATORS.search(each or "") is not None for each in islice(self.names, known, None)
            ]
            self.counted = np.concatenate((self.counted, np.array(new, np.bool_)))
        return self.counted

    def accelerator(self) -> str | None:
        """Whose events were passed over, by their categories."""
        known = (ACCELERATOR_OF_CATEGORY.get((each or "").lower()) for each in self.kinds)
        return next(filter(None, known), None)

    def trace(self, bytes_read: int, damage: str | None) -> Trace:
        """The columns."""
        host, splitter = joined_columns(self.host), self.splitter
        metadata, lost = read_metadata(splitter.around)
        threads: Table[Thread] = Table()  # some files write one id as a number here and as text there
        merged = np.array(
            [threads[Thread(readable(str(pid)), readable(str(tid)))] for pid, tid in self.threads], np.int32
        )
        if len(threads) < len(merged):
            host = structs.replace(host, thread=merged[host.thread])
        irregular, odd = [], splitter.mended
        if odd.count:
            more = f", and {odd.count - 1} places more" if odd.count > 1 else ""
            irregular.append(f"the file is no proper JSON, {odd.first}{more}; it was read all the same")
        if self.begun:
            irregular.append(f"{self.begun} spans that stand in two events are not read")
        if lost:
            irregular.append(f"of what the trace says of itself, this can't be read: {', '.join(lost)}")
        return Trace(
            file=splitter.name,
            bytes_read=bytes_read,
            events=self.seen,
            gpu=joined_columns(self.gpu),
            host=host,
            names=[readable(name or "") for name in self.names],
            threads=list(threads),
            devices=list(self.places.devices),
            grids=list(self.grids),
            shapes=list(self.shapes),
            ranks_of_devices=self.places.ranks,
            metadata=metadata,
            accelerator=self.accelerator(),
            damage=damage,
            unread=splitter.unread.count,
            first_unread=splitter.unread.first,
            irregular=irregular,
            negative_host=self.negative_host,
        )


def _kind_of_step(event: TraceEvent) -> int:
    """A ProfilerStep is a step whatever its category is called, but not on a GPU's lane."""
    is_step = (event.name or "").startswith("ProfilerStep") and not (event.cat or "").startswith("gpu_")
    return ANNOTATION if is_step else 0


def _correlations(labels: Sequence[Label]) -> NDArray[np.int64]:
    """Positive ids; 0 for none."""
    try:
        found = np.array(labels)
        if found.dtype == np.int64:
            return np.asarray(np.maximum(found, 0), np.int64)
    except (OverflowError, ValueError):
        pass
    return np.array([max(whole(each, 0), 0) for each in labels], np.int64)


def _coded(table: Table[T], things: Iterable[T], count: int) -> NDArray[np.int32]:
    """The number of each thing."""
    return np.fromiter(map(table.__getitem__, things), np.int32, count)
