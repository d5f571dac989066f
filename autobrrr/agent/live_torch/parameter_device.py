"""On which device the parameters are: that on which steps are computed.

In: the job's optimizers and roots. Reads a few parameters of each group; asks nothing of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from .dispatch_modes import unseen
from .live_job import Job
from .torch_types import Device

LOOKED_AT = 64  # parameters of a group, evenly


class TimedEvent(Protocol):
    """What is used of an event of an accelerator."""

    def record(self, stream: object) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: TimedEvent) -> float: ...


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


def _some_parameters(job: Job) -> Iterator[object]:
    for optimizer in job.optimizers:
        for group in getattr(optimizer, "param_groups", ()):
            parameters = group["params"]
            yield from parameters[:: max(1, len(parameters) // LOOKED_AT)]
    for root in job.roots:
        held: Callable[[], Iterable[object]] | None = getattr(root, "parameters", None)
        if held is not None:
            yield from islice(held(), LOOKED_AT)
