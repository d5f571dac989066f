"""The parts of torch's types that the probe touches, as protocols.

torch is the target's own and reached through a module object, so its classes can't be named in
signatures; these stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from types import ModuleType
from typing import Protocol, TypeGuard


class Abstain(Exception):
    """The probe can't be done on this job without risk or doubt; the message is one clause."""


class Tensor(Protocol):
    """What the probe uses of torch.Tensor."""

    shape: Sequence[int]
    dtype: object
    device: object
    layout: object
    requires_grad: bool
    grad: object
    grad_fn: object
    output_nr: int
    is_leaf: bool
    _version: int
    _backward_hooks: MutableMapping[int, object] | None

    def detach(self) -> Tensor: ...
    def clone(self) -> Tensor: ...
    def narrow(self, dim: int, start: int, length: int) -> Tensor: ...
    def copy_(self, source: Tensor) -> Tensor: ...
    def fill_(self, value: float) -> Tensor: ...
    def requires_grad_(self, flag: bool = True) -> Tensor: ...
    def numel(self) -> int: ...
    def element_size(self) -> int: ...
    def dim(self) -> int: ...
    def data_ptr(self) -> int: ...
    def is_shared(self) -> bool: ...
    def stride(self) -> Sequence[int]: ...


class Module(Protocol):
    """What the probe uses of torch.nn.Module."""

    training: bool

    def modules(self) -> Iterator[Module]: ...
    def parameters(self) -> Iterator[Tensor]: ...
    def buffers(self) -> Iterator[Tensor]: ...
    def __call__(self, *args: object, **kwargs: object) -> object: ...


def is_tensor(thing: object, torch: ModuleType) -> TypeGuard[Tensor]:
    """Whether a thing is a torch tensor."""
    return isinstance(thing, torch.Tensor)


def is_module(thing: object, torch: ModuleType) -> TypeGuard[Module]:
    """Whether a thing is a torch module."""
    return isinstance(thing, torch.nn.Module)


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()
