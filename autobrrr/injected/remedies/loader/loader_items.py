"""What reading an item of a dataset does: proven by reading a few of them twice.

Every random state is put back, and so is what the dataset counts or notes of it. An item that differs without
a generator having been used comes from a dataset that keeps state of its own: nothing about its loading may
change. Where the dataset or anything that it holds has a generator of its own, nothing is read: its items are
random. Nor is it where an iterator or a queue would move on.
"""

from __future__ import annotations

import random
import sys
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from ...job_state import rng_state
from ...live_torch.handler_errors import let_through
from ...live_torch.live_job import Job
from ..registry import Refused
from .dataset_state import DatasetState
from .dataset_walk import held_by

LONGEST_S = 0.2
_KNOWN: dict[int, tuple[weakref.ref[object], Items | str]] = {}  # or why it was refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What was found."""

    random: bool  # a random generator was used
    bytes_each: int
    on_cpu: bool
    length: int
    handles: tuple[str, ...] = ()  # that the dataset held once items were read: types of open files


def read_items(job: Job, dataset: object) -> Items:
    """Read some items twice; of each dataset once in the life of the process.

    Raises:
        Refused: it has no length, an item can't be read, or one differs from itself.
    """
    known = _KNOWN.get(id(dataset))
    found: Items | str
    if known is not None and known[0]() is dataset:
        return _known(known[1])
    try:
        found = _read(job, dataset)
    except Refused as refused:
        found = str(refused)
    try:
        _KNOWN[id(dataset)] = (weakref.ref(dataset), found)
    except TypeError:
        pass  # a list: read again where it is asked for again
    return _known(found)


def _known(found: Items | str) -> Items:
    if isinstance(found, str):
        raise Refused(found)
    return found


def _read(job: Job, dataset: object) -> Items:
    try:
        length = len(dataset)  # type: ignore[arg-type]
    except TypeError:
        raise Refused("the dataset has no length") from None
    if not length:
        raise Refused("the dataset is empty")
    held = held_by(dataset)
    if held.sources:
        raise Refused(f"the dataset holds a {held.sources[0]}, which moves on as items are read")
    if held.random:
        return Items(random=True, bytes_each=0, on_cpu=True, length=length)
    state = DatasetState(dataset)
    try:
        items = _read_some(job, dataset, length)
        return replace(items, handles=tuple(held_by(dataset).handles))
    finally:
        state.put_back()


def _read_some(job: Job, dataset: object, length: int) -> Items:
    used = False
    sizes = []
    on_cpu = True
    began = time.perf_counter()
    for index in dict.fromkeys((0, length // 2, length - 1)):
        before, restores = random_states(job), rng_state.capture(job.torch, [])
        try:
            first = _item(dataset, index)
            used = used or drew(before, random_states(job))
            _call_all(restores)
            second = _item(dataset, index)
        finally:
            _call_all(restores)
        if not same(first, second):
            # A generator that was set back would have given the same.
            raise Refused(f"item {index} differs from itself when it is read again")
        sizes.append(size_bytes(first))
        on_cpu = on_cpu and all(_device(tensor) == "cpu" for tensor in tensors(first))
        if time.perf_counter() - began > LONGEST_S:
            break
    return Items(random=used, bytes_each=max(sizes), on_cpu=on_cpu, length=length)


def _item(dataset: object, index: int) -> object:
    try:
        return dataset[index]  # type: ignore[index]
    except Exception as error:  # noqa: BLE001
        let_through(error)
        raise Refused(f"item {index} can't be read on its own: {type(error).__name__}: {error}") from None


def random_states(job: Job) -> tuple[object, object, object]:
    """torch's, Python's and numpy's."""
    numpy = sys.modules.get("numpy.random")
    states = None if numpy is None else numpy.get_state()
    return job.torch.get_rng_state(), random.getstate(), states


def drew(before: Sequence[object], now: Sequence[object]) -> bool:
    """Whether a generator moved on; one that was not there before can't be told to have."""
    return any(old is not None and not same(old, new) for old, new in zip(before, now, strict=True))


def _call_all(restores: list[rng_state.Restore]) -> None:
    for restore in restores:
        restore()


def same(one: object, other: object) -> bool:
    """Equal to the bit, through tuples, lists, dicts, tensors, arrays."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    found = _bits(one)
    if found is not None:
        return found == _bits(other)
    return bool(one == other) or repr(one) == repr(other) == "nan"


def _bits(value: object) -> object:
    numpy = getattr(value, "numpy", None)
    if numpy is not None:
        detached = value.detach().cpu().contiguous()  # type: ignore[attr-defined]
        raw = detached.reshape(-1).view(sys.modules["torch"].uint8) if detached.numel() else detached
        return str(detached.dtype), tuple(detached.shape), raw.numpy().tobytes()
    tobytes = getattr(value, "tobytes", None)
    if tobytes is not None and hasattr(value, "shape"):
        return str(getattr(value, "dtype", "")), tuple(value.shape), tobytes()
    return None


def tensors(value: object) -> Iterator[object]:
    """All tensors in an item."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in cast("Sequence[object]", value):
            yield from tensors(each)
    elif hasattr(value, "element_size"):
        yield value


def size_bytes(value: object) -> int:
    """What an item keeps in memory, roughly."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return 64 + sum(map(size_bytes, cast("Sequence[object]", value)))
    if hasattr(value, "element_size"):
        return int(value.element_size() * value.nelement()) + 128  # type: ignore[attr-defined]
    return int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)


def _device(tensor: object) -> str:
    return str(tensor.device.type)  # type: ignore[attr-defined]
