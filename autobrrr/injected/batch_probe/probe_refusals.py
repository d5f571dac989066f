"""Reasons not to probe, looked for before anything is put on, and before anything is replayed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType

from ..live_torch.module_call_slot import beneath
from ..live_torch.module_checks import refuse_kinds, user_hooks
from ..live_torch.torch_types import Abstain
from .step_tape import Tape


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
