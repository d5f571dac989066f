"""Reasons not to probe, looked for before anything is put on, and before anything is replayed."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from ..job_code.replaced_functions import replaced_functions
from ..live_torch.compiled_code import CompiledCheck, is_compiled
from ..live_torch.dispatch_modes import foreign_mode
from ..live_torch.graph_capture import capturing
from ..live_torch.module_checks import refuse_kinds, user_hooks
from ..live_torch.torch_types import Abstain
from .step_tape import Tape


def before_recording(torch: ModuleType, roots: Iterable[object], check: CompiledCheck) -> None:
    """Refuse what recording alone could disturb.

    Args:
        roots: Root modules as far as they are known.
        check: What the training loop knows of compiled code.

    Raises:
        Abstain: with the reason.
    """
    if _runs_compiled(torch, roots, check):
        raise Abstain("the job is compiled (torch.compile): recording would make it compile again")
    mode = foreign_mode(torch)
    if mode is not None:
        raise Abstain(mode)
    for name, _ in replaced_functions(torch):
        raise Abstain(f"the job has replaced {name}: a recorded step would run it twice")
    if torch.is_inference_mode_enabled():
        raise Abstain("the loop runs in inference mode")
    if torch.autograd._profiler_enabled():
        raise Abstain("a profiler of the job's own is recording")
    if capturing(torch):
        raise Abstain("a CUDA graph is being captured")
    for root in roots:
        if isinstance(root, torch.nn.Module):
            refuse_kinds(torch, root)


def _runs_compiled(torch: ModuleType, roots: Iterable[object], check: CompiledCheck) -> bool:
    """Whether the job runs compiled code, or is about to; what a remedy left in a cache is none."""
    parts = (part for root in roots if isinstance(root, torch.nn.Module) for part in root.modules())
    return check.compiled([]) or any(map(is_compiled, parts))


def before_replay(torch: ModuleType, tape: Tape, read: frozenset[int], check: CompiledCheck) -> None:
    """Refuse what a replay could show to the outside, or wait for.

    Args:
        read: Ids of the user's hooks whose code was read and may run again.
        check: What the training loop knows of compiled code.

    Raises:
        Abstain: with the reason.
    """
    if _runs_compiled(torch, tape.modules, check):
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
