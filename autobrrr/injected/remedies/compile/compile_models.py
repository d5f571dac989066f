"""torch.compile on the live modules of a job: the whole model, its repeated blocks, with CUDA graphs.

Modules are compiled in place, once their backward was seen (`compile_backwards`), rehearsed on the
arguments of a real call before training uses the result (`compile_rehearsal`), and undone by taking the
layer out of their calls. The compiled code is kept while a session lasts, so that only the first
switching on takes long.
"""

from __future__ import annotations

import builtins
import os
import re
import shutil
import sys
import sysconfig
import weakref
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack, nullcontext
from functools import partial
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any

from ...live_torch.compiled_code import STEADY, compiled_graphs, forget_graphs
from ...live_torch.live_job import Job
from ...live_torch.torch_types import Module
from ..device_headroom import one_more_pool, one_more_step
from ..model_calls.backward_watch import ENOUGH, Backwards
from ..model_calls.call_layers import (
    Call,
    Rank,
    device_types,
    hold_gradients,
    lead_through,
    needs_cuda,
    refuse_odd,
    trained_roots,
)
from ..model_calls.call_results import map_tensors
from ..model_calls.compiled_call import CompiledCall, StormWatch
from ..model_calls.dynamo_footprint import Footprint, leftovers, module_class, unmark, unmarked
from ..model_calls.rehearsal import Rehearsal, settings_in_force
from ..model_calls.repeated_blocks import repeated_blocks
from ..registry import Option, Refused, Undo, WatchedUndo, remedy
from .job_sources import says
from .own_lookups import NOT_OF_OTHERS, own_lookups

TARGET = ("module.code",)
WARM_UP_STEPS = 4 + ENOUGH
MOST_WORKERS = 4  # torch's own number is the cores, up to 32: each imports torch, beside the job's loaders
SECOND_ORDER = re.compile(r"\bcreate_graph\s*=\s*(?!False\b)")
COMPILER_BYTES = 256 << 20  # for each process that compiles and once more: 750 MiB were seen of two
PRICE_S = 25.0  # measured: 18 s for a small model with nothing of it in torch's cache on disk
RANDOM = Option(
    name="random",
    kind="choice",
    default="same",
    choices=("same", "fast"),
    doc="Whether dropout draws the numbers it would draw eagerly, or others, faster: another random stream.",
)
DYNAMIC = Option(
    name="dynamic",
    kind="bool",
    default=False,
    doc="Compile once for all sizes; without it, for each shape that keeps coming.",
)
BUDGET = Option(
    name="memory_budget",
    kind="float",
    default=1.0,
    low=0.0,
    high=1.0,
    doc="Share of the activations that may be kept for backward; the rest is computed again.",
)
_KEPT: MutableMapping[Module, dict[object, CompiledCall]] = weakref.WeakKeyDictionary()
_ENTRIES: MutableMapping[type, Call] = weakref.WeakKeyDictionary()
_TO_PUT_BACK: list[Undo] = []  # once nothing compiled is kept any more


def _release(torch: ModuleType) -> None:
    """Let go of compiled code, and of dynamo's caches and count: nobody compiled before us."""
    ours = sum(call.graphs for calls in _KEPT.values() for call in calls.values())
    _KEPT.clear()
    if _TO_PUT_BACK:
        torch._dynamo.reset()
        forget_graphs(ours)
        while _TO_PUT_BACK:
            _TO_PUT_BACK.pop()()


def _compiler(modules_of: Callable[[Job], list[Module]]) -> Callable[[Job], int]:
    """What compiling takes of the host's memory beside the job; nothing once these modules are compiled."""

    def takes(job: Job) -> int:
        known = all(_KEPT.get(module) for module in modules_of(job))
        return 0 if known else (1 + min(len(os.sched_getaffinity(0)), MOST_WORKERS)) * COMPILER_BYTES

    return takes


def _blocks(job: Job) -> list[Module]:
    return repeated_blocks(trained_roots(job))


_compiling = partial(
    remedy,
    reach="live",
    cls="rounding",
    targets=TARGET,
    needs_steady=STEADY,
    release=_release,
    of_thread=True,  # so are torch's settings of its compiler
    host_takes=_compiler(trained_roots),
)


