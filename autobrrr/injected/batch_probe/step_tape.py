"""The tape: what of a recorded step the losses depend on, freed from the real step's graph.

Comes from a `Recording`; walks backwards from the backward calls and drops the rest
(evaluation calls, metrics, logging). Values keep detached aliases, so no graph stays alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import cast

from ..live_torch.pytrees import Ref, leaves
from ..live_torch.torch_types import Abstain, Module, Tensor, is_tensor
from .step_recorder import Node, Recording

_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(...), type)


@dataclass(slots=True, kw_only=True)
class Value:
    """A tensor of the step.

    `tensor` is the parameter or buffer itself where it `stays`, else a detached alias, or None
    where the replay makes it anew anyway.
    """

    tensor: Tensor | None
    shape: tuple[int, ...]
    needs_grad: bool
    stays: bool = False  # a parameter or buffer: never sliced, never copied
    rooted: bool = False  # depends on a root call's result
    producer: int | None = None
    version: int = 0


@dataclass(slots=True)
class Tape:
    """Nodes in order, the values that they use, and the parameters to differentiate by."""

    nodes: list[Node]
    values: dict[int, Value]
    modules: list[Module] = field(default_factory=list)  # of the root calls, each once

    def release(self) -> None:
        """Let go of every tensor and module."""
        self.nodes.clear()
        self.values.clear()
        self.modules.clear()


def freeze(torch: ModuleType, recording: Recording) -> Tape:
    """The tape of a recording.

    Raises:
        Abstain: the step has no backward call, or one that can't be repeated.
    """
    nodes = _needed(recording.nodes)
    producers = {number: index for index, node in enumerate(nodes) for number in node.outputs}
    tape = Tape(nodes, {})
    kept = _kept_identities(nodes)
    rooted: set[int] = set()
    for node in nodes:
        _refuse_node(torch, node)
        if not node.grad and any(recording.tensors[number].grad_fn is not None for number in node.outputs):
            raise Abstain("an autograd function of the job's own is applied outside modules")
        if node.kind == "module":
            _unwrap(torch, node)
            module = cast(Module, node.target)
            if not any(module is other for other in tape.modules):
                tape.modules.append(module)
            rooted.update(node.outputs)
        elif node.kind == "function" and any(number in rooted for number in node.inputs):
            rooted.update(node.outputs)
    module_inputs = {number for node in nodes if node.kind == "module" for number in node.inputs}
    for node in nodes:
        for number in [*node.inputs, *node.outputs]:
            if number not in tape.values:
                value = _value(recording.tensors[number], number, producers, rooted, kept)
                if value.rooted and number not in module_inputs:
                    value.tensor = None
                tape.values[number] = value
    if not any(node.kind == "backward" for node in nodes):
        raise Abstain("no backward call was seen in the step")
    if not tape.modules:
        raise Abstain("no module is called in the step")
    return tape


def objects(tape: Tape) -> list[tuple[str, object]]:
    """What the calls take beside tensors and plain values, each with its name: replays get the very same."""
    found: dict[int, tuple[str, object]] = {}
    for node in tape.nodes:
        name = getattr(node.target, "__name__", None) or _name(node.target)
        for leaf in leaves((node.args, node.kwargs)):
            if not isinstance(leaf, (Ref, *_PLAIN)):
                found.setdefault(id(leaf), (f"an argument of {name}", leaf))
    return list(found.values())


def _needed(nodes: list[Node]) -> list[Node]:
    wanted: set[int] = set()
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.kind == "backward" or wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    kept.reverse()
    return kept


def _refuse_node(torch: ModuleType, node: Node) -> None:
    if node.inference:
        raise Abstain("the losses depend on tensors made in inference mode")
    name = getattr(node.target, "__name__", "")
    if (node.kind == "backward" or name == "grad") and node.kwargs.get("create_graph"):
        raise Abstain("the step differentiates through a gradient (create_graph)")
    if node.kind != "module":
        return
    arguments = cast("tuple[object, ...]", node.args)
    if any(type(part).__name__ == "PackedSequence" for part in (*arguments, *node.kwargs.values())):
        raise Abstain(f"{_name(node.target)} takes a packed sequence, which can't be sliced by sample")
    for leaf in leaves((node.args, node.kwargs)):
        if isinstance(leaf, (Ref, *_PLAIN)):
            continue
        inside = getattr(leaf, "__dict__", {})
        if any(is_tensor(part, torch) for part in leaves(list(inside.values()))):
            raise Abstain(
                f"an argument of {_name(node.target)} is a {type(leaf).__name__} that holds tensors"
            )


def _unwrap(torch: ModuleType, node: Node) -> None:
    """Of DDP only the inner module is ever called: the wrapper needs all the other ranks."""
    if isinstance(node.target, torch.nn.parallel.DistributedDataParallel):
        node.target = node.target.module


def _kept_identities(nodes: list[Node]) -> set[int]:
    modules = [cast(Module, node.target) for node in nodes if node.kind == "module"]
    return {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}


def _value(tensor: Tensor, number: int, producers: dict[int, int], rooted: set[int], kept: set[int]) -> Value:
    producer = producers.get(number)
    stays = id(tensor) in kept or type(tensor).__name__ == "Parameter"
    if producer is None and not stays and tensor.grad_fn is not None:
        raise Abstain("a tensor that needs a gradient comes from code that can't be recorded")
    return Value(
        tensor=tensor if stays else tensor.detach(),
        shape=tuple(tensor.shape),
        needs_grad=bool(tensor.requires_grad),
        stays=stays,
        rooted=number in rooted,
        producer=producer,
        version=tensor._version,
    )


def _name(thing: object) -> str:
    return type(thing).__name__
