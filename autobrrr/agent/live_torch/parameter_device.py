"""On which device the parameters are, and that device's clock: events with a time, and a stream for them.

In: the job's optimizers and roots, torch. Out: the device that steps are computed on; a source of its events,
or None where torch has none for it. Reads a few parameters of each group; asks nothing of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Protocol

from .dispatch_modes import unseen
from .graph_capture import capturing
from .live_job import Job
from .torch_types import Device

LOOKED_AT = 64  # parameters of a group, evenly


class TimedEvent(Protocol):
    """What is used of an event of an accelerator."""

    def record(self, stream: object) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: TimedEvent) -> float: ...


@dataclass(frozen=True)
class EventSource:
    """Events of one device.

    Attributes:
        make: A new event with a time.
        stream: The stream that is current now, on this thread.
        capturing: The job captures a graph: no event may be made, recorded or asked.
        synchronise: Wait until the device has done all that is queued. In a user's job only for a replay.
    """

    make: Callable[[], TimedEvent]
    stream: Callable[[], object]
    capturing: Callable[[], bool]
    synchronise: Callable[[], None]


def parameter_device(job: Job) -> Device | None:
    """The device of any parameter that is not on the CPU, else the CPU; None while no parameter is seen."""
    found: Device | None = None
    with unseen():
        for parameter in _some_parameters(job):
            device: Device | None = getattr(parameter, "device", None)
            if device is None:
                continue
            if device.type != "cpu":
                return device
            found = device
    return found


def event_source(torch: ModuleType, device: Device) -> EventSource | None:
    """Where the events of a CUDA device come from; None for others."""
    if device.type != "cuda":
        return None
    cuda = torch.cuda
    return EventSource(
        make=lambda: cuda.Event(enable_timing=True),
        stream=lambda: cuda.current_stream(device),
        capturing=partial(capturing, torch),
        synchronise=lambda: cuda.synchronize(device),
    )


def _some_parameters(job: Job) -> Iterator[object]:
    for optimizer in job.optimizers:
        for group in getattr(optimizer, "param_groups", ()):
            parameters = group["params"]
            yield from parameters[:: max(1, len(parameters) // LOOKED_AT)]
    for root in job.roots:
        held: Callable[[], Iterable[object]] | None = getattr(root, "parameters", None)
        if held is not None:
            yield from islice(held(), LOOKED_AT)
