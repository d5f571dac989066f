"""One replay of the tape: forward and backward at a given batch, guarded, timed.

The gradient is asked for with `torch.autograd.grad`, so nothing is accumulated and neither DDP's
hooks nor the user's fire. Reentrant checkpoints forbid that: there a plain backward runs into
twins of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from ..job_code.unread_code import unread_code_refused
from ..job_state.autocast_state import AutocastSwitch
from ..job_state.state_guard import Guarded, unchanged
from ..live_torch import op_flops as flops
from ..live_torch.dispatch_modes import Operator, dispatch_mode, end_late_pause, own_code_refused
from ..live_torch.pytrees import leaves
from ..live_torch.torch_types import Abstain, Module, Tensor, is_tensor, tensor_bytes
from ..phases.resource_usage import PROCESS, THREAD, interruptions, minor_faults
from .resize_plan import ResizePlan, arguments, feed
from .step_recorder import Node
from .step_tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One timed replay; `interrupted`: another process took the CPU meanwhile."""

    shadow_ns: int
    minor_faults: int
    interrupted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What one replay consists of."""

    operations: int
    flops: int
    saved_bytes: int  # kept for the backward, each storage once


class Player:
    """Replays one tape.

    Args:
        clock: Nanoseconds.
    """

    def __init__(self, torch: ModuleType, tape: Tape, guarded: Guarded, clock: Callable[[], int]) -> None:
        self.torch, self.tape, self.guarded, self.clock = torch, tape, guarded, clock
        self._tried = False
        self._played: set[int] = set()  # batches: where code may be met that no replay has run yet

    def time(self, plan: ResizePlan, wanted: int, replays: int) -> list[Timing]:
        """Replay some times in a row at a batch of `wanted`, under one guard."""
        with self._guard(), nullcontext() if self._played else own_code_refused(self.torch):
            return [self._timed(plan, wanted) for _ in range(replays)]

    def census(self, plan: ResizePlan, wanted: int) -> Census:
        """Replay once and count operators, floating-point operations and bytes kept."""
        with self._guard():
            return self._counted(plan, wanted)

    def _guard(self) -> AbstractContextManager[None]:
        trial, self._tried = not self._tried, True
        return unchanged(self.torch, self.guarded, trial=trial)

    def _timed(self, plan: ResizePlan, wanted: int) -> Timing:
        env = feed(self.torch, self.tape, plan, wanted)
        self._synchronise()
        faults = minor_faults(PROCESS)
        switches = interruptions(THREAD)
        began = self.clock()
        with nullcontext() if wanted in self._played else unread_code_refused(self.guarded.read):
            self._play(plan, wanted, env)
        self._played.add(wanted)
        self._synchronise()
        ended = self.clock()
        return Timing(
            shadow_ns=ended - began,
            minor_faults=minor_faults(PROCESS) - faults,
            interrupted=interruptions(THREAD) > switches,
        )

    def _counted(self, plan: ResizePlan, wanted: int) -> Census:
        torch = self.torch
        env = feed(torch, self.tape, plan, wanted)
        operations = 0
        total_flops = 0
        kept: dict[int, int] = {}

        def count(operator: Operator, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
            nonlocal operations, total_flops
            result = operator(*args, **kwargs)
            operations += 1
            total_flops += flops.of(operator, args, result)
            return result

        def pack(tensor: Tensor) -> Tensor:
            kept[tensor.data_ptr()] = max(kept.get(tensor.data_ptr(), 0), tensor_bytes(tensor))
            return tensor

        mode = dispatch_mode(torch, count)
        kept_by_autograd = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with kept_by_autograd, mode, unread_code_refused(self.guarded.read):
            self._play(plan, wanted, env)
        mode.handler = None
        owned = {parameter.data_ptr() for parameter in self.guarded.parameters}
        return Census(
            operations=operations,
            flops=total_flops,
            saved_bytes=sum(size for pointer, size in kept.items() if pointer not in owned),
        )

    def _play(self, plan: ResizePlan, wanted: int, env: dict[int, Tensor]) -> None:
        torch = self.torch
        set_grad, grad_now = torch._C._set_grad_enabled, torch.is_grad_enabled()
        parameters = [parameter for parameter in self.guarded.parameters if parameter.requires_grad]
        with closing(AutocastSwitch(torch)) as switch:
            for index in plan.order:
                end_late_pause()
                node = self.tape.nodes[index]
                args, kwargs = arguments(node, env, plan, wanted)
                if node.kind == "backward":
                    switch.close()
                    set_grad(True)
                    grad_now = True
                    self._differentiate(args, kwargs, parameters)
                    continue
                if node.grad != grad_now:
                    set_grad(node.grad)
                    grad_now = node.grad
                switch.to(node.cast)
                if node.kind == "module":
                    _set_training(node)
                    result = cast(Module, node.target)(*args, **kwargs)
                else:
                    result = cast("Callable[..., object]", node.target)(*args, **kwargs)
                self._bind(node, args, result, env)

    def _bind(self, node: Node, args: tuple[object, ...], result: object, env: dict[int, Tensor]) -> None:
        if len(node.outputs) == 1 and is_tensor(result, self.torch):
            env[node.outputs[0]] = result
            return
        made = [part for part in leaves(result) if is_tensor(part, self.torch)]
        if not made and getattr(node.target, "__name__", "") == "__setitem__":
            made = [cast(Tensor, args[0])]
        if len(made) != len(node.outputs):
            raise Abstain("a replayed call gives another number of tensors than the recorded one")
        env.update(zip(node.outputs, made, strict=True))

    def _differentiate(
        self, args: tuple[object, ...], kwargs: dict[str, object], parameters: list[Tensor]
    ) -> None:
        named = dict(
            zip(("tensors", "gradient", "retain_graph", "create_graph", "inputs"), args, strict=False)
        )
        named.update(kwargs)
        gradient = named.get("gradient", named.get("grad_tensors"))
        losses, gradients = _listed(named["tensors"]), _listed(gradient)
        inputs = _listed(named.get("inputs")) or parameters
        if self.guarded.accumulates:
            self.torch.autograd.backward(losses, gradients or None, named.get("retain_graph"))
            return
        self.torch.autograd.grad(
            losses, inputs, gradients or None, retain_graph=named.get("retain_graph"), allow_unused=True
        )

    def _synchronise(self) -> None:
        cuda = self.torch.cuda
        if cuda.is_available() and cuda.is_initialized():
            cuda.synchronize()


def _set_training(node: Node) -> None:
    for module, flag in node.training:
        if module.training is not flag:
            module.__dict__["training"] = flag


def _listed(thing: object) -> list[object]:
    if thing is None:
        return []
    return list(thing) if isinstance(thing, Sequence) else [thing]
