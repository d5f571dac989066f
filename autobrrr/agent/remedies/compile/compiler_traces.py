"""What torch.compile leaves in a process besides compiled code, and how it is taken away.

Found by comparing a process before and after on torch 2.13: methods of optimizers, `nn.Module`, `torch.jit`
and the tracer are wrapped, argument checks of distributions go off, the recursion limit rises, variables are
set, threads and processes are started. torch does it anew if ever something else is compiled.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from ...live_torch.parameter_places import Place, places_of
from ...live_torch.torch_types import Module

_ABSENT = object()
_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Failed|Unsupported)\w*: .+", re.MULTILINE
)  # of a traceback
MARK = "_dynamo_static_input_type"  # set on every parameter that a graph reads
_LOGGER = "torch._dynamo.convert_frame"  # says what runs eagerly after all, and why
WRAPPED, IS_TO_WRAP = ("__init__", "__setstate__"), "___needs_generation_tag_patch"  # of `nn.Module`
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
        self._torch = torch
        self._variables = set(os.environ)
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._recursion = sys.getrecursionlimit()
        self._attributes = [(owner, name, vars(owner).get(name, _ABSENT)) for owner, name in _places(torch)]

    def remove(self) -> None:
        """Take away what torch's compiler has set since; what the job has set over it stays."""
        for owner, name, was in self._attributes:
            now = vars(owner).get(name, _ABSENT)
            if now is was or not (isinstance(now, bool) or _is_of_compiler(now)):
                continue
            if was is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, was)
        _unwrap_module_class(self._torch)
        patcher: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "TorchPatcher", None)
        if patcher is not None:
            patcher.patch.cache_clear()  # it patches once: whoever compiles next needs it done again
        for name in SET_BY_TORCH:
            if name not in self._variables:
                os.environ.pop(name, None)
        if sys.getrecursionlimit() > self._recursion:
            sys.setrecursionlimit(self._recursion)
        self._end_workers()

    def _end_workers(self) -> None:
        """End compile workers and their pool, and tqdm's monitor, where they were not there before."""
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


def _places(torch: ModuleType) -> Iterator[tuple[object, str]]:
    for name in ("trace", "trace_module", "_get_trace_graph"):
        yield torch.jit, name
    yield torch.distributions.Distribution, "_validate_args"
    tracer = getattr(sys.modules.get("torch.fx._symbolic_trace"), "Tracer", None)
    if tracer is not None:
        yield tracer, "trace"
    for kind in list(vars(torch.optim).values()):
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
            for name in ("step", "_init_group", "profile_hook_step"):
                yield kind, name
            home = sys.modules.get(kind.__module__)
            for name in list(vars(home)):
                if name.startswith("_fused_"):
                    yield home, name


def _unwrap_module_class(torch: ModuleType) -> None:
    """Take off what dynamo wraps in `nn.Module`; where the job has wrapped it over, it stays."""
    kind = torch.nn.Module
    over = [vars(kind)[name] for name in WRAPPED]
    if all(map(_is_of_compiler, over)):
        for name, wrap in zip(WRAPPED, over, strict=True):
            (cell,) = wrap.__closure__  # what it calls first
            setattr(kind, name, cell.cell_contents)
        delattr(kind, IS_TO_WRAP)


def _is_of_compiler(function: object) -> bool:
    # Not its `__module__`, which a wrap over it takes on.
    home = getattr(function, "__globals__", {}).get("__name__", "")
    return str(home).startswith(
        ("torch._dynamo", "torch._inductor", "torch._disable_dynamo", "torch._compile")
    )


def unmark(places: Iterable[Place]) -> None:
    """Take dynamo's mark off parameters that had none before."""
    for place in places:
        parameter = place.parameter()
        if parameter is not None:
            vars(parameter).pop(MARK, None)


def unmarked(modules: Iterable[Module]) -> list[Place]:
    """Where parameters without dynamo's mark stand."""
    return [place for place, each in places_of(modules) if MARK not in vars(each)]
