"""Tables that number what traces name: categories by kind, devices and streams by label."""

from __future__ import annotations

from autobrrr.readable import readable
from autobrrr.trace.reading.trace_columns import KIND_OF_CATEGORY, Table
from autobrrr.trace.reading.trace_events import Label, whole

STREAM_BITS = 20  # a place is a device's number, shifted, and a stream's


class Kinds(Table["str | None"]):
    """The kind of a category, of several in one text the first known; 0 for those that are passed over."""

    def __missing__(self, category: str | None) -> int:
        kinds = (KIND_OF_CATEGORY.get(each.strip(), 0) for each in (category or "").lower().split(","))
        kind = self[category] = next(filter(None, kinds), 0)
        return kind


class InternTables(Table[tuple[Label, Label, Label, Label, Label]]):
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
        found = self[place] = number << STREAM_BITS | lane
        return found
