"""A thread that waits outside torch for long stands still; one in a call of torch's does not."""

from __future__ import annotations

import sys
import threading
from types import ModuleType

import pytest

from autobrrr.injected.loop.standing_thread import LEAST_LOOKS, LEAST_STEPS, StandingThread

SECOND_NS = 1_000_000_000


class Met:
    """A thread that waits until it is let go, as another meets it."""

    def __init__(self, module: str = "training") -> None:
        self.now_ns, self.over = 0, threading.Event()
        space = ModuleType(module).__dict__
        exec("def waits(over): over.wait()", space)
        self.thread = threading.Thread(target=space["waits"], args=(self.over,))
        self.thread.start()
        while "wait" not in str(sys._current_frames()[self.ident].f_code.co_name):
            pass
        self.standing = StandingThread(lambda: self.now_ns)

    @property
    def ident(self) -> int:
        assert self.thread.ident is not None
        return self.thread.ident

    def looks(self, count: int, every_ns: int, step_ns: float = 1e6) -> bool:
        found = False
        for _ in range(count):
            self.now_ns += every_ns
            found = self.standing.stands(self.ident, step_ns)
        return found

    def end(self) -> None:
        self.over.set()
        self.thread.join()


@pytest.mark.parametrize(
    ("module", "count", "every_ns", "step_ns", "stands"),
    [
        ("training", LEAST_LOOKS + 1, SECOND_NS, 1e6, True),
        ("training", LEAST_LOOKS - 1, SECOND_NS, 1e6, False),  # too few looks
        ("training", 100, SECOND_NS // 1000, 1e6, False),  # too short
        ("training", LEAST_STEPS, SECOND_NS, 2e9, False),  # its steps take longer
        ("torch.nn.modules", 100, SECOND_NS, 1e6, False),
    ],
)
def test_only_a_long_wait_outside_torch_counts(
    module: str, count: int, every_ns: int, step_ns: float, stands: bool
) -> None:
    met = Met(module)
    try:
        assert met.looks(count, every_ns, step_ns) is stands
    finally:
        met.end()
    assert not met.standing.stands(met.ident, step_ns)  # it has ended
