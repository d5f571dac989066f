"""Whether a thread stands still outside torch: one that waits trains no more, others may train meanwhile.

In: `sys._current_frames`, as another thread meets it. Out: whether it has stood there for long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

LEAST_NS, LEAST_STEPS, LEAST_LOOKS = 2_000_000_000, 20, 8


class StandingThread:
    """Looked at again and again, at steps of another thread."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._at: tuple[object, ...] = ()
        self._since_ns = self._looks = 0

    def stands(self, ident: int, step_ns: float) -> bool:
        """Whether it was met at the same place outside torch for so long that it is in no step.

        Args:
            step_ns: Of its usual steps.
        """
        frame: FrameType | None = sys._current_frames().get(ident)
        if frame is None:
            return False
        at = (frame.f_code, frame.f_lasti)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).partition(".")[0] == "torch":
                return False
            frame = frame.f_back
        now = self._clock()
        if at != self._at:
            self._at, self._since_ns, self._looks = at, now, 0
        self._looks += 1
        return self._looks >= LEAST_LOOKS and now - self._since_ns >= max(LEAST_NS, LEAST_STEPS * step_ns)
