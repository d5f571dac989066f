"""Whether the job runs compiled code, found without touching any module.

Hooks on modules make compiled ones compile again, and a function mode changes their bits: this is
asked before anything but the step hook is put on. By the time that modules are looked for, several
steps have run, so compiled code has shown in dynamo's counters: of frames, which rises as the first of
them begins to be traced, and of graphs. Locals of frames on the stack are not searched: reading a
running function's would rewrite what the user's own `locals()` holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, ModuleType

from .module_call_slot import beneath

STEADY = ("torch.num_threads",)
"""What remedies set and dynamo compiles anew for."""
_TRACES = "torch/_dynamo/convert_frame.py"
_MAKES_CODE = "compile_fx_inner"  # of a backward, which is compiled as it first runs


def compiled_graphs() -> int:
    """Graphs that dynamo has compiled in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters["stats"].get("unique_graphs", 0)) if counters and "stats" in counters else 0


def frames_begun() -> int:
    """Frames that dynamo has begun to trace in this process; the first one may be under way."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters["frames"].get("total", 0)) if counters and "frames" in counters else 0


def compiles_now(ident: int) -> bool:
    """Whether a thread is compiling at this moment: dynamo traces, or inductor makes code of a graph."""
    frame = sys._current_frames().get(ident) if "torch._dynamo" in sys.modules else None
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(_TRACES) or code.co_name == _MAKES_CODE:
            return True
        frame = frame.f_back
    return False


def holds_code_of(torch: ModuleType, code: CodeType) -> bool:
    """Whether dynamo keeps what it has compiled of a function."""
    if "torch._dynamo" not in sys.modules:
        return False
    inside = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    kept: Callable[[CodeType], list[object]] | None = getattr(inside, "_debug_get_cache_entry_list", None)
    return bool(kept(code)) if kept is not None else compiled_graphs() > 0


def forget_graphs(number: int) -> None:
    """Take graphs out of dynamo's counter whose code is gone, and what was traced for them or for none."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is not None:
        counters["stats"]["unique_graphs"] -= number
        if not counters["stats"]["unique_graphs"]:  # nobody else has compiled anything
            counters["frames"].clear()


class CompiledCheck:
    """Asks dynamo's own counters and the known roots."""

    def __init__(self) -> None:
        self._baseline = (0, 0)

    def forget_ours(self) -> None:
        """A compiled remedy has been undone: its graphs don't make the job a compiled one."""
        self._baseline = (compiled_graphs(), frames_begun())

    def compiled(self, roots: list[object]) -> bool:
        """Compiled as far as dynamo and the known roots say. Cheap: at any boundary."""
        if "torch._dynamo" not in sys.modules:
            return False
        graphs, frames = compiled_graphs(), frames_begun()
        # Less than before: ours are forgotten.
        self._baseline = min(self._baseline[0], graphs), min(self._baseline[1], frames)
        return (graphs, frames) != self._baseline or any(map(is_compiled, roots))


def is_compiled(module: object) -> bool:
    """This very module was compiled (`torch.compile(m)` or `m.compile()`)."""
    return type(module).__name__ == "OptimizedModule" or beneath(module) is not None
