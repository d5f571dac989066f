"""Whether a recorded step calls a collective that a replay, on one rank alone, would wait in for ever.

In: the training thread's operators, logged, with marks where a part of the step begins. Out: the first
collective that was not expected; DDP's own are: in backward, and in the wrapper around the inner module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from ..job_state.operator_log import Logged, OperatorLog
from ..live_torch.dispatch_modes import unseen
from ..live_torch.torch_types import Abstain

_MARK = "autobrrr: "
BACKWARD, WRAPPER, MODULE = f"{_MARK}backward", f"{_MARK}wrapper", f"{_MARK}module"


class CollectiveWatch:
    """On from when it is made.

    Raises:
        Abstain: what a step calls can't be logged.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._log = OperatorLog(torch)
        operators = torch.ops.profiler
        begin = getattr(operators, "_record_function_enter_new", None)
        end = getattr(getattr(operators, "_record_function_exit", None), "_RecordFunction", None)
        if begin is None or end is None or not self._log.start():
            raise Abstain("the collectives of a step can't be logged: another torch, or the job is profiled")
        self._begin: Callable[[str, str | None], object] = begin
        self._end: Callable[[object], object] = end

    @classmethod
    def if_distributed(cls, torch: ModuleType) -> CollectiveWatch | None:
        """A watch that is on, or None where there is no other rank."""
        distributed = torch.distributed
        if not distributed.is_available() or not distributed.is_initialized():
            return None
        return cls(torch) if distributed.get_world_size() > 1 else None

    @contextmanager
    def marked(self, part: str) -> Iterator[None]:
        """What runs within is in this part of the step."""
        with unseen():
            mark = self._begin(part, None)
        try:
            yield
        finally:
            with unseen():
                self._end(mark)

    def stop(self) -> str | None:
        """Why the step can't be replayed."""
        logged = self._log.stop()
        if logged is None or not logged.whole:
            return "the job was profiled, or started a process, while its collectives were logged"
        seen = unexpected(logged)
        return seen and f"the step calls a collective ({seen}) outside DDP's own"


def unexpected(logged: Logged) -> str | None:
    """The first collective outside DDP's own."""
    open_now: list[str] = []
    for name in logged.events:
        if name is None:
            del open_now[-1:]
            continue
        if "c10d" in name.partition("::")[0]:
            marks = [mark for mark in open_now if mark.startswith(_MARK)]
            if BACKWARD not in marks and marks[-1:] != [WRAPPER]:
                return name
        open_now.append(name)
    return None
