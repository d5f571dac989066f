"""A module's call led through layers of ours: autocast around it, compiled code in place of it.

The layers stand in `_compiled_call_impl`: where torch itself looks before it calls a module, and what
it leaves out when the module is copied or pickled; over them may lie watches of the agent's. A
wrapped `forward` would travel with a copy of the model and go on calling the original.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import ModuleType
from typing import cast

from ...live_torch import module_call_slot
from ...live_torch.live_job import Job
from ...live_torch.module_call_slot import Layer
from ...live_torch.torch_types import Module, Tensor
from ..registry import RefusalCode, Refused, Undo

HOOK_DICTS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine", "DataParallel", "PipelineStage")
FEWEST = 2


class Rank(IntEnum):
    """The order of layers, the outermost first."""

    PRECISION = 0
    CODE = 1


def lead_through(module: Module, rank: Rank, layer: Layer) -> Undo:
    """Add a layer to a module's call; the undo takes it out, and leaves no trace after the last.

    Raises:
        Refused: somebody else has compiled the module, or it has a layer of this rank.
    """
    if module_call_slot.theirs(module) is not None:
        raise Refused(f"{type(module).__name__} is compiled already")
    if module_call_slot.is_led(module, rank):
        raise Refused(f"{type(module).__name__} runs through {rank.name.lower()} already")
    return module_call_slot.lead_through(module, rank, layer)


def hold_gradients(module: Module) -> Undo:
    """Copy the gradients of a module's parameters before they are accumulated; returns the undo.

    Autograd keeps the tensor that a backward returns as `.grad`. Of a replayed backward that is the graph's
    own memory: the next replay would write into the gradient that is being accumulated.

    Raises:
        Refused: a parameter has hooks already.
    """
    trained = [each for each in module.parameters() if each.requires_grad]
    if any(each._backward_hooks is not None for each in trained):
        raise Refused("your script has hooks on parameters")
    held = [each.register_hook(lambda gradient: gradient.clone()) for each in trained]
    remembered = weakref.ref(module)

    def undo() -> None:
        for handle in held:
            handle.remove()
        live = remembered()
        for each in [] if live is None else live.parameters():
            if not each._backward_hooks:
                each._backward_hooks = None

    return undo


def trained_roots(job: Job) -> list[Module]:
    """Root modules with parameters that are trained; of a DistributedDataParallel what it wraps.

    Raises:
        Refused: there is none yet, or one calls collectives, is compiled, scripted, or replays a graph.
    """
    parallel = getattr(job.torch.nn.parallel, "DistributedDataParallel", ())
    found: list[Module] = []
    for root in job.roots:
        inner = cast(Module, root.module if parallel and isinstance(root, parallel) else root)
        if any(each.requires_grad for each in inner.parameters()) and inner not in found:
            found.append(inner)
    if not found:
        raise Refused("no module that is trained has been called yet", RefusalCode.NOT_MET)
    for module in found:
        if type(module).__name__ == "OptimizedModule" or module_call_slot.theirs(module) is not None:
            raise Refused("the job is compiled already")
        for part in module.modules():
            _refuse_kind(job.torch, part)
        for tensor in (*module.parameters(), *module.buffers()):
            _refuse_tensor(job.torch, tensor)
    return found


def _refuse_kind(torch: ModuleType, part: Module) -> None:
    for kind in type(part).__mro__:
        if kind.__name__ in _SHARDED:
            raise Refused(f"{kind.__name__} calls collectives in its forward")
        if kind.__name__ == "SyncBatchNorm":
            raise Refused("SyncBatchNorm waits for the other ranks")
    if isinstance(part, torch.jit.ScriptModule):
        raise Refused(f"{type(part).__name__} is TorchScript, which would specialise on other shapes")
    if "graphed" in getattr(vars(part).get("forward"), "__qualname__", ""):
        raise Refused(f"{type(part).__name__} replays a CUDA graph")


def _refuse_tensor(torch: ModuleType, tensor: Tensor) -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise Refused(f"the parameters are of the kind {type(tensor).__name__}")
    device = str(tensor.device).partition(":")[0]
    if device not in ("cpu", "cuda"):
        raise Refused(f"the parameters are on a device of the kind {device}")


def device_types(modules: Iterable[Module]) -> set[str]:
    """Kinds of devices on which the parameters lie."""
    return {str(each.device).partition(":")[0] for module in modules for each in module.parameters()}


def needs_cuda(job: Job) -> None:
    """For remedies of the GPU.

    Raises:
        Refused: there is none, or the job has not put its parameters there.
    """
    if not job.torch.cuda.is_available():
        raise Refused("torch sees no CUDA device")
    found = device_types(trained_roots(job))
    if found != {"cuda"}:
        raise Refused(f"the parameters are on {', '.join(sorted(found))}, not on a CUDA device")


def autocast_states(torch: ModuleType) -> Callable[[], tuple[bool, bool]]:
    """A function that tells whether autocast is on now, for the CPU and for CUDA."""
    enabled = torch.is_autocast_enabled
    try:
        enabled("cpu")
    except TypeError:  # before torch 2.4
        on_cpu = torch.is_autocast_cpu_enabled
        return lambda: (on_cpu(), enabled())
    return lambda: (enabled("cpu"), enabled("cuda"))


def repeated_blocks(roots: Iterable[Module]) -> list[Module]:
    """All repeated blocks below the roots, in the order of the tree.

    Raises:
        Refused: nothing is repeated.
    """
    found: list[Module] = []
    for root in roots:
        found += _below(root)
    if not found:
        raise Refused("no block of the model is repeated")
    return found


def _below(module: Module) -> list[Module]:
    kinds = [(child, _kind(child)) for child in module.children()]
    count = Counter(kind for _, kind in kinds if kind is not None)
    found: list[Module] = []
    for child, kind in kinds:
        found += [child] if count[kind] >= FEWEST else _below(child)
    return found


def _kind(module: Module) -> object:
    """What makes blocks alike; None for what is no block: a single layer, a container without forward."""
    shapes = tuple((tuple(each.shape), each.requires_grad) for each in module.parameters())
    container = type(module).__name__ in ("ModuleList", "ModuleDict", "ParameterList")
    if container or not any(True for _ in module.children()) or not any(wanted for _, wanted in shapes):
        return None
    return type(module), shapes


def hook_dicts(root: Module) -> list[Mapping[object, object]]:
    """Where the hooks of all modules and of these are kept, while they live."""
    place = sys.modules["torch.nn.modules.module"]
    kept = [getattr(place, f"_global{name}", None) for name in HOOK_DICTS]
    kept += [getattr(part, name, None) for part in root.modules() for name in HOOK_DICTS]
    return [each for each in kept if each is not None]
