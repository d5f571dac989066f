"""What a trace says about itself around its list of events: devices, rank, versions, options."""

from __future__ import annotations

import json

import msgspec
from msgspec import structs

from autobrrr.trace.reading.trace_events import Label


class DeviceProperties(msgspec.Struct, frozen=True):
    """One GPU as the profiler saw it."""

    id: int = 0
    name: str = ""
    sms: int | None = msgspec.field(name="numSms", default=None)
    memory_bytes: int | None = msgspec.field(name="totalGlobalMem", default=None)


class Distributed(msgspec.Struct, frozen=True):
    rank: int | None = None
    world_size: int | None = None


class Metadata(msgspec.Struct, frozen=True):
    """Around the events; all of it may be absent."""

    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)
    distributed: Distributed | None = msgspec.field(name="distributedInfo", default=None)
    record_shapes: Label = None
    profiler_warnings: list[str] = msgspec.field(name="WARNING", default_factory=list)
    profiler_errors: list[str] = msgspec.field(name="ERROR", default_factory=list)

    def of_device(self, device: str) -> DeviceProperties | None:
        """The properties of one device; of the first where all are of one make."""
        for each in self.devices:
            if str(each.id) == device:
                return each
        alike = {each.name for each in self.devices}
        return self.devices[0] if len(alike) == 1 else None


def read_metadata(around: bytes) -> tuple[Metadata, list[str]]:
    """From the text around the list of events, which is empty in it; where that is damaged, before it.

    Also the names of what can't be read: an odd value costs itself alone.
    """
    head = around[: around.find(b"[]", around.find(b'"traceEvents"'))] + b"[]}"
    for text in (around, head):
        try:
            values = json.loads(text.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            continue
        found, lost = {}, []
        for field in structs.fields(Metadata):
            value = values.get(field.encode_name)
            if value is not None:
                try:
                    found[field.name] = msgspec.convert(value, field.type, strict=False)
                except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of half a character
                    lost.append(field.encode_name)
        return Metadata(**found), lost
    return Metadata(), ["all that stands around the events"] if around.startswith(b"{") else []
