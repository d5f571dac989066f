"""Collects the columns of a trace, batch by batch of decoded events.

No event outlives its batch, so that memory stays near that of the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import TypeVar

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from autobrrr.readable import readable
from autobrrr.trace.reading import nanoseconds
from autobrrr.trace.reading.event_splitting import Batch, Splitter
from autobrrr.trace.reading.nanoseconds import MISSING, Nanoseconds
from autobrrr.trace.reading.plain_events import Tally
from autobrrr.trace.reading.trace_columns import (
    ACCELERATOR_OF_CATEGORY,
    ANNOTATION,
    CALL,
    KERNEL,
    KIND_OF_CATEGORY,
    MEMSET,
    OPERATOR,
    GpuColumns,
    Growing,
    HostColumns,
    OperatorShape,
    Table,
    Thread,
    Trace,
    chosen,
)
from autobrrr.trace.reading.trace_events import Args, Begin, Label, TraceEvent, whole
from autobrrr.trace.reading.trace_metadata import read_metadata

COUNTED_OPERATORS = re.compile(
    r"::(_?(add)?b?mm|addbmm|baddbmm|matmul|linear|_?convolution|conv\dd|cudnn_convolution\w*|miopen_convolution\w*"
    r"|convolution_backward|_scaled_mm|_?scaled_dot_product\w*|_flash_attention\w*|_efficient_attention\w*"
    r"|_?(log_)?softmax(_backward_data)?|mv|addmv|dot|cudnn_convolution_backward\w*|_grouped_mm|\w*fmha\w*|\w*flash_attn\w*)$"
)
_NAME, _CATEGORY, _LANE = attrgetter("name"), attrgetter("cat"), attrgetter("pid", "tid")
_NO_ARGS = Args()
_STREAM_BITS = 20  # a place is a device's number, shifted, and a stream's


T = TypeVar("T")


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


class _Batch(Struct, frozen=True, kw_only=True):
    """Events of one batch with what all of them have; shape [events] each."""

    events: Sequence[TraceEvent]
    start: Nanoseconds
    end: Nanoseconds
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    bad: NDArray[np.int8]


class Collector:
    """Collects columns batch by batch; `seen` counts events of any kind."""

    def __init__(self) -> None:
        self.seen = 0
        self.kinds: Table[str | None] = _Kinds()
        self.names: Table[str | None] = Table()
        self.threads: Table[tuple[Label, Label]] = Table()
        self.places = _Places()
        self.grids: Table[bytes] = Table()
        self.shapes: Table[OperatorShape] = Table()
        self.counted: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.gpu = Growing(GpuColumns)
        self.host = Growing(HostColumns)
        self.begun = 0  # spans in two events
        self.without_time = Tally()
        self.negative_host = 0

    @property
    def kept(self) -> int:
        """Events that have a row in the columns."""
        return len(self.gpu) + len(self.host)

    def add(self, batch: Batch) -> None:
        self.seen += len(batch.events)
        self.begun += sum(type(each) is Begin for each in batch.events)
        picked, kind = self._known(batch.events)
        if not picked:
            return
        start = nanoseconds.from_texts([event.ts for event in picked])
        length = nanoseconds.from_numbers([event.dur for event in picked])
        timed = start != MISSING
        if not timed.all():
            for row in np.flatnonzero(~timed).tolist():
                at = batch.offset + max(batch.text.find(picked[row].ts), 0)
                self.without_time.add(at, "an event whose ts can't be read")
            rows = np.flatnonzero(timed)
            kind, start, length = kind[rows], start[rows], length[rows]
            picked = [picked[row] for row in rows.tolist()]
        names = self.names
        found = _Batch(
            events=picked,
            start=start,
            end=start + np.maximum(length, 0),
            kind=kind,
            name=_coded(names, map(_NAME, picked), len(picked)),
            bad=np.where(length == MISSING, 1, np.where(length < 0, 2, np.where(length == 0, 3, 0))).astype(
                np.int8
            ),
        )
        on_gpu = kind <= MEMSET
        for add, rows in ((self._add_gpu, np.flatnonzero(on_gpu)), (self._add_host, np.flatnonzero(~on_gpu))):
            if len(rows):
                add(structs.replace(chosen(found, rows), events=[picked[row] for row in rows.tolist()]))

    def _known(self, events: list[object]) -> tuple[Sequence[TraceEvent], NDArray[np.int8]]:
        """Complete events of a known kind."""
        complete = [each for each in events if type(each) is TraceEvent]
        kind = _coded(self.kinds, map(_CATEGORY, complete), len(complete)).astype(np.int8)
        unknown = np.flatnonzero(kind == 0)
        if len(unknown) == 0:
            return complete, kind
        # A ProfilerStep is a step whatever its category is called, but not on a GPU's lane.
        for place in unknown.tolist():
            event = complete[place]
            if (event.name or "").startswith("ProfilerStep") and not (event.cat or "").startswith("gpu_"):
                kind[place] = ANNOTATION
        known = np.flatnonzero(kind)
        return [complete[place] for place in known.tolist()], kind[known]

    def _add_gpu(self, batch: _Batch) -> None:
        args = [event.args or _NO_ARGS for event in batch.events]
        places, grids = self.places, self.grids
        place = np.array(
            [
                places[each.device, each.stream, event.pid, event.tid, each.rank]
                for event, each in zip(batch.events, args, strict=True)
            ],
            np.int64,
        )
        sizes = np.full(len(args), -1, np.int64)
        for row in np.flatnonzero(batch.kind != KERNEL).tolist():
            sizes[row] = whole(args[row].bytes, -1)
        self.gpu.add(
            GpuColumns(
                start=batch.start,
                end=batch.end,
                kind=batch.kind,
                name=batch.name,
                device=(place >> _STREAM_BITS).astype(np.int32),
                stream=(place & (1 << _STREAM_BITS) - 1).astype(np.int32),
                correlation=_correlations([each.correlation for each in args]),
                grid=np.array([grids[bytes(each.grid)] if each.grid else -1 for each in args], np.int32),
                block=np.array([grids[bytes(each.block)] if each.block else -1 for each in args], np.int32),
                bytes=sizes,
                bad=batch.bad,
            )
        )

    def _add_host(self, batch: _Batch) -> None:
        self.negative_host += int((batch.bad == 2).sum())
        events = batch.events
        correlation = np.zeros(len(events), np.int64)
        calls = np.flatnonzero(batch.kind == CALL)
        if len(calls):
            ids = [(events[row].args or _NO_ARGS).correlation for row in calls.tolist()]
            correlation[calls] = _correlations(ids)
        shape = np.full(len(events), -1, np.int32)
        for row in np.flatnonzero((batch.kind == OPERATOR) & self._are_counted()[batch.name]).tolist():
            args = events[row].args or _NO_ARGS
            dims = args.dims or args.dims_old
            if dims:
                shape[row] = self.shapes[OperatorShape(bytes(dims), bytes(args.types), bytes(args.concrete))]
        self.host.add(
            HostColumns(
                start=batch.start,
                end=batch.end,
                kind=batch.kind,
                name=batch.name,
                thread=_coded(self.threads, map(_LANE, events), len(events)),
                correlation=correlation,
                shape=shape,
            )
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

    def trace(
        self,
        file: str,
        bytes_read: int,
        splitter: Splitter,
        damage: str | None,
    ) -> Trace:
        """The columns; nothing can be added any more."""
        gpu, host = self.gpu.finished(), self.host.finished()
        metadata, lost = read_metadata(splitter.around)
        threads: Table[Thread] = Table()  # some files write one id as a number here and as text there
        merged = np.array(
            [threads[Thread(readable(str(pid)), readable(str(tid)))] for pid, tid in self.threads], np.int32
        )
        if len(threads) < len(merged):
            host = structs.replace(host, thread=merged[host.thread])
        return Trace(
            file=file,
            bytes_read=bytes_read,
            events=self.seen,
            gpu=gpu,
            host=host,
            names=[readable(name or "") for name in self.names],
            threads=threads.things(),
            devices=self.places.devices.things(),
            grids=self.grids.things(),
            shapes=self.shapes.things(),
            ranks_of_devices=self.places.ranks,
            metadata=metadata,
            accelerator=self.accelerator(),
            damage=damage,
            unread=self.without_time.count + splitter.passed_over.count,
            first_unread=_first(self.without_time, splitter.passed_over),
            irregular=[*_mended(splitter.mended), *_in_two(self.begun), *_odd(lost)],
            negative_host=self.negative_host,
        )


def _correlations(labels: Sequence[Label]) -> NDArray[np.int64]:
    """Positive ids; 0 for none."""
    try:
        found = np.array(labels)
        if found.dtype == np.int64:
            return np.asarray(np.maximum(found, 0), np.int64)
    except (OverflowError, ValueError):
        pass
    return np.array([max(whole(each, 0), 0) for each in labels], np.int64)


def _first(*tallies: Tally) -> str | None:
    """The place and cause that comes first in the file."""
    found = [each for each in tallies if each.at is not None]
    return min(found, key=lambda each: each.at or 0).first if found else None


def _mended(tally: Tally) -> list[str]:
    if not tally.count:
        return []
    more = f", and {tally.count - 1} places more" if tally.count > 1 else ""
    return [f"the file is no proper JSON, {tally.first}{more}; it was read all the same"]


def _in_two(spans: int) -> list[str]:
    return [f"{spans} spans that stand in two events are not read"] if spans else []


def _odd(lost: list[str]) -> list[str]:
    names = ", ".join(dict.fromkeys(lost))
    return [f"of what the trace says of itself, this can't be read: {names}"][: len(lost)]


def _coded(table: Table[T], things: Iterable[T], count: int) -> NDArray[np.int32]:
    """The number of each thing."""
    return np.fromiter(map(table.__getitem__, things), np.int32, count)
