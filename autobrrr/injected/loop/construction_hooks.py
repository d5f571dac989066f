"""The moments of a starting job at which a waiting remedy finds what it is for, just before it is used.

A DataLoader that is asked for its first iterator, a DistributedDataParallel that is about to be made. In:
the two entry points of torch, replaced until the plan is through. Out: `Job.saw_loader`, `Job.ddp_arguments`,
and a call of the plan each time. An error of ours never reaches the script.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import ModuleType

from ..live_torch.live_job import Job
from ..live_torch.patches import Patch, patched, take_off_all
from ..remedies.loader.loader_epochs import EPOCHS

AnyCall = Callable[..., object]


class ConstructionHooks:
    """Both of them, for one plan."""

    def __init__(self, torch: ModuleType, job: Job, look: Callable[[], None]) -> None:
        self._torch = torch
        self._job = job
        self._look = look
        self._pid = os.getpid()
        self._patches: list[Patch] = []
        self._live = True

    def put_on(self) -> None:
        """From now on."""
        EPOCHS.listen(self._torch, self._begins)
        parallel = getattr(getattr(self._torch, "nn", None), "parallel", None)
        self._patches += patched(getattr(parallel, "DistributedDataParallel", None), "__init__", self._init)

    def take_off(self) -> None:
        """The plan is through."""
        self._live = False
        EPOCHS.leave(self._begins)
        take_off_all(self._patches)

    def _begins(self, loader: object) -> None:
        self._job.saw_loader(loader)
        self._look()

    def _init(self, original: AnyCall) -> AnyCall:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def __init__(self_: object, *args: object, **kwargs: object) -> object:
            if not self._live or os.getpid() != self._pid:
                return original(self_, *args, **kwargs)
            try:
                arguments = dict(signature.bind(self_, *args, **kwargs).arguments)
            except TypeError:
                return original(self_, *args, **kwargs)  # torch's own error, from its own place
            first, *_ = signature.parameters
            del arguments[first]
            self._job.ddp_arguments = arguments
            try:
                self._look()
            finally:
                self._job.ddp_arguments = None
            return original(self_, **arguments)

        return __init__
