"""What torch.compile leaves running or set in a process, besides compiled code; and its removal.

Optimizers, `nn.Module`, `torch.jit`, the tracer and distributions have their own attributes back; torch sets
them anew if ever something else is compiled. The processes that compile end. Idle threads, variables of the
environment and a higher recursion limit stay: they change nothing.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

SET_ON_CLASSES = ("_validate_args", "___needs_generation_tag_patch")  # by torch's compiler, beside wraps
_ABSENT = object()
_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Failed|Unsupported)\w*: .+", re.MULTILINE
)  # of a traceback
_LOGGER = "torch._dynamo.convert_frame"  # says what runs eagerly after all, and why


class CompilerTraces:
    """The process as it was before we compiled; `remove` makes it so again."""

    def __init__(self, torch: ModuleType) -> None:
        self._attributes = [(owner, dict(vars(owner))) for owner in _wrapped_owners(torch)]

    def remove(self) -> None:
        """End what torch's compiler has started, and take away what it has set; the job's own stays."""
        for owner, before in self._attributes:
            for name, now in list(vars(owner).items()):
                if now is before.get(name, _ABSENT) or not (name in SET_ON_CLASSES or _is_of_compiler(now)):
                    continue
                if name in before:
                    setattr(owner, name, before[name])
                else:
                    delattr(owner, name)
        patcher: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "TorchPatcher", None)
        if patcher is not None:
            patcher.patch.cache_clear()  # it patches once: whoever compiles next needs it done again
        place: Any = sys.modules.get("torch._inductor.async_compile")
        if getattr(place, "_pool_set", None):
            place.shutdown_compile_workers()


def _wrapped_owners(torch: ModuleType) -> Iterator[object]:
    """Classes and modules some of whose functions torch wraps once it compiles."""
    yield from (torch.jit, torch.nn.Module, torch.distributions.Distribution)
    if "torch.fx" in sys.modules:
        yield torch.fx.Tracer
    for kind in list(vars(torch.optim).values()):
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
            yield from filter(None, (kind, sys.modules.get(kind.__module__)))


def _is_of_compiler(function: object) -> bool:
    # Not its `__module__`, which a wrap over it takes on.
    home = str(getattr(function, "__globals__", {}).get("__name__", ""))
    return home.startswith(("torch._dynamo", "torch._inductor", "torch._disable_dynamo", "torch._compile"))


class SaidByCompiler(logging.Filter):
    """Keeps what torch's compiler logs about code it could not compile, and keeps it off the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.said: str | None = None
        logging.getLogger(_LOGGER).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        errors = _ERROR.findall(record.getMessage())
        if errors and self.said is None:
            self.said = errors[-1][:240]
        return False

    def end(self) -> None:
        logging.getLogger(_LOGGER).removeFilter(self)
