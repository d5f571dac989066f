"""What torch.compile changes in a process besides the code it compiles, and how it is put back.

Found by comparing a process before and after on torch 2.13: methods of optimizers, `nn.Module`,
`torch.jit` and the tracer are wrapped, argument checks of distributions go off, the recursion limit
rises, variables are set, threads are started. None of it is needed once the code is compiled; torch
does it anew, if ever something else is compiled.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import ModuleType

from ...live_torch.parameter_places import Place, places_of
from ...live_torch.torch_types import Module
from ..registry import Undo
from .compiler_logs import quiet

_ABSENT = object()
MARK = "_dynamo_static_input_type"  # set on every parameter that a graph reads
WRAPPED, IS_TO_WRAP = ("__init__", "__setstate__"), "___needs_generation_tag_patch"  # of `nn.Module`
SET_BY_TORCH = (
    "TORCHINDUCTOR_CACHE_DIR",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
    "TRITON_CACHE_DIR",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_PTXAS_PATH",
)


class Footprint:
    """A context around whatever may compile, which logs nothing: at its end the process is as it was."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._attributes: list[tuple[object, str, object]] = []
        self._variables: dict[str, str] = {}
        self._recursion = 0
        self._threads: set[int] = set()
        self._quiet = ExitStack()

    def __enter__(self) -> Footprint:
        self._quiet.enter_context(quiet())
        self.begin()
        self._recursion = sys.getrecursionlimit()
        self._attributes = _kept(self._places())
        return self

    def __exit__(self, *_: object) -> None:
        changed = _put_back(self._attributes)
        patcher = getattr(sys.modules.get("torch._dynamo.eval_frame"), "TorchPatcher", None)
        forget = getattr(getattr(patcher, "patch", None), "cache_clear", None)
        if changed and forget is not None:
            forget()  # it patches once: who compiles next shall find it done
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
        self.end()
        self._quiet.close()

    def begin(self) -> None:
        """Look at variables and threads."""
        self._variables = dict(os.environ)
        self._threads = {thread.ident or 0 for thread in threading.enumerate()}

    def end(self) -> None:
        """Take away the compiler's variables and threads that have come since `begin`."""
        for name in SET_BY_TORCH:
            if name not in self._variables:
                os.environ.pop(name, None)
        self._end_threads()

    def _places(self) -> list[tuple[object, str]]:
        torch = self._torch
        found: list[tuple[object, str]] = [
            (torch.jit, "trace"),
            (torch.jit, "trace_module"),
            (torch.jit, "_get_trace_graph"),
        ]
        distribution = getattr(getattr(torch, "distributions", None), "Distribution", None)
        tracer = getattr(sys.modules.get("torch.fx._symbolic_trace"), "Tracer", None)
        if distribution is not None:
            found.append((distribution, "_validate_args"))
        if tracer is not None:
            found.append((tracer, "trace"))
        for kind in vars(torch.optim).values():
            if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
                found += [(kind, name) for name in ("step", "_init_group", "profile_hook_step")]
                home = sys.modules.get(kind.__module__)
                found += [(home, name) for name in vars(home) if name.startswith("_fused_")]
        return found

    def _end_threads(self) -> None:
        """Compile workers and their pool, and tqdm's monitor, where they were not there before."""
        place = sys.modules.get("torch._inductor.async_compile")
        if place is None:
            return
        new = {thread.name for thread in threading.enumerate() if (thread.ident or 0) not in self._threads}
        pool = getattr(getattr(place, "AsyncCompile", None), "pool", None)
        made = pool is not None and hasattr(pool, "cache_info") and pool.cache_info().currsize
        if pool is not None and made and any("ThreadPoolExecutor" in name for name in new):
            pool().shutdown(wait=False)
            pool.cache_clear()
        if getattr(place, "_pool_set", None):
            place.shutdown_compile_workers()
        bars = getattr(sys.modules.get("tqdm"), "tqdm", None)
        monitor = getattr(bars, "monitor", None)
        if (
            bars is not None
            and monitor is not None
            and "tqdm_monitor" in new
            and not getattr(bars, "_instances", None)
        ):
            monitor.exit()
            bars.monitor = None


def leftovers(torch: ModuleType) -> Undo:
    """What is compiled outside of any footprint leaves variables and threads: to go at the end."""
    footprint = Footprint(torch)
    footprint.begin()
    return footprint.end


def module_class(torch: ModuleType) -> Undo:
    """Takes off what compiled calls wrap in `nn.Module`, after the last of them; where the job has wrapped it
    over, it stays."""
    kind = torch.nn.Module
    known = [vars(kind)[name] for name in WRAPPED]

    def undo() -> None:
        over = [vars(kind)[name] for name in WRAPPED]
        if over == known or not all(map(_is_of_dynamo, over)):
            return
        for name, wrap in zip(WRAPPED, over, strict=True):
            (cell,) = wrap.__closure__  # what it calls first
            setattr(kind, name, cell.cell_contents)
        delattr(kind, IS_TO_WRAP)

    return undo


def _is_of_dynamo(function: object) -> bool:
    # Not its `__module__`, which a wrap over it takes on.
    return getattr(function, "__globals__", {}).get("__name__") == "torch._dynamo.mutation_guard"


def _kept(places: list[tuple[object, str]]) -> list[tuple[object, str, object]]:
    return [(owner, name, vars(owner).get(name, _ABSENT)) for owner, name in places]


def _put_back(kept: list[tuple[object, str, object]]) -> bool:
    """Set attributes to what they were; whether any had changed."""
    changed = [(owner, name, was) for owner, name, was in kept if vars(owner).get(name, _ABSENT) is not was]
    for owner, name, was in changed:
        if was is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, was)
    return bool(changed)


def unmark(places: Sequence[Place]) -> None:
    """Take dynamo's mark off parameters that had none before."""
    for place in places:
        parameter = place.parameter()
        if parameter is not None:
            vars(parameter).pop(MARK, None)


def unmarked(modules: Iterable[Module]) -> list[Place]:
    """Where parameters without dynamo's mark stand."""
    return [place for place, each in places_of(modules) if MARK not in vars(each)]
