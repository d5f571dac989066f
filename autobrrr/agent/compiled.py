"""Whether the job runs compiled code, found without touching any module.

Hooks on modules make compiled ones compile again, and a function mode changes their bits: this is
asked before anything but the step hook is put on. By the time that modules are looked for, several
steps have run, so compiled code has shown in dynamo's counter. Frames are not searched: reading a
running function's locals would rewrite what the user's own `locals()` holds.
"""

from __future__ import annotations

import sys


def compiled_graphs() -> int:
    """Graphs that dynamo has compiled in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters["stats"].get("unique_graphs", 0)) if counters and "stats" in counters else 0


class CompiledCheck:
    """Asks dynamo's own counter and the known roots."""

    def __init__(self) -> None:
        self._baseline = 0

    def forget_ours(self) -> None:
        """A compiled lever has been undone: its graphs don't make the job a compiled one."""
        self._baseline = compiled_graphs()

    def compiled(self, roots: list[object]) -> bool:
        """Compiled as far as dynamo and the known roots say. Cheap: at any boundary."""
        if "torch._dynamo" not in sys.modules:
            return False
        return compiled_graphs() > self._baseline or any(map(is_compiled, roots))


def is_compiled(module: object) -> bool:
    """This very module was compiled (`torch.compile(m)` or `m.compile()`)."""
    return type(module).__name__ == "OptimizedModule" or vars(module).get("_compiled_call_impl") is not None
