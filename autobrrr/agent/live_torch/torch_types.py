"""The parts of torch's types that are touched, as protocols: one for each, whatever is used of it.

torch is the target's own and reached through a module object, so its classes can't be named in
signatures; these stand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Protocol


class Abstain(Exception):
    """What was asked for can't be done on this job without risk or doubt; the message is one clause."""

    known: Mapping[str, object] = MappingProxyType({})  # fields of the answer that are known all the same


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
    requires_grad: bool
    grad: Tensor | None
    is_sparse: bool
    _backward_hooks: MutableMapping[int, object] | None

    def detach(self) -> Tensor: ...
    def clone(self) -> Tensor: ...
    def copy_(self, source: Tensor, non_blocking: bool = False) -> Tensor: ...
    def numel(self) -> int: ...
    def element_size(self) -> int: ...
    def is_shared(self) -> bool: ...
    def stride(self) -> tuple[int, ...]: ...
    def reshape(self, shape: tuple[int, ...]) -> Tensor: ...
    def zero_(self) -> Tensor: ...
    def to(self, *, device: object, dtype: object) -> Tensor: ...
    def is_floating_point(self) -> bool: ...
    def contiguous(self, *, memory_format: object) -> Tensor: ...
    def is_contiguous(self, *, memory_format: object = ...) -> bool: ...
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
    def _call_impl(self, *args: object, **kwargs: object) -> object: ...
