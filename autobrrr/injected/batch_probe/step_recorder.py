"""Records one real step: root module calls, torch functions between them, backward calls.

Put on at one step boundary, taken off at the next, both on the training thread. A function mode
sees torch functions outside modules, a stand-in for `Module.__call__` sees the root calls with
all their arguments. While one is under way the mode is off: under it attention layers would not take
their fast path, which rounds otherwise. What the step computes is passed on untouched, and an error of
ours never gets into it: it ends the recording. Out comes a list of nodes over numbered values.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import util as multiprocessing_util
from pathlib import Path
from types import ModuleType
from typing import cast

from ..job_state import autocast_state
from ..job_state.operator_log import before_enabling
from ..live_torch import available_memory
from ..live_torch.compiled_code import before_compiling
from ..live_torch.dispatch_modes import (
    function_modes,
    own_code,
    put_function_mode,
    take_function_mode,
    unseen,
)
from ..live_torch.handler_errors import let_through
from ..live_torch.patches import Patch, patched, take_off_all
from ..live_torch.pytrees import Ref, leaves, map_tree, refs
from ..live_torch.torch_types import Abstain, Module, Tensor, is_tensor, tensor_bytes, trains_weights
from .collective_watch import BACKWARD, MODULE, WRAPPER, CollectiveWatch

_MAX_NODES = 20_000
_SHARE = 4  # of the memory that is available, a recording may hold this part
_MOST_DEEP = 16  # modules within modules; each call that is seen takes two frames of the stack
_QUIET_BYTES = 1 << 26  # held for evaluation: a step with more is no step of training
_MUTATING = ("__setitem__",)
_MARKED_DEPTH = 2  # the DDP wrapper, and the module that it wraps
_ROOT = Path("/")
# Layers whose forward asks whether a function mode is on, and takes no fast path under one.
_FAST = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder")


@dataclass(slots=True, kw_only=True)
class Node:
    """One recorded call. Tensors in `args` and `kwargs` are `Ref`s to values."""

    kind: str  # "module", "function" or "backward"
    target: object
    args: object
    kwargs: dict[str, object]
    grad: bool
    cast: autocast_state.State
    inference: bool = False
    outputs: list[int] = field(default_factory=list)
    training: list[tuple[Module, bool]] = field(default_factory=list)
    trainable: int = 0  # parameters of the module that asked for a gradient

    @property
    def inputs(self) -> list[int]:
        """Numbers of the values that it takes, each once."""
        return list(dict.fromkeys(refs((self.args, self.kwargs))))

    def filled(self, tensors: Mapping[int, Tensor]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Its arguments, with tensors in the places of the references."""

        def leaf(part: object) -> object:
            return tensors[part.index] if isinstance(part, Ref) else part

        args = cast("tuple[object, ...]", map_tree(self.args, leaf))
        return args, cast("dict[str, object]", map_tree(self.kwargs, leaf))


@dataclass(slots=True)
class Recording:
    """One step: its nodes in order, and the tensor behind each value number."""

    nodes: list[Node]
    tensors: list[Tensor]


