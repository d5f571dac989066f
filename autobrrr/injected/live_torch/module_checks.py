"""Modules that can't be wrapped, and their hooks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType

from .dispatch_modes import runs_own_code
from .torch_types import Abstain, Module, Tensor

HOOK_DICTS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine", "DataParallel", "PipelineStage")


def refuse_kinds(torch: ModuleType, root: Module) -> None:
    """Raises Abstain for a module tree of which one rank, or one call more, can't be run by itself."""
    for part in root.modules():
        for kind in type(part).__mro__:
            if kind.__name__ in _SHARDED:
                raise Abstain(f"{kind.__name__} calls collectives in its forward")
            if kind.__name__ == "SyncBatchNorm":
                raise Abstain("SyncBatchNorm waits for the other ranks")
        if isinstance(part, torch.jit.ScriptModule):
            raise Abstain(f"{type(part).__name__} is TorchScript, which would specialise on other shapes")
        forward = vars(part).get("forward")
        if "graphed" in getattr(forward, "__qualname__", ""):
            raise Abstain(f"{type(part).__name__} replays a CUDA graph")
    for tensor in (*root.parameters(), *root.buffers()):
        _refuse_tensor(torch, tensor)


def _refuse_tensor(torch: ModuleType, tensor: Tensor) -> None:
    if runs_own_code(torch, type(tensor)):
        raise Abstain(f"the parameters are of the kind {type(tensor).__name__}")
    device = str(tensor.device).partition(":")[0]
    if device not in ("cpu", "cuda"):
        raise Abstain(f"the parameters are on a device of the kind {device}")
    if device == "cpu" and tensor.is_shared():
        raise Abstain("the parameters lie in memory that other processes write")


def hook_dicts(root: Module) -> list[Mapping[object, object]]:
    """Where the hooks of all modules and of these are kept, while they live."""
    place = sys.modules["torch.nn.modules.module"]
    kept = [getattr(place, f"_global{name}", None) for name in HOOK_DICTS]
    kept += [getattr(part, name, None) for part in root.modules() for name in HOOK_DICTS]
    return [each for each in kept if each is not None]
