"""How training sends gradients back through the calls of one module, seen where they enter each call.

In: what a call returned. Out: whether enough was seen to rehearse it, which results the loss used, and
a reason why code that knows a single backward, of the first order, does not fit. Compiled code has one
backward for all of its results: a second one, one through some of them, or one that is differentiated
again is another thing for it than for eager code.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Protocol, cast

from ...live_torch.parameter_places import places_of
from ...live_torch.pytrees import leaves, map_tree
from ...live_torch.torch_types import Module, Tensor
from .call_layers import Call

CHANGING = "the loss does not always use the same of its results"
WRITTEN = "what a call reads is written to before its backward, where compiled code may read it again"
ENOUGH = 2  # calls whose backward was seen, before one is rehearsed
_MOST_OPEN = 64  # calls whose backward has not come yet


Counted = tuple[Callable[[], Tensor | None], int]  # finds a tensor; how often it was written to


class _Node(Protocol):
    def register_prehook(self, hook: Callable[[Sequence[object]], None]) -> object: ...


@dataclass(slots=True)
class Seen:
    """One call: the backward passes that reached it, and through which of its results.

    Attributes:
        read: What it could read, and has not written to.
    """

    kind: object
    read: list[Counted]
    passes: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)


class Backwards:
    """Watches the calls of one module."""

    def __init__(self, torch: ModuleType) -> None:
        self.trouble: str | None = None
        self._tensor: type = torch.Tensor
        self._grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        self._pass: Callable[[], int] = torch._C._current_graph_task_id
        self._counts_none: Callable[[Tensor], bool] = torch.is_inference
        self._seen: dict[object, list[Seen]] = {}
        self._used: dict[object, set[int]] = {}  # by kind of arguments, as it was rehearsed
        self._open: list[Seen] = []

    def read_by(self, module: Module, given: object) -> list[Counted]:
        """What a call that is about to be made can read; none of it is kept."""
        found = [(place.parameter, each) for place, each in places_of([module])]
        others = [*module.buffers(), *(each for each in leaves(given) if isinstance(each, self._tensor))]
        found += [(weakref.ref(each), each) for each in cast("list[Tensor]", others)]
        return [(find, each._version) for find, each in found if not self._counts_none(each)]

    def watch(self, kind: object, result: object, read: Sequence[Counted] = ()) -> None:
        """Look at what comes back into this call.

        Args:
            read: What it could read, as it was before.
        """
        ends = self._ends(result)
        call = Seen(kind, _unwritten(read))
        nodes: dict[_Node, list[tuple[int, int]]] = {}
        for number, end in enumerate(ends):
            if end.grad_fn is not None:
                nodes.setdefault(cast(_Node, end.grad_fn), []).append((end.output_nr, number))
        for node, places in nodes.items():
            node.register_prehook(self._hook(call, places))
        if kind in self._used and len(ends) > 1:
            self._review()
            self._open.append(call)

    def enough(self, kind: object) -> bool:
        """Whether the like of it was seen often enough to be rehearsed."""
        return len(self._seen.get(kind, ())) >= ENOUGH

    def part_used(self, kind: object) -> Callable[[Call], Call]:
        """A layer that detaches those results that the loss does not use; later calls are held to it."""
        used = {frozenset(call.used) for call in self._seen.pop(kind, ())}
        if len(used) != 1:
            self._tell(CHANGING)
        kept = self._used[kind] = set(next(iter(used), ()))

        def layer(below: Call) -> Call:
            def call(*args: object, **kwargs: object) -> object:
                result = below(*args, **kwargs)
                out = {id(end) for number, end in enumerate(self._ends(result)) if number not in kept}
                return map_tree(result, lambda leaf: cast(Tensor, leaf).detach() if id(leaf) in out else leaf)

            return call

        return layer

    def _ends(self, result: object) -> list[Tensor]:
        found = [cast(Tensor, each) for each in leaves(result) if isinstance(each, self._tensor)]
        return [each for each in found if each.requires_grad]

    def _hook(self, call: Seen, places: list[tuple[int, int]]) -> Callable[[Sequence[object]], None]:
        def hook(gradients: Sequence[object]) -> None:
            reached = [number for place, number in places if gradients[place] is not None]
            if reached:
                call.used.update(reached)
                self._reached(call)

        return hook

    def _reached(self, call: Seen) -> None:
        now = self._pass()
        if self._grad_enabled():
            self._tell("gradients are differentiated again (create_graph), which compiled code can't")
        if now in call.passes:
            return
        call.passes.add(now)
        if len(_unwritten(call.read)) < len(call.read):
            self._tell(WRITTEN)
        call.read = []
        if len(call.passes) > 1:
            self._tell("more than one backward goes through a call of it")
        elif call.kind not in self._used:
            if len(self._seen) > _MOST_OPEN:
                self._seen.clear()  # every batch has its own shape
            self._seen.setdefault(call.kind, []).append(call)

    def _tell(self, why: str) -> None:
        self.trouble = self.trouble or why

    def _review(self) -> None:
        """Hold the calls that backward is through with against what was rehearsed."""
        if self._pass() != -1:
            return  # in the middle of one
        for call in self._open:
            if call.passes and call.used != self._used[call.kind]:
                self._tell(CHANGING)
        self._open = [call for call in self._open if not call.passes][-_MOST_OPEN:]


def _unwritten(read: Sequence[Counted]) -> list[Counted]:
    """Those of them that nobody has written to since."""
    found = [(find(), find, count) for find, count in read]
    return [(find, count) for each, find, count in found if each is None or each._version == count]
