"""torch.compile on the live modules of a job: the whole model, its repeated blocks, with CUDA graphs.

As `Module.compile` would, in the place where torch looks before it calls a module. Guards, recompilations and
the fallback to eager code are torch's own. Compiled code is kept for a session, so only the first apply
takes long.
"""

from __future__ import annotations

import builtins
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from importlib import import_module
from time import perf_counter_ns
from types import FunctionType, ModuleType

from ...job_facts import own_files
from ...live_torch.compiled_code import STEADY, compiled_graphs, forget_graphs
from ...live_torch.graph_capture import capturing
from ...live_torch.live_job import Job
from ...live_torch.module_call_slot import Call
from ...live_torch.torch_types import Module
from ..device_headroom import one_more_pool, one_more_step
from ..model_calls.call_layers import (
    Rank,
    device_types,
    hold_gradients,
    hook_dicts,
    lead_through,
    needs_cuda,
    repeated_blocks,
    trained_roots,
)
from ..registry import Option, Refused, Undo, WatchedUndo, remedy
from .cache_graphs import CacheGraphs
from .compiler_traces import CompilerTraces, SaidByCompiler

TARGET = ("module.code",)
WARM_UP_STEPS = 3
MOST_WORKERS = 4  # torch's own number is the cores, up to 32: each imports torch, beside the job's loaders
SECOND_ORDER = re.compile(r"\bcreate_graph\s*=\s*(?!False\b)")
COMPILER_BYTES = 256 << 20  # for each process that compiles and once more: 750 MiB were seen of two
PRICE_S = 25.0  # measured: 9 to 30 s for small models with nothing of them in torch's cache on disk
BESIDE_S = 2.0  # measured: 1.0 to 1.6 s once the cache is full
DYNAMIC = Option(
    name="dynamic",
    kind="bool",
    default=False,
    doc="Compile once for all sizes; without it, for each shape that keeps coming.",
)
STORM = 4  # steps with new graphs, after those of the first apply
RARE = 3  # calls with other shapes, before they are compiled for: the last batch of an epoch is not
MARK = "_dynamo_static_input_type"  # set on every parameter that a graph reads
MOST_FILES, MOST_CHARACTERS = 500, 1 << 21  # of the user's source that are searched
_ENTRIES: dict[type, Call] = {}  # by class
_BEFORE: list[tuple[int, CompilerTraces]] = []  # graphs of the job's own, and the process, before we compiled


def _release(torch: ModuleType) -> None:
    """Let go of compiled code, and of what torch's compiler has left in the process."""
    _ENTRIES.clear()
    if not _BEFORE:
        return
    graphs, before = _BEFORE.pop()
    if not graphs:  # resetting would make the job compile its own code once more
        torch._dynamo.reset()
        forget_graphs(compiled_graphs())
    before.remove()


def _compiler_bytes(job: Job) -> int:
    """Host memory that compiling needs beside the job; 0 once something is compiled."""
    known = bool(_BEFORE) and compiled_graphs() > _BEFORE[0][0]
    return 0 if known else (1 + min(len(os.sched_getaffinity(0)), MOST_WORKERS)) * COMPILER_BYTES


_compiling = partial(
    remedy,
    reach="live",
    cls="rounding",
    targets=TARGET,
    needs_steady=STEADY,
    options=(DYNAMIC,),
    warm_up_steps=WARM_UP_STEPS,
    takes=one_more_step,
    release=_release,
    host_takes=_compiler_bytes,
)


def _whole(mode: str, job: Job, options: Mapping[str, object]) -> Undo:
    if mode != "default":
        needs_cuda(job)
    return _compile(job, trained_roots(job), options, mode)


_compiling(
    "compile.default",
    treats=("overhead", "memory", "underfilled"),
    doc="Compile the model with torch.compile: fused kernels, few calls from Python.",
    price_s=PRICE_S,
    beside_s=BESIDE_S,
)(partial(_whole, "default"))


@_compiling(
    "compile.regional",
    treats=("overhead", "memory", "underfilled"),
    doc="Compile only the blocks that the model repeats: once for all of them, in a fraction of the time.",
    price_s=PRICE_S / 2,
    beside_s=BESIDE_S,
)
def regional(job: Job, options: Mapping[str, object]) -> Undo:
    return _compile(job, repeated_blocks(trained_roots(job)), options, "default")


