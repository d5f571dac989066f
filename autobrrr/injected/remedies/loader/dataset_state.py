"""What a dataset keeps, as it is at one moment: attributes, containers, classes, closures, globals, caches.

In: what `held_by` looked into. Out: whether it is otherwise by now. Values count by identity.
The contents of tensors and arrays are looked at (`dataset_contents.py`), not kept; those of files neither.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import struct
from collections import deque
from collections.abc import Mapping, MutableMapping
from types import CellType, FunctionType, MemberDescriptorType

from ...job_code.held_objects import attributes_of, content_of, in_slot, slots_of
from ...job_state.module_state import dict_changes, raw_dict, raw_list
from ...job_state.unseen_state import frame_parts
from .dataset_contents import ContentMarks
from .dataset_walk import held_by
from .surroundings import surroundings

_ABSENT = object()
_POINTER = struct.Struct("P")
_SAME_BYTES = ctypes.PyDLL(None).memcmp  # with the interpreter's lock: no other thread writes meanwhile
_SAME_BYTES.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class DatasetState:
    """Of everything that some things hold.

    Raises:
        Refused: they hold more than can be looked through.
    """

    def __init__(self, *things: object) -> None:
        self._dicts: list[tuple[MutableMapping[object, object], dict[object, object]]] = []
        self._lists: list[tuple[list[object] | deque[object], list[object]]] = []
        self._sets: list[tuple[set[object], set[object]]] = []
        self._cells: list[tuple[CellType, object]] = []
        self._functions: list[tuple[FunctionType, list[object]]] = []
        self._classes: list[tuple[type, dict[str, object]]] = []
        self._frames: list[tuple[object, list[object]]] = []
        self._slots: list[tuple[object, MemberDescriptorType, object]] = []
        self._around = surroundings()
        self._things = things
        self.held = held_by(things)
        for part in self.held.parts:
            self._keep(part)
        self._read = [_Reading(*place) for place in self.held.reads]
        self._marks = ContentMarks(self.held.contents)
        self.is_whole = self._marks.are_whole and not self.held.unseen  # whether each change would be seen

    @property
    def is_as_it_was(self) -> bool:
        """Whether nothing of it was set, added, taken away or written to."""
        return self.is_set_as_it_was and self._marks.are_as_they_were

    @property
    def is_set_as_it_was(self) -> bool:
        """The same without the contents of tensors and arrays."""
        return not (
            self._around != surroundings()
            or any(map(_differs, self._dicts))
            or any(in_slot(holder, slot) is not kept for holder, slot, kept in self._slots)
            or any(not _alike(now, kept) for now, kept in self._lists)
            or any(not _alike(frame_parts(frame) or [], kept) for frame, kept in self._frames)
            or any(now != kept for now, kept in self._sets)
            or any(content_of(cell) is not kept for cell, kept in self._cells)
            or any(not _alike(_code_of(function), kept) for function, kept in self._functions)
            or any(dict_changes(*map(_by_key, (vars(kind), saved))) for kind, saved in self._classes)
            or not all(reading.is_as_it_was for reading in self._read)
        )

    def anew(self) -> DatasetState:
        """As they are now."""
        return DatasetState(*self._things)

    def _keep(self, part: object) -> None:
        if isinstance(part, type):
            self._classes.append((part, dict(vars(part))))
            return
        if isinstance(part, dict):
            self._dicts.append((part, raw_dict(part)))
        elif isinstance(part, (list, deque)):
            self._lists.append((part, raw_list(part)))
        elif isinstance(part, set):
            self._sets.append((part, set(part)))
        elif isinstance(part, FunctionType):
            self._cells += [(cell, content_of(cell)) for cell in part.__closure__ or ()]
            self._functions.append((part, _code_of(part)))
        self._slots += [(part, slot, kept) for slot, kept in slots_of(part)]
        frame = frame_parts(part)
        if frame is not None:
            self._frames.append((part, frame))
            return
        attributes = attributes_of(part)
        if attributes is not None:
            self._dicts.append((attributes, dict(attributes)))


class _Reading:
    """Values under some names of a namespace, and that there are none under others."""

    def __init__(self, space: dict[str, object], names: set[str]) -> None:
        self._space = space
        self._present = tuple(space.keys() & names)
        self._absent = names - space.keys()
        self._kept = self._values()

    @property
    def is_as_it_was(self) -> bool:
        return self._space.keys().isdisjoint(self._absent) and all(
            map(operator.is_, self._values(), self._kept)
        )

    def _values(self) -> list[object]:
        return list(map(self._space.get, self._present, itertools.repeat(_ABSENT)))


def _code_of(function: FunctionType) -> list[object]:
    return [function.__code__, function.__defaults__, function.__kwdefaults__]


def _by_key(attributes: Mapping[str, object]) -> dict[object, object]:
    """Without what pickling notes on a class."""
    return {name: value for name, value in attributes.items() if name != "__slotnames__"}


def _differs(entry: tuple[MutableMapping[object, object], dict[object, object]]) -> bool:
    return bool(dict_changes(*entry))


def _alike(now: list[object] | deque[object], kept: list[object]) -> bool:
    """Whether they hold the same objects; of a list, its pointers are compared: some are long."""
    if len(now) != len(kept):
        return False
    if not isinstance(now, list):
        return all(map(operator.is_, raw_list(now), kept))
    return not kept or not _SAME_BYTES(_pointers(now), _pointers(kept), len(kept) * _POINTER.size)


def _pointers(items: list[object]) -> int:
    """Where CPython keeps those of a list: after its counts and its type."""
    return int(_POINTER.unpack(ctypes.string_at(id(items) + 3 * _POINTER.size, _POINTER.size))[0])
