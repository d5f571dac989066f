"""A batch on its way from a worker to the job: it arrives as if it had been made there, or is not sent.

In: a batch; what the dataset holds. Out: its structure pickled, and the contents of its tensors and arrays in
memory that both processes have. What shares its memory with something else, has attributes of its own, or is
the dataset's own, would not arrive as it is.
"""

from __future__ import annotations

import bisect
import io
import pickle
import sys
from typing import Any, Protocol, cast

from ...live_torch.torch_types import Tensor
from .dataset_contents import raw_bytes

_ATOMS = frozenset((int, float, complex, bool, str, bytes, type(None)))
_ALIGNED = 64  # bytes


class HeldThings(Protocol):
    """What is the dataset's own, and others could write to."""

    def __contains__(self, value: object) -> bool: ...
    def has_place(self, begin: int, size: int) -> bool:
        """Whether some of this memory is its."""


class Unsendable(Exception):
    """It would not arrive as it is."""


class _Sender(pickle.Pickler):
    """Writes contents into a region, and the rest into a file."""

    def __init__(self, file: io.BytesIO, region: memoryview, held: HeldThings) -> None:
        super().__init__(file, protocol=5)
        self._region = region
        self._held = held
        self._used = 0
        self._known: dict[
            int, tuple[object, object]
        ] = {}  # what was sent, with its place: an id is no other's
        self._memory: list[tuple[int, int]] = []  # where what was sent lies, in order

    def persistent_id(self, value: object) -> object:
        kind = type(value)
        if kind in _ATOMS:
            return None
        if value in self._held:
            raise Unsendable(f"a {kind.__name__} is the dataset's own")
        is_tensor = hasattr(kind, "element_size")
        if not is_tensor and not _is_array(value):
            return None
        if id(value) not in self._known:
            place = self._tensor(cast("Tensor", value)) if is_tensor else self._array(value)
            self._known[id(value)] = value, place
        return self._known[id(value)][1]

    def _tensor(self, tensor: Any) -> object:
        torch = sys.modules["torch"]
        plain = (
            type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
        )
        if (
            not plain
            or tensor.requires_grad
            or tensor.is_inference()
            or vars(tensor)
            or tensor.is_conj()
            or tensor.is_neg()
        ):
            raise Unsendable("a tensor of another kind")
        if not _is_dense(tensor.shape, tensor.stride()):
            raise Unsendable("a tensor that is part of another")
        storage = tensor.untyped_storage()
        self._is_new(storage.data_ptr(), storage.nbytes() if tensor.numel() else 0)
        flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8) if tensor.numel() else None
        begin = self._place(0 if flat is None else flat.numel())
        if flat is not None:
            torch.frombuffer(self._region, dtype=torch.uint8, count=flat.numel(), offset=begin).copy_(flat)
        return "tensor", len(self._known), begin, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())

    def _array(self, array: Any) -> object:
        flags, root = array.flags, array
        while _is_array(root.base):
            root = root.base
        fits = flags.writeable and (flags.c_contiguous or flags.f_contiguous) and root.base is None
        if not fits or array.dtype.hasobject or type(array) is not _ndarray():
            raise Unsendable("an array of another kind")
        self._is_new(root.__array_interface__["data"][0], root.nbytes if array.size else 0)
        order = "C" if flags.c_contiguous else "F"
        begin = self._place(array.nbytes)
        if array.nbytes:
            self._region[begin : begin + array.nbytes] = memoryview(array.reshape(-1, order=order)).cast("B")
        return "array", len(self._known), begin, array.dtype, array.shape, order

    def _is_new(self, begin: int, size: int) -> None:
        if not size:
            return
        at = bisect.bisect(self._memory, (begin,))
        before, after = self._memory[max(0, at - 1) : at], self._memory[at : at + 1]
        overlaps = any(end > begin for _, end in before) or any(start < begin + size for start, _ in after)
        if overlaps or self._held.has_place(begin, size):
            raise Unsendable("memory that something else holds")
        self._memory.insert(at, (begin, begin + size))

    def _place(self, size: int) -> int:
        begin = self._used
        self._used = -(-(begin + size) // _ALIGNED) * _ALIGNED
        if begin + size > len(self._region):
            raise Unsendable("more than there is room for")
        return begin


class _Receiver(pickle.Unpickler):
    """Gives each tensor and array memory of its own."""

    def __init__(self, file: io.BytesIO, region: memoryview) -> None:
        super().__init__(file)
        self._region = region
        self._known: dict[int, object] = {}

    def persistent_load(self, place: Any) -> object:
        kind, number, *rest = place
        if number not in self._known:
            self._known[number] = (self._tensor if kind == "tensor" else self._array)(*rest)
        return self._known[number]

    def _tensor(self, begin: int, dtype: object, shape: tuple[int, ...], stride: tuple[int, ...]) -> object:
        torch = sys.modules["torch"]
        made = torch.empty_strided(shape, stride, dtype=dtype, device="cpu")  # whatever the job's default
        if made.numel():
            flat = made.as_strided((made.numel(),), (1,)).view(torch.uint8)
            flat.copy_(torch.frombuffer(self._region, dtype=torch.uint8, count=flat.numel(), offset=begin))
        return made

    def _array(self, begin: int, dtype: Any, shape: tuple[int, ...], order: str) -> object:
        made = _numpy().empty(shape, dtype, order)
        if made.nbytes:
            flat = memoryview(made.reshape(-1, order=order)).cast("B")
            flat[:] = self._region[begin : begin + made.nbytes]
        return made


def send(batch: object, region: memoryview, held: HeldThings) -> bytes:
    """The structure of a batch; its contents lie in the region from then on.

    Raises:
        Unsendable: it would not arrive as it is.
    """
    file = io.BytesIO()
    _Sender(file, region, held).dump(batch)
    return file.getvalue()


def receive(structure: bytes, region: memoryview) -> object:
    """The batch, in memory of this process's own."""
    return _Receiver(io.BytesIO(structure), region).load()


def _is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether the elements lie one after the other, in some order of the dimensions."""
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def _numpy() -> Any:
    return sys.modules["numpy"]


def _ndarray() -> object:
    return getattr(sys.modules.get("numpy"), "ndarray", None)


def _is_array(value: object) -> bool:
    kind = _ndarray()
    return isinstance(kind, type) and isinstance(value, kind)


def exactly(one: object, other: object) -> bool:
    """Whether two batches can't be told apart: bits, types, strides, attributes, order."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, type) or type(one) in _ATOMS:
        return one is other or one == other or (one != one and other != other)  # noqa: PLR0124  nan
    if hasattr(one, "element_size") or _is_array(one):
        return _content(one) == _content(other)
    if isinstance(one, dict):
        alike = exactly(list(one.items()), list(cast("dict[object, object]", other).items()))
    elif isinstance(one, (list, tuple)):
        others = cast("tuple[object, ...]", other)
        alike = len(one) == len(others) and all(map(exactly, one, others))
    elif hasattr(one, "__dict__"):
        alike = exactly(_slots(one), _slots(other))
    else:
        has_own = type(one).__eq__ is not object.__eq__
        return bool(one == other) if has_own else exactly(_slots(one), _slots(other))
    return alike and exactly(getattr(one, "__dict__", None), getattr(other, "__dict__", None))


def _slots(value: object) -> list[object]:
    """What stands in slots, beside the attributes."""
    names = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]
    return [getattr(value, name, None) for name in names if name not in ("__dict__", "__weakref__")]


def _content(value: Any) -> object:
    if not hasattr(value, "element_size"):
        return value.dtype, value.shape, value.strides, value.flags.writeable, value.tobytes()
    bits = bytes(raw_bytes(value.detach().cpu().contiguous()))
    return (
        value.dtype,
        value.device,
        value.shape,
        value.stride(),
        value.requires_grad,
        value.is_inference(),
        str(vars(value)),
        bits,
    )
