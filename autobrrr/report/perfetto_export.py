"""The trace again, with a lane of explained gaps for each device: opens in Perfetto.

The input's own bytes pass through unchanged, block by block; the new events are put in front of
its list of events.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from autobrrr.errors import AutobrrrError
from autobrrr.trace.reading.trace_source import TraceFile, open_blocks
from autobrrr.trace.step_view import GapLane

_START = re.compile(rb'"traceEvents"\s*:\s*\[|^\s*(?:\xef\xbb\xbf\s*)?\[')
_LANE_PID = 990_000_000


def write(target: Path, source: TraceFile, lanes: Iterable[GapLane]) -> None:
    """Write the trace with the lanes; gzip where the name ends in .gz.

    Raises:
        AutobrrrError: the source and the target are one file, or the source can't be read again.
    """
    if source.path is not None and target.exists() and target.samefile(source.path):
        raise AutobrrrError(f"{target} is the trace itself", "write to another file")
    stream, blocks = open_blocks(source)
    packed = target.name.endswith(".gz")
    with stream, gzip.open(target, "wb", compresslevel=3) if packed else target.open("wb") as out:
        for block in _with_lanes(iter(blocks), lanes):
            out.write(block)
    if blocks.damage is not None:
        raise AutobrrrError(f"{target} is incomplete: {blocks.damage}", "export the trace again")


def _with_lanes(blocks: Iterator[bytes], lanes: Iterable[GapLane]) -> Iterator[bytes]:
    head = b""
    for block in blocks:
        head += block
        found = _START.search(head)
        if found is None:
            continue
        yield head[: found.end()]
        rest = head[found.end() :].lstrip()
        text = b",\n".join(_events(lanes))
        yield text
        if text and not rest.startswith(b"]"):
            yield b",\n"
        yield rest
        yield from blocks
        return
    raise AutobrrrError("the trace has no list of events")


def _events(lanes: Iterable[GapLane]) -> Iterator[bytes]:
    for pid, lane in enumerate(lanes, _LANE_PID):
        place = {"pid": pid, "tid": 0}
        name = {"name": f"gaps of device {lane.device}, explained"}
        yield _line({"ph": "M", "name": "process_name", **place, "args": name})
        yield _line({"ph": "M", "name": "process_sort_index", **place, "args": {"sort_index": -1}})
        for event in lane.events:
            shown = {"ph": "X", "cat": "gap", "name": event.name, **place, "cname": event.color}
            span = f', "ts": {_us(event.start_ns)}, "dur": {_us(event.length_ns)}}}'
            yield _line({**shown, "args": {"until": event.until}})[:-1] + span.encode()


def _us(ns: int) -> str:
    """Microseconds with all their nanoseconds, as digits: a float would lose some."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _line(event: dict[str, object]) -> bytes:
    return json.dumps(event).encode()