@_compiling(
    "compile.default",
    treats=("overhead", "memory", "underfilled"),
    doc="Compile the model with torch.compile: fused kernels, few calls from Python.",
    options=(DYNAMIC, RANDOM, BUDGET),
    warm_up_steps=WARM_UP_STEPS,
    price_s=PRICE_S,
    takes=one_more_step,
)
def default(job: Job, options: Mapping[str, object]) -> Undo:
    return _compile(job, trained_roots(job), options, "default")


@_compiling(
    "compile.regional",
    treats=("overhead", "memory", "underfilled"),
    doc="Compile only the blocks that the model repeats: once for all of them, in a fraction of the time.",
    options=(DYNAMIC, RANDOM, BUDGET),
    warm_up_steps=WARM_UP_STEPS,
    price_s=PRICE_S / 2,
    takes=one_more_step,
    host_takes=_compiler(_blocks),
)
def regional(job: Job, options: Mapping[str, object]) -> Undo:
    return _compile(job, _blocks(job), options, "default")


@_compiling(
    "compile.reduce_overhead",
    treats=("overhead",),
    doc="Compile the model and replay it as CUDA graphs: no launches from Python at all.",
    options=(RANDOM,),
    needs=("cuda",),
    unproven=True,
    warm_up_steps=2 * WARM_UP_STEPS,
    price_s=2 * PRICE_S,
    takes=one_more_pool,
)
def reduce_overhead(job: Job, options: Mapping[str, object]) -> Undo:
    needs_cuda(job)
    return _compile(job, trained_roots(job), options, "reduce-overhead")


@_compiling(
    "compile.max_autotune",
    treats=("compute", "memory"),
    doc="Compile the model and try several kernels for each matrix product: takes minutes.",
    options=(DYNAMIC, RANDOM, BUDGET),
    needs=("cuda",),
    unproven=True,
    warm_up_steps=WARM_UP_STEPS,
    price_s=6 * PRICE_S,
    takes=one_more_step,
)
def max_autotune(job: Job, options: Mapping[str, object]) -> Undo:
    needs_cuda(job)
    return _compile(job, trained_roots(job), options, "max-autotune-no-cudagraphs")


def _compile(job: Job, modules: list[Module], options: Mapping[str, object], mode: str) -> Undo:
    torch = job.torch
    dynamic, fast = options.get("dynamic") is True, options.get("random", "same") == "fast"
    budget = options.get("memory_budget", 1.0)
    refuse_odd(torch, modules)
    _refuse_without_tools(torch, device_types(modules))
    if (file := says(SECOND_ORDER)) is not None:
        raise Refused(f"{file} differentiates gradients again (create_graph), which compiled code can't")
    kind = (mode, dynamic, fast, budget)
    known = all(kind in _KEPT.get(module, {}) for module in modules)
    if not _TO_PUT_BACK:
        if compiled_graphs():
            raise Refused("the job compiles something already")
        _TO_PUT_BACK.extend((module_class(torch), leftovers(torch)))
    settings: list[tuple[str, str, object]] = [
        ("torch._dynamo.config", "suppress_errors", False),
        ("torch._dynamo.config", "trace_numpy", False),  # its random numbers would be torch's
        (
            "torch._dynamo.config",
            "rewrite_assert_with_torch_assert",
            False,
        ),  # on a GPU it would end the process
        ("torch._functorch.config", "donated_buffer", False),  # so that a graph may be retained
        ("torch._inductor.config", "compile_threads", _workers()),
        NOT_OF_OTHERS,
    ]
    if mode.startswith("max-autotune"):
        settings.append(("torch._inductor.select_algorithm", "PRINT_AUTOTUNE", False))  # tables of timings
    if isinstance(budget, (int, float)) and budget < 1:
        settings.append(("torch._functorch.config", "activation_memory_budget", budget))
    calls = []
    with nullcontext() if known else Footprint(torch):
        for module in modules:
            kept = _KEPT.get(module, {}).get(kind)
            if kept is None:
                rehearsal = Rehearsal(torch, module, fast, settings)
                run = _compiled(torch, module, mode, dynamic=dynamic, fast=fast)
                kept = CompiledCall(
                    rehearsal,
                    run,
                    dynamic=dynamic,
                    backwards=Backwards(torch),
                    depends=torch.get_num_threads,
                    holds=_has_its_code(module),
                )
                _KEPT.setdefault(module, {})[kind] = kept
            if kept.broken is not None:
                raise Refused(kept.broken)
            calls.append(kept)
    if calls and all(call.slower for call in calls):
        raise Refused(calls[0].slower or "")
    fresh = unmarked(modules)
    with ExitStack() as undo:
        undo.callback(unmark, fresh)
        if mode == "reduce-overhead":
            for module in modules:
                undo.callback(hold_gradients(module))
        for module, call in zip(modules, calls, strict=True):
            undo.callback(lead_through(module, Rank.CODE, call.layer))
        # What is compiled later, outside a rehearsal, falls back to eager rather than raise in training.
        for place in settings_in_force([("torch._dynamo.config", "suppress_errors", True), *settings[1:]]):
            undo.enter_context(place)
        applied = undo.pop_all()
    watch, widened = StormWatch(calls), "stream" if fast and _draws(modules) else None
    return WatchedUndo(applied.close, watch.trouble, widened, watch.times)


