"""Reasons not to probe, looked for before anything is put on, and before anything is replayed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from ..live_torch.module_call_slot import beneath
from ..live_torch.torch_types import Abstain, Module, Tensor
from .step_tape import Tape

_OWN = __name__.partition(".")[0]
_HOOK_DICTS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine", "DataParallel", "PipelineStage")


def before_recording(torch: ModuleType, roots: Iterable[object], below: Iterable[object]) -> None:
    """Refuse what recording alone could disturb.

    Args:
        torch: The target's torch.
        roots: Root modules as far as they are known.
        below: Function modes that are active now.

    Raises:
        Abstain: with the reason.
    """
    if is_compiled(torch, roots):
        raise Abstain("the job is compiled (torch.compile): recording would make it compile again")
    for mode in below:
        if type(mode).__name__ != "DeviceContext":
            raise Abstain(f"a torch function mode of the job's own is active ({type(mode).__name__})")
    if torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        raise Abstain("a torch dispatch mode of the job's own is active")
    if torch.is_inference_mode_enabled():
        raise Abstain("the loop runs in inference mode")
    if torch.autograd._profiler_enabled():
        raise Abstain("a profiler of the job's own is recording")
    if torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise Abstain("a CUDA graph is being captured")
    for root in roots:
        if isinstance(root, torch.nn.Module):
            refuse_kinds(torch, root)


def is_compiled(torch: ModuleType, roots: Iterable[object]) -> bool:
    """Whether dynamo has compiled anything in this process, or is about to."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0:
        return True
    convert = sys.modules.get("torch._dynamo.convert_frame")
    if convert is not None and getattr(getattr(convert, "output_codes", None), "seen", None):
        return True
    for root in roots:
        if isinstance(root, torch.nn.Module):
            for part in root.modules():
                if type(part).__name__ == "OptimizedModule" or beneath(part) is not None:
                    return True
    return False


def before_replay(torch: ModuleType, tape: Tape, read: frozenset[int]) -> None:
    """Refuse what a replay could show to the outside, or wait for.

    Args:
        torch: The target's torch.
        tape: The recorded step.
        read: Ids of the user's hooks whose code was read and may run again.

    Raises:
        Abstain: with the reason.
    """
    if is_compiled(torch, tape.modules):
        raise Abstain("the job is compiled (torch.compile)")
    for root in tape.modules:
        refuse_kinds(torch, root)
    for node in tape.nodes:
        if node.kind == "module" and node.trainable != sum(
            parameter.requires_grad
            for parameter in node.target.parameters()  # type: ignore[attr-defined]
        ):
            raise Abstain("the step switches requires_grad of parameters on and off")
    for name, hook in user_hooks(tape.modules):
        if id(hook) not in read:
            raise Abstain(f"{name} would fire again in replays")


def derived_attributes(modules: Iterable[Module]) -> set[str]:
    """Attributes that torch's own forward hooks set anew in each call (weight_norm, spectral_norm)."""
    names: set[str] = set()
    for root in modules:
        for part in root.modules():
            for hook in getattr(part, "_forward_pre_hooks", {}).values():
                if str(getattr(type(hook), "__module__", "")).startswith("torch.nn.utils"):
                    names.add(str(getattr(hook, "name", "weight")))
    return names


def refuse_kinds(torch: ModuleType, root: Module) -> None:
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
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter and hasattr(kind, "__torch_dispatch__"):
        inherited = kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
        if not inherited:
            raise Abstain(f"the parameters are of the kind {kind.__name__}")
    device = str(tensor.device).partition(":")[0]
    if device not in ("cpu", "cuda"):
        raise Abstain(f"the parameters are on a device of the kind {device}")
    if device == "cpu" and tensor.is_shared():
        raise Abstain("the parameters lie in memory that other processes write")


def user_hook(modules: Iterable[Module]) -> str | None:
    """A name for the first hook that is neither ours nor torch's own."""
    return next((name for name, _ in user_hooks(modules)), None)


def user_hooks(modules: Iterable[Module]) -> Iterator[tuple[str, object]]:
    """All hooks that are neither ours nor torch's own, each with a name for it."""
    place = sys.modules["torch.nn.modules.module"]
    for name in _HOOK_DICTS:
        for hook in _foreign(getattr(place, f"_global{name}", {})):
            yield "a global module hook of the job's own", hook
    for root in modules:
        for part in root.modules():
            for name in _HOOK_DICTS:
                for hook in _foreign(getattr(part, name, None) or {}):
                    spoken = name.strip("_").removesuffix("s").replace("_", " ")
                    yield f"a {spoken} on {type(part).__name__}", hook


def _foreign(hooks: Mapping[object, object]) -> Iterator[object]:
    for hook in hooks.values():
        home = str(getattr(hook, "__module__", None) or getattr(type(hook), "__module__", ""))
        top = home.partition(".")[0]
        if top not in ("torch", _OWN):
            yield hook
