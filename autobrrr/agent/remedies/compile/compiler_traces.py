"""What torch.compile leaves running or set in a process besides compiled code, and how it is taken away.

Workers and threads end; variables, the recursion limit and argument checks of distributions are as before.
Functions that torch has wrapped for its compiler stay wrapped, as in any script that compiles.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from types import ModuleType
from typing import Any

_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Failed|Unsupported)\w*: .+", re.MULTILINE
)  # of a traceback
_LOGGER = "torch._dynamo.convert_frame"  # says what runs eagerly after all, and why
SET_BY_TORCH = (
    "TORCHINDUCTOR_CACHE_DIR",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
    "TRITON_CACHE_DIR",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_PTXAS_PATH",
)


class CompilerTraces:
    """The process as it was before we compiled; `remove` makes it so again."""

    def __init__(self, torch: ModuleType) -> None:
        self._checked = torch.distributions.Distribution
        self._checks = self._checked._validate_args
        self._variables = set(os.environ)
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._recursion = sys.getrecursionlimit()

    def remove(self) -> None:
        """End what torch's compiler has started, and set back what it has set."""
        self._checked.set_default_validate_args(self._checks)
        for name in SET_BY_TORCH:
            if name not in self._variables:
                os.environ.pop(name, None)
        if sys.getrecursionlimit() > self._recursion:
            sys.setrecursionlimit(self._recursion)
        place: Any = sys.modules.get("torch._inductor.async_compile")
        new = {thread.name for thread in threading.enumerate() if thread.ident not in self._threads}
        pool: Any = getattr(getattr(place, "AsyncCompile", None), "pool", None)
        made = hasattr(pool, "cache_info") and pool.cache_info().currsize
        if made and any("ThreadPoolExecutor" in name for name in new):
            pool().shutdown(wait=False)
            pool.cache_clear()
        if getattr(place, "_pool_set", None):
            place.shutdown_compile_workers()
        bars: Any = getattr(sys.modules.get("tqdm"), "tqdm", None)
        monitor = getattr(bars, "monitor", None)
        if monitor is not None and "tqdm_monitor" in new and not getattr(bars, "_instances", None):
            monitor.exit()
            bars.monitor = None


class SaidByCompiler(logging.Filter):
    """Keeps what torch's compiler logs about code it could not compile, and keeps it off the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.said: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        errors = _ERROR.findall(record.getMessage())
        if errors and self.said is None:
            self.said = errors[-1][:240]
        return False

    def listen(self) -> None:
        logging.getLogger(_LOGGER).addFilter(self)

    def end(self) -> None:
        logging.getLogger(_LOGGER).removeFilter(self)
