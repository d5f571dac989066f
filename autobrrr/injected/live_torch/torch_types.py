"""The parts of torch's types that are touched, as protocols: one for each, whatever is used of it.

torch is the target's own and reached through a module object, so its classes can't be named in
signatures; these stand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from types import ModuleType
from typing import Protocol, TypeGuard


class Abstain(Exception):
    """What was asked for can't be done on this job without risk or doubt; the message is one clause."""


class Device(Protocol):
    """What is used of torch.device."""

    @property
    def type(self) -> str: ...


class Tensor(Protocol):
    """What is used of torch.Tensor."""

    data: Tensor
    shape: Sequence[int]
    dtype: object
    device: Device
    layout: object
    requires_grad: bool
    grad: Tensor | None
    grad_fn: object
    output_nr: int
    is_leaf: bool
    is_sparse: bool
    _version: int
    _cdata: int
    _backward_hooks: MutableMapping[int, object] | None

    def detach(self) -> Tensor: ...
    def clone(self) -> Tensor: ...
    def narrow(self, dim: int, start: int, length: int) -> Tensor: ...
    def copy_(self, source: Tensor, non_blocking: bool = False) -> Tensor: ...
    def fill_(self, value: float) -> Tensor: ...
    def requires_grad_(self, flag: bool = True) -> Tensor: ...
    def numel(self) -> int: ...
    def element_size(self) -> int: ...
    def dim(self) -> int: ...
    def data_ptr(self) -> int: ...
    def is_shared(self) -> bool: ...
    def stride(self) -> tuple[int, ...]: ...
    def as_strided(self, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Tensor: ...
    def reshape(self, shape: tuple[int, ...]) -> Tensor: ...
    def zero_(self) -> Tensor: ...
    def to(self, *, device: object, dtype: object) -> Tensor: ...
    def is_floating_point(self) -> bool: ...
    def is_complex(self) -> bool: ...
    def contiguous(self, *, memory_format: object) -> Tensor: ...
    def is_contiguous(self, *, memory_format: object = ...) -> bool: ...
    def storage_offset(self) -> int: ...
    def untyped_storage(self) -> Tensor: ...
    def nbytes(self) -> int: ...
    def resize_(self, size: int) -> Tensor: ...
    def register_hook(self, hook: Callable[[Tensor], Tensor]) -> RemovableHandle: ...


class RemovableHandle(Protocol):
    """Of a hook that was registered."""

    def remove(self) -> None: ...


class Module(Protocol):
    """What is used of torch.nn.Module."""

    training: bool

    def modules(self) -> Iterator[Module]: ...
    def children(self) -> Iterator[Module]: ...
    def parameters(self) -> Iterator[Tensor]: ...
    def buffers(self) -> Iterator[Tensor]: ...
    def __call__(self, *args: object, **kwargs: object) -> object: ...
    def _call_impl(self, *args: object, **kwargs: object) -> object: ...


def is_tensor(thing: object, torch: ModuleType) -> TypeGuard[Tensor]:
    """Whether a thing is a torch tensor."""
    return isinstance(thing, torch.Tensor)


def is_module(thing: object, torch: ModuleType) -> TypeGuard[Module]:
    """Whether a thing is a torch module."""
    return isinstance(thing, torch.nn.Module)


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def trains_weights(torch: ModuleType, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call of `torch.autograd.grad` is a backward: it gives gradients of weights, for an update.

    One with `create_graph` is not: what it gives is differentiated again. An iterator counts as weights
    (`model.parameters()`), since to look into it takes from it.
    """
    inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
    differentiated_again = args[4] if len(args) > 4 else kwargs.get("create_graph")
    batched = args[7] if len(args) > 7 else kwargs.get("is_grads_batched")
    if differentiated_again or batched:
        return False
    if isinstance(inputs, Iterator):
        return True
    held = inputs.values() if isinstance(inputs, dict) else inputs
    if not isinstance(held, (list, tuple, type({}.values()))):
        held = (held,)
    return any(isinstance(each, torch.nn.Parameter) for each in held)