_compiling(
    "compile.reduce_overhead",
    treats=("overhead",),
    doc="Compile the model and replay it as CUDA graphs: no launches from Python at all.",
    options=(),
    needs=("cuda",),
    unproven=True,
    warm_up_steps=2 * WARM_UP_STEPS,
    price_s=2 * PRICE_S,
    takes=one_more_pool,
)(partial(_whole, "reduce-overhead"))
_compiling(
    "compile.max_autotune",
    treats=("compute", "memory"),
    doc="Compile the model and try several kernels for each matrix product: takes minutes.",
    needs=("cuda",),
    unproven=True,
    price_s=6 * PRICE_S,
)(partial(_whole, "max-autotune-no-cudagraphs"))


def _compile(job: Job, modules: list[Module], options: Mapping[str, object], mode: str) -> Undo:
    torch = job.torch
    dynamic = True if options.get("dynamic") is True else None
    if "cpu" in device_types(modules):
        _refuse_without_tools()
    _refuse_strangers_cache()
    if (file := second_order_file(sys.modules)) is not None:
        raise Refused(f"{file} differentiates gradients again (create_graph), which compiled code can't")
    if not _BEFORE:
        _BEFORE.append((compiled_graphs(), CompilerTraces(torch)))
    settings: list[tuple[str, str, object]] = [
        ("torch._dynamo.config", "suppress_errors", True),  # what can't be compiled runs eagerly
        ("torch._dynamo.config", "trace_numpy", False),  # its random numbers would be torch's
        ("torch._dynamo.config", "rewrite_assert_with_torch_assert", False),  # on a GPU it ends the process
        ("torch._functorch.config", "donated_buffer", False),  # so that a graph may be retained
        # A backward that can't be compiled fails in the forward, where torch falls back, and not in training.
        ("torch._functorch.config", "force_non_lazy_backward_lowering", True),
        ("torch._inductor.config", "compile_threads", _workers()),
    ]
    watch = CompileWatch(modules)
    graphs = CacheGraphs(torch, _options(mode)) if job.prepares else None
    with ExitStack() as undo:
        if graphs is not None:
            undo.callback(job.emit, {"finish": graphs.sent})
            undo.callback(graphs.end)
        undo.callback(watch.end)
        for module in modules:
            if mode == "reduce-overhead":
                undo.callback(hold_gradients(module))
            entry = _entry(type(module), _ENTRIES if graphs is None else graphs.entries)
            how = {"options": _options(mode)} if graphs is None else {"backend": graphs}
            compiled = _compiled(torch, module, mode, torch.compile(entry, dynamic=dynamic, **how))
            undo.callback(lead_through(module, Rank.CODE, partial(_layer, job, hook_dicts(module), compiled)))
        for place in _in_force(settings):
            undo.enter_context(place)
        return WatchedUndo(undo.pop_all().close, watch.trouble)


def _layer(job: Job, hooks: list[Mapping[object, object]], compiled: Call, eager: Call) -> Call:
    """The compiled call in training; eager in evaluation and captures, under late hooks, on rare shapes."""
    torch, held_up = job.torch, job.held_up
    grad_enabled, tensor = torch.is_grad_enabled, torch.Tensor
    # dynamo would not see hooks that come later: its guards for them cost ten times as much as this count.
    known = sum(map(len, hooks))
    met: dict[tuple[object, ...], int] = {}

    def call(*args: object, **kwargs: object) -> object:
        if not grad_enabled() or sum(map(len, hooks)) != known or capturing(torch):
            return eager(*args, **kwargs)
        given = (*args, *kwargs.values()) if kwargs else args
        shapes = tuple(each.shape for each in given if isinstance(each, tensor))
        if shapes not in met and len(met) > 64:  # every batch has its own shape
            met.clear()
        met[shapes] = count = met.get(shapes, RARE if not met else 0) + 1
        if count <= RARE:
            return eager(*args, **kwargs)
        if count > RARE + WARM_UP_STEPS:
            return compiled(*args, **kwargs)
        graphs, began_ns = compiled_graphs(), perf_counter_ns()
        result = compiled(*args, **kwargs)
        if compiled_graphs() != graphs:
            held_up(perf_counter_ns() - began_ns)
        return result

    return call


