"""One tensor as it is at a moment: its bytes, its shape, how it lies in its memory, how large that is.

In: a tensor. Out: whether it was written to, and the tensor put back.
"""

from __future__ import annotations

from types import ModuleType

from ..live_torch.torch_types import Abstain, Tensor


class KeptTensor:
    """A tensor and a copy of what it held.

    Elements that share memory (an expanded tensor, a sliding window) are kept as the stretch they lie in.
    Of a tensor without data nothing is kept.

    Raises:
        Abstain: its memory can't be reached.
    """

    def __init__(self, torch: ModuleType, tensor: Tensor) -> None:
        self.tensor = tensor
        self._torch = torch
        self._version = tensor._version
        self._plain = tensor.detach()
        self._parts: list[tuple[Tensor, Tensor]] = []  # of its memory, each with a copy
        self._memory_bytes: int | None = None
        layout = str(tensor.layout)
        if tensor.device == torch.device("meta"):
            return
        if layout == "torch.strided":
            self._memory_bytes = tensor.untyped_storage().nbytes()
            memory = [_stretch(self._plain) if _overlaps(tensor) else self._plain]
        elif layout in _SPARSE:
            memory = [getattr(self._plain, name)() for name in _SPARSE[layout]]
        else:
            raise Abstain(f"a tensor that the modules hold has the layout {layout.removeprefix('torch.')}")
        self._parts = [(part, part.clone()) for part in memory]

    def was_written(self, *, by_value: bool) -> bool:
        """Whether it is another by now; its version counter tells of most writes, its bytes of all."""
        if self.tensor._version != self._version or not self._lies_as_it_did:
            return True
        return by_value and not all(_same(self._torch, part, copy) for part, copy in self._parts)

    def put_back(self) -> None:
        """As it was, in the memory in which it was."""
        if self._memory_bytes is not None:
            memory = self._plain.untyped_storage()
            if memory.nbytes() != self._memory_bytes:
                memory.resize_(self._memory_bytes)
        with self._torch.no_grad():
            for part, copy in self._parts:
                part.copy_(copy)
        if not self._lies_as_it_did:  # through .data, or by a new shape
            self.tensor.data = self._plain

    @property
    def _lies_as_it_did(self) -> bool:
        now, then = self.tensor, self._plain
        if now.shape != then.shape or now.dtype != then.dtype or now.layout != then.layout:
            return False
        if self._memory_bytes is None:
            return True
        return (
            now.stride() == then.stride()
            and now.data_ptr() == then.data_ptr()
            and now.untyped_storage().nbytes() == self._memory_bytes
        )


_SPARSE = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


def _overlaps(tensor: Tensor) -> bool:
    """Whether elements may lie on each other: such a tensor can't be written as a whole, by anyone."""
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= reach:
                return True
            reach += step * (size - 1)
    return False


def _stretch(tensor: Tensor) -> Tensor:
    """The memory from a tensor's first element to its last, as a row."""
    last = sum(step * (size - 1) for step, size in zip(tensor.stride(), tensor.shape, strict=True))
    return tensor.as_strided((last + 1 if tensor.numel() else 0,), (1,), tensor.storage_offset())


def _same(torch: ModuleType, tensor: Tensor, copy: Tensor) -> bool:
    """Equal; NaN, as the weights of a diverged job are, equals itself."""
    if tensor.shape != copy.shape or tensor.dtype != copy.dtype:
        return False
    if torch.equal(tensor, copy):
        return True
    alike = torch.eq(tensor, copy) | (torch.isnan(tensor) & torch.isnan(copy))
    return bool(alike.all())
