"""Nested arguments and results: tuples, lists, dicts, dataclasses, slices, with tensors as leaves.

`map_tree` rebuilds a nest with its leaves replaced; `leaves` lists them in a stable order.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable
from typing import cast


def map_tree(tree: object, leaf: Callable[[object], object]) -> object:
    """The same nest with every leaf replaced by `leaf(it)`."""
    kind: Callable[..., object] = type(tree)
    if kind is tuple:
        return tuple(map_tree(part, leaf) for part in cast("tuple[object, ...]", tree))
    if kind is list:
        return [map_tree(part, leaf) for part in cast("list[object]", tree)]
    if kind is dict:
        return {key: map_tree(part, leaf) for key, part in cast("dict[object, object]", tree).items()}
    if kind is slice:
        cut = cast(slice, tree)
        return slice(map_tree(cut.start, leaf), map_tree(cut.stop, leaf), map_tree(cut.step, leaf))
    if isinstance(tree, tuple):
        if type(tree).__name__ == "Size":
            return tree
        if type(tree).__name__ == "PackedSequence":  # its constructor wants tensors
            return leaf(tree)
        parts = [map_tree(part, leaf) for part in tree]
        return kind(*parts) if hasattr(tree, "_fields") else kind(parts)
    if isinstance(tree, dict | UserDict):
        twin = copy.copy(tree)
        for key, part in list(tree.items()):
            twin[key] = map_tree(part, leaf)
        return twin
    if isinstance(tree, list):
        return kind(map_tree(part, leaf) for part in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        other = copy.copy(tree)
        for entry in dataclasses.fields(tree):
            object.__setattr__(other, entry.name, map_tree(getattr(tree, entry.name), leaf))
        return other
    return leaf(tree)


def leaves(tree: object) -> list[object]:
    """All leaves, in the order in which `map_tree` meets them."""
    found: list[object] = []
    _collect(tree, found)
    return found


def _collect(tree: object, found: list[object]) -> None:
    if isinstance(tree, tuple | list):
        if type(tree).__name__ != "Size":
            for part in tree:
                _collect(part, found)
    elif isinstance(tree, dict | UserDict):
        for part in tree.values():
            _collect(part, found)
    elif isinstance(tree, slice):
        found.extend((tree.start, tree.stop, tree.step))
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for entry in dataclasses.fields(tree):
            _collect(getattr(tree, entry.name), found)
    else:
        found.append(tree)