class Recorder:
    """Sits in the training thread for one step.

    Args:
        trained: Ids of the parameters that optimizers update.
    """

    def __init__(self, torch: ModuleType, trained: frozenset[int] = frozenset()) -> None:
        self.torch = torch
        self.another_may_do = False  # what ended the recording lies in some steps only
        self._trained = trained
        self._held = 0  # bytes of the tensors noted
        self._most: int | None = None
        self._quiet = 0  # of them in evaluations
        self._thread = threading.get_ident()
        self._nodes: list[Node] = []
        self._tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        self._depth = 0
        self._in_backward = False
        self._inside = 0  # torch functions under way that the mode has passed on: it is off the stack
        self._rooted: set[int] = set()
        self._failed: str | None = None  # why nothing is noted any more
        self._off = True
        self._mode: _FunctionTap | None = None
        self._below: list[object] = []
        self._patches: list[Patch] = []
        self._witnesses: list[Patch] = []  # of the job's own profiler, and of what it compiles
        self._watch: CollectiveWatch | None = None

    def start(self) -> None:
        """Put the taps on; the next boundary must call `stop`."""
        torch = self.torch
        self._watch = CollectiveWatch.if_distributed(torch)
        free = available_memory.available_bytes(torch, _ROOT)
        self._most = None if free is None else free // _SHARE
        self._below = function_modes(torch)
        self._off = False
        self._patches = patched(torch.nn.Module, "__call__", lambda call: _stand_in(self, call))
        for name in _FAST:
            layer = getattr(torch.nn, name, None)
            self._patches += patched(layer, "forward", lambda forward: _forward_of(self, forward))
        profiler, compiler = "a profiler of the job's own begins", "the job has code compiled or traced"
        self._witnesses = [  # after the watch, which has its own
            *before_enabling(lambda *_, **__: self._give_way(profiler)),
            *before_compiling(torch, lambda: self._give_way(compiler)),
        ]
        self._mode = _FunctionTap(self)
        multiprocessing_util.register_after_fork(self._mode, _forget_in_child)
        torch._C._push_on_torch_function_stack(self._mode)

    def stop(self) -> Recording:
        """Take the taps off and hand over what was seen.

        Raises:
            Abstain: the step can't be used.
        """
        take_off_all(self._witnesses)
        watch, self._watch = self._watch, None
        collective = watch.stop() if watch is not None else None
        clean = self._pop()
        overflow = len(self._nodes) > _MAX_NODES
        recording = Recording(self._nodes, self._tensors)
        self.abandon()
        if self._failed is not None:
            raise Abstain(self._failed)
        if not clean:
            raise Abstain("the loop changed torch's function modes within the recorded step")
        if overflow:
            raise Abstain(f"more than {_MAX_NODES} torch functions are called outside modules in a step")
        if collective is not None:
            raise Abstain(collective)
        return recording

    def abandon(self) -> None:
        """Take off what can be taken off from any thread, and let go of every tensor.

        The function mode lies on the training thread's stack: from another thread it is only made
        to do nothing, and the stand-in takes both off when that thread calls a module next.
        """
        self._off = True
        take_off_all(self._witnesses)
        self._nodes, self._tensors, self._numbers, self._rooted = [], [], {}, set()
        if threading.get_ident() != self._thread:
            return
        self._pop()
        if self._mode is None:
            take_off_all(self._patches)
            self._below = []

    def _give_way(self, what: str) -> None:
        """To what of the job's is to see the step as it is."""
        if threading.get_ident() == self._thread:
            self.another_may_do = True
            self._failed = self._failed or f"{what} within each recorded step"
            self.abandon()
            take_off_all(self._patches)  # also where the function mode has to wait

    def _pop(self) -> bool:
        """Take the modes off this thread's stacks; whether they were where they had to be."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        mode = self._mode
        if mode is None:
            return True
        if self._inside:  # torch puts the mode back when the function returns: it is taken off later
            return False
        self._mode = None
        mode.recorder = None
        if self._depth:  # it is off, within a root call that does not put it back now
            return False
        stack = function_modes(self.torch)
        at = take_function_mode(self.torch, mode)
        if at is None and stack and len(stack) == len(self._below):
            # The user's own mode ended inside the step and took ours off in its place.
            self.torch._C._pop_torch_function_stack()
        return at == len(stack) - 1 == len(self._below)

    def muted(self) -> bool:
        """Whether a torch function seen now is no part of the loop's own tape."""
        return self._off or self._in_backward or threading.get_ident() != self._thread

    def on_function(
        self, target: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Call a torch function for the loop, and note it if tensors come out."""
        torch = self.torch
        if target is torch.Tensor.backward or target is torch.autograd.backward:
            return self._on_backward(target, args, kwargs)
        if target is torch.autograd.grad and trains_weights(torch, args, kwargs):
            return self._on_backward(target, args, kwargs, noted=_as_backward(*args, **kwargs))
        rooted = self._is_rooted(args, kwargs)
        if len(self._nodes) > _MAX_NODES or not (rooted or torch.is_grad_enabled()):
            return target(
                *args, **kwargs
            )  # an optimizer's or a moving average's work: none of its tensors is held
        node = self._node("function", target, args, kwargs)
        result = self._pass_on(target, args, kwargs)
        mutated = getattr(target, "__name__", "") in _MUTATING and args and is_tensor(args[0], torch)
        self._keep(node, args[0] if mutated else result, rooted)
        if self._most is not None and self._held > self._most:
            self._let_go_of_too_much()
        return result

    def on_kinds(self, kinds: Iterable[type], target: object = None) -> None:
        """What a function takes, and the function: no code of the job's own would run again."""
        if self._failed is None:
            self._failed = own_code(self.torch, kinds, target)

    def _is_rooted(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """Whether a root call's result is among the arguments."""
        try:
            parts = leaves((args, kwargs))
        except Exception as error:  # noqa: BLE001  a container of the job's own that does not like to be read
            self._fail(error)
            return False
        return any(
            self._numbers.get(id(part)) in self._rooted for part in parts if is_tensor(part, self.torch)
        )

    def _pass_on(
        self, target: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        self._inside += 1
        try:
            return target(*args, **kwargs)
        finally:
            self._inside -= 1

    def on_module(
        self, call: Callable[..., object], module: Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Call a module for the loop, and note it if it is a root call."""
        if threading.get_ident() != self._thread:
            return call(module, *args, **kwargs)
        if self._off:
            self.abandon()
            return call(module, *args, **kwargs)
        node = None
        held = self._held
        if self._depth == 0 and not self._in_backward:
            node = self._node("module", module, args, kwargs)
            if node is not None:
                node.training = [(part, part.training) for part in module.modules()]
                with unseen():
                    node.trainable = sum(parameter.requires_grad for parameter in module.parameters())
        at = self._mode_aside()
        self._depth += 1
        wraps = self._depth == 1 and type(module).__name__ == "DistributedDataParallel"
        if self._depth > _MOST_DEEP:
            self._leave_deep_calls()
        try:
            with self._marked(WRAPPER if wraps else MODULE):
                result = call(module, *args, **kwargs)
        finally:
            self._depth -= 1
            self._mode_back(at)
        self._keep(node, result, True, always=True)
        if node is not None and self._is_evaluation(node, module):
            self._quiet += self._held - held
        self._let_go_of_too_much()
        return result

    def _marked(self, part: str) -> AbstractContextManager[None]:
        """On ranks, in the log of operators; of calls only root calls, and those right within."""
        watch = self._watch if self._depth <= _MARKED_DEPTH else None
        return watch.marked(part) if watch is not None else nullcontext()

    def on_forward(
        self, forward: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """A layer's forward; one that is called as a function, no root call, can't be replayed."""
        own = threading.get_ident() == self._thread and not self._off
        at = self._mode_aside() if own else None
        if at is None:
            return forward(*args, **kwargs)
        self._failed = self._failed or "the loop calls the forward of an attention layer, not the layer"
        self._depth += 1
        try:
            return forward(*args, **kwargs)
        finally:
            self._depth -= 1
            self._mode_back(at)

    def _mode_aside(self) -> int | None:
        """The function mode off the stack; where it has to be put back after a root call."""
        if self._depth or self._inside or self._mode is None:
            return None
        return take_function_mode(self.torch, self._mode)

    def _mode_back(self, at: int | None) -> None:
        if at is not None and self._mode is not None:
            put_function_mode(self.torch, self._mode, at)

    def _leave_deep_calls(self) -> None:
        """A net that calls itself may have no frames to spare: it is not looked at any further."""
        self._failed = self._failed or f"modules call each other more than {_MOST_DEEP} deep"
        self.abandon()
        take_off_all(self._patches)  # also where the function mode has to wait

    def _is_evaluation(self, node: Node, module: Module) -> bool:
        """Whether what is trained is called as in an evaluation; a frozen teacher belongs to the step."""
        if node.grad or module.training:
            return False
        return any(id(parameter) in self._trained for parameter in module.parameters())

    def _let_go_of_too_much(self) -> None:
        """Note nothing any more, and hold no tensor, where the step holds more than one may."""
        if self._failed is not None:
            return
        if len(self._nodes) > _MAX_NODES:
            self._failed = f"more than {_MAX_NODES} calls are made in a step"
        elif self._quiet > _QUIET_BYTES:
            self.another_may_do = True
            self._failed = "an evaluation lies within each recorded step"
        elif self._most is not None and self._held > self._most:
            self._failed = f"what a step hands around takes more than {self._most >> 20} MiB of memory"
        if self._failed is not None:
            self._nodes, self._tensors, self._numbers, self._rooted = [], [], {}, set()

    def _on_backward(
        self,
        target: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        *,
        noted: dict[str, object] | None = None,
    ) -> object:
        """Call it for the loop; what is noted are its own arguments, or `noted` by name."""
        node = self._node("backward", target, *((args, kwargs) if noted is None else ((), noted)))
        if node is not None:
            self._nodes.append(node)
        self._in_backward = True
        try:
            with self._marked(BACKWARD):
                return self._pass_on(target, args, kwargs)
        finally:
            self._in_backward = False

    def _keep(self, node: Node | None, result: object, rooted: bool, *, always: bool = False) -> None:
        """Note a call with the tensors in its result; one that gives none only if `always`."""
        if node is None or self._failed is not None:
            return
        try:
            made = [part for part in leaves(result) if is_tensor(part, self.torch)]
        except Exception as error:  # noqa: BLE001  see `_is_rooted`
            self._fail(error)
            return
        if not made and not always:
            return
        node.outputs = [self._new_value(tensor) for tensor in made]
        self._nodes.append(node)
        if rooted:
            self._rooted.update(node.outputs)

    def _fail(self, error: Exception) -> None:
        self._failed = self._failed or (
            f"what the step hands around can't be recorded ({type(error).__name__}: {error})"
        )
        let_through(error)

    def _node(
        self, kind: str, target: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Node | None:
        """A call that begins; None once the recording has failed."""
        torch = self.torch
        if self._failed is not None:
            return None
        try:
            return Node(
                kind=kind,
                target=target,
                args=map_tree(args, self._ref),
                kwargs=cast("dict[str, object]", map_tree(kwargs, self._ref)),
                grad=torch.is_grad_enabled(),
                cast=autocast_state.state(torch),
                inference=torch.is_inference_mode_enabled(),
            )
        except Exception as error:  # noqa: BLE001  see `_is_rooted`
            self._fail(error)
            return None

    def _ref(self, leaf: object) -> object:
        if not is_tensor(leaf, self.torch):
            return leaf
        number = self._numbers.get(id(leaf))
        return Ref(self._new_value(leaf) if number is None else number)

    def _new_value(self, tensor: Tensor) -> int:
        self.on_kinds((type(tensor),))
        number = len(self._tensors)
        self._tensors.append(tensor)  # held, so that its id stays its own
        self._numbers[id(tensor)] = number
        try:
            with unseen():
                self._held += tensor_bytes(tensor)
        except Exception as error:  # noqa: BLE001  a kind of tensor that has no plain size
            self._fail(error)
        return number


def _as_backward(
    outputs: object,
    inputs: object,
    grad_outputs: object = None,
    retain_graph: object = None,
    *_: object,
    **__: object,
) -> dict[str, object]:
    """The arguments of `torch.autograd.grad` as `torch.autograd.backward` calls them."""
    return {
        "tensors": outputs,
        "inputs": inputs,
        "gradient": grad_outputs,
        "retain_graph": retain_graph,
    }


class _FunctionTap:
    """The function mode: hands calls to the recorder while there is one."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder: Recorder | None = recorder

    def __torch_function__(
        self,
        target: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        recorder = self.recorder
        if recorder is not None:
            recorder.on_kinds(types, target)
        if recorder is None or recorder.muted():
            return target(*args, **(kwargs or {}))
        return recorder.on_function(target, args, kwargs or {})


def _stand_in(recorder: Recorder, call: Callable[..., object]) -> Callable[..., object]:
    def _wrapped_call_impl(self: Module, *args: object, **kwargs: object) -> object:
        return recorder.on_module(call, self, args, kwargs)

    return _wrapped_call_impl


def _forward_of(recorder: Recorder, forward: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(forward)
    def call(*args: object, **kwargs: object) -> object:
        return recorder.on_forward(forward, args, kwargs)

    return call


def _forget_in_child(mode: _FunctionTap) -> None:
    """In a forked DataLoader worker: the taps are the parent's, take them off."""
    if mode.recorder is not None:
        mode.recorder.abandon()