class CompileWatch:
    """Looks at step boundaries whether torch could compile the model, and whether it keeps compiling it."""

    def __init__(self, modules: list[Module]) -> None:
        self._modules = weakref.WeakSet(modules)
        self.log = SaidByCompiler()
        self._steps = self._storm = 0
        self._graphs = compiled_graphs()

    def end(self) -> None:
        """Nothing of it stays."""
        self.log.end()
        self._unmark()

    def _unmark(self) -> None:
        for module in self._modules:
            for parameter in module.parameters():
                vars(parameter).pop(MARK, None)

    def trouble(self) -> str | None:
        """Why the compiled code must go; None while it does well."""
        now = compiled_graphs()
        new, self._graphs = now - self._graphs, now
        self._steps += 1
        if new:
            self._unmark()  # read while a graph is made; later they would be saved with the model
            self._storm += self._steps > WARM_UP_STEPS
        if self._storm >= STORM:
            return f"torch compiled it again in {self._storm} further steps: its inputs keep changing"
        if self.log.said is not None and not new and self._steps >= WARM_UP_STEPS:
            return f"torch can't compile it: {self.log.said}"
        return None


def _in_force(settings: list[tuple[str, str, object]]) -> Iterator[AbstractContextManager[object]]:
    """Contexts in which settings of torch's compiler hold; what this torch does not have is left out."""
    for place, name, value in settings:
        config = import_module(place)
        if hasattr(config, name):
            yield config.patch({name: value})


def _workers() -> int:
    """Processes that compile at a time: as many as the job has chosen, up to a few."""
    import torch._inductor.config as inductor_config

    return min(int(getattr(inductor_config, "compile_threads", None) or 1), MOST_WORKERS)


def _options(mode: str) -> dict[str, object]:
    """Inductor's options for a mode of `torch.compile`."""
    import torch._inductor as inductor  # the job's own: it is in sys.modules

    options = dict(inductor.list_mode_options(mode)) if mode != "default" else {}
    return {**options, "fallback_random": True}  # dropout draws the numbers that it would draw eagerly


def _compiled(torch: ModuleType, module: Module, mode: str, compiled: Call) -> Call:
    """The module's call under `torch.compile`; nothing is compiled before it is called."""
    remembered = weakref.ref(module)

    def call(*args: object, **kwargs: object) -> object:
        return compiled(remembered(), *args, **kwargs)

    if mode != "reduce-overhead":
        return call
    map_only: Call = torch.utils._pytree.tree_map_only
    # Results out of the memory that the next replay of a graph writes to.
    return lambda *args, **kwargs: map_only(torch.Tensor, torch.clone, call(*args, **kwargs))


def _entry(kind: type, entries: dict[type, Call]) -> Call:
    """A function that calls a module of this class: dynamo keeps what it compiled with a function's code.

    Not torch's own `_call_impl`, at which dynamo looks away, so that a plain Sequential is never compiled.
    Its globals are its own: the cycles that a compilation leaves lead to them, and would keep all of ours.
    """
    if kind not in entries:
        code = _call_module.__code__.replace(co_name=f"call_{kind.__name__}")
        names = {"__name__": code.co_name, "__builtins__": vars(builtins)}
        entries[kind] = FunctionType(code, names, code.co_name)
    return entries[kind]


def _call_module(module: Module, *args: object, **kwargs: object) -> object:
    return module._call_impl(*args, **kwargs)


def _refuse_without_tools() -> None:
    """Refuse where torch would only find out in the training loop that it can't compile for a CPU.

    Raises:
        Refused: with what is missing.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Refused(f"there is no C++ compiler ({compiler}) to compile kernels with")
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        raise Refused("Python.h is missing (the package python3-dev), so kernels can't be compiled")


def _refuse_strangers_cache() -> None:
    """Refuse where another user has taken the name of torch's folder below `/tmp`: what lies there is run."""
    folder = usual_cache()
    with suppress(OSError):
        os.makedirs(folder)  # from here on nobody else can
    if os.path.lexists(folder) and (owner := os.lstat(folder).st_uid) not in (0, os.geteuid()):
        raise Refused(f"{folder}, out of which torch runs code, belongs to uid {owner}")


def usual_cache() -> str:
    """Torch's folder below `/tmp`, which has headers whatever is chosen.

    Not asked of torch: up to 2.3, importing its cache forks a compiler for each core, before we limit them.
    """
    try:
        user = import_module("getpass").getuser()  # torch imports it where it compiles
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def second_order_file(modules: Mapping[str, ModuleType]) -> str | None:
    """Name of the user's first source file that differentiates gradients, or None."""
    for file in own_files(modules)[:MOST_FILES]:
        try:
            with open(file, encoding="utf-8", errors="replace") as text:
                if SECOND_ORDER.search(text.read(MOST_CHARACTERS)):
                    return os.path.basename(file)
        except OSError:
            continue
    return None