def _has_its_code(module: Module) -> Callable[[], bool]:
    """Whether each class has the forward that it has now: dynamo does not look, and answers with the old one.

    Not of a class that makes it anew each time it is asked (`partialmethod`): it never would.
    """
    found: dict[Any, None] = dict.fromkeys(map(type, module.modules()))
    forwards = [(kind, kind.forward) for kind in found if kind.forward is kind.forward]
    return lambda: all(kind.forward is forward for kind, forward in forwards)


def _workers() -> int:
    """Processes that compile at a time: as many as the job has chosen, up to a few."""
    import torch._inductor.config as inductor_config

    return min(int(getattr(inductor_config, "compile_threads", None) or 1), MOST_WORKERS)


def _compiled(torch: ModuleType, module: Module, mode: str, *, dynamic: bool, fast: bool) -> Call:
    """The module's call under `torch.compile`; nothing is compiled before it is called."""
    import torch._inductor as inductor  # the job's own: it is in sys.modules

    options = dict(inductor.list_mode_options(mode)) if mode != "default" else {}
    options["fallback_random"] = not fast
    compiled: Call = torch.compile(_entry(type(module)), dynamic=dynamic, options=options)
    remembered = weakref.ref(module)

    lookups = partial(own_lookups, torch) if "cpu" in device_types([module]) else nullcontext

    def call(*args: object, **kwargs: object) -> object:
        with lookups():
            return compiled(remembered(), *args, **kwargs)

    return _own_memory(torch, call) if mode == "reduce-overhead" else call


def _entry(kind: type) -> Call:
    """A function that calls a module of this class: dynamo keeps what it compiled with a function's code.

    Not torch's own `_call_impl`, at which dynamo looks away, so that a plain Sequential is never compiled.
    Its globals are its own: the cycles that a compilation leaves lead to them, and would keep all of ours.
    """
    if kind not in _ENTRIES:
        code = _call_module.__code__.replace(co_name=f"call_{kind.__name__}")
        names = {"__name__": code.co_name, "__builtins__": vars(builtins)}
        _ENTRIES[kind] = FunctionType(code, names, code.co_name)
    return _ENTRIES[kind]


def _call_module(module: Module, *args: object, **kwargs: object) -> object:
    return module._call_impl(*args, **kwargs)


def _own_memory(torch: ModuleType, below: Call) -> Call:
    """Results out of the memory that the next replay of a graph writes to."""

    def call(*args: object, **kwargs: object) -> object:
        return map_tensors(torch, below(*args, **kwargs), lambda each: each.clone())

    return call


def _draws(modules: list[Module]) -> bool:
    """Whether a module says that it draws random numbers."""
    for module in modules:
        for part in module.modules():
            for name, value in vars(part).items():
                if ("drop" in name or (name == "p" and "Drop" in type(part).__name__)) and value:
                    return True
    return False


def _refuse_without_tools(torch: ModuleType, devices: set[str]) -> None:
    """Refuse where the compiler could only fail.

    Raises:
        Refused: with what is missing.
    """
    if sys.version_info >= (3, 14) and torch.__version__ < "2.9":
        raise Refused("this torch can't compile under this Python")
    if "cpu" in devices:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            raise Refused(f"there is no C++ compiler ({compiler}) to compile kernels with")
        header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
        if not os.path.exists(header):
            raise Refused("Python.h is missing (the package python3-dev), so kernels can't be compiled")
    if "cuda" in devices:
        if find_spec("triton") is None:
            raise Refused("triton is not installed, so kernels can't be compiled")
        if torch.cuda.get_device_capability()[0] < 7:
            raise Refused("the GPU is older than triton supports (compute capability 7.0)")
        if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
            raise Refused("there is no C compiler, which triton needs")
