"""A module's calls watched and led from where torch looks before it calls: not from its dicts of hooks.

In: a module, what to call around its calls, what to call in place of its code. Out: one object in
`_compiled_call_impl` that does both, over whatever stands there. torch leaves that out when the module is
copied or pickled, and never scripts it; hooks would be copied, pickled and scripted with the module.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from sys import _getframe
from types import FunctionType
from typing import cast

from .torch_types import Module

SLOT = "_compiled_call_impl"
Call = Callable[..., object]
Layer = Callable[[Call], Call]
"""Given what is called beneath it, what is called in its place."""


class InSlot:
    """What we put into the slot, which is nobody's but the module's.

    A module made of another one's `__dict__` (a replica of DataParallel, a clone of learn2learn's) has it in
    its own slot, and is called as if it were not there. Only torch knows which module it calls: its frame
    tells, for 0.25 us a call.

    Attributes:
        watches: The outermost first.
        layers: By their rank, the outermost first.
        led: The layers, called in place of the module's own code; None: that is called.
        theirs: What the job has put there before.
    """

    __slots__ = ("_caller", "_module", "layers", "led", "theirs", "watches")

    def __init__(self, module: object, theirs: Call | None = None) -> None:
        self._module = cast("Callable[[], Module]", weakref.ref(module))
        self._caller = get_ident()  # of the module: only in this thread may its dict get shorter
        self.watches: tuple[Watch, ...] = ()
        self.layers: dict[int, Layer] = {}
        self.led: Call | None = None
        self.theirs = theirs

    @property
    def module(self) -> object | None:
        """The module, while it lives."""
        return self._module()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """TorchScript passes over functions that it can't read, and raises for other objects."""
        return FunctionType

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()  # a copy of the module, made attribute by attribute, has nothing of ours

    def __call__(self, *args: object, **kwargs: object) -> object:
        called = _getframe(1).f_locals.get("self")  # of `Module._wrapped_call_impl`
        module = self._module()
        call = self.theirs
        if called is not module and called is not None and hasattr(called, "_call_impl"):
            if vars(called).get(SLOT) is self and vars(called) is not vars(module):
                _fill(called, call)
            return (called._call_impl if call is None else call)(*args, **kwargs)
        self._caller = get_ident()
        for one in self.watches:
            if one.enter is not None:
                one.enter(module, args, kwargs)
        if self.led is not None:
            call = self.led
        result = (module._call_impl if call is None else call)(*args, **kwargs)
        for one in reversed(self.watches):
            if one.leave is not None:
                one.leave(module, args, result)
        return result

    def settle(self) -> None:
        """Be in the slot where there is something to do; what the job has put there meanwhile stays.

        From any thread: CPython lets no other one run between the last look and what it leads to. The job
        may iterate over the module's dict in the middle of a step, so another thread than the one that calls
        the module leaves None in the slot, which torch takes for nothing there.
        """
        module = self.module
        if module is None:
            return
        held = vars(module)
        found = held.get(SLOT)
        if found is not self and found is not self.theirs:
            return
        wanted = self if self.watches or self.led is not None else self.theirs
        if wanted is None and get_ident() == self._caller:
            held.pop(SLOT, None)
        elif wanted is not None or SLOT in held:
            held[SLOT] = wanted

    def lead(self) -> None:
        """Call through the layers of now, each made anew."""
        call = self._plain_call
        for rank in sorted(self.layers, reverse=True):
            call = self.layers[rank](call)
        self.led = call if self.layers else None
        self.settle()

    @property
    def _plain_call(self) -> Call:
        """The module's call as torch makes it, without keeping the module alive."""
        module = self._module

        def call(*args: object, **kwargs: object) -> object:
            return module()._call_impl(*args, **kwargs)

        return call


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """`enter(module, args, kwargs)` before each call of a module, `leave(module, args, result)` after it."""

    slot: InSlot
    enter: Call | None
    leave: Call | None


def watch(module: object, enter: Call | None, leave: Call | None) -> Watch:
    """Watch the calls of a module from now on; hand the watch to `unwatch`."""
    slot = _made(module)
    one = Watch(slot, enter, leave)
    slot.watches = (one, *slot.watches)
    slot.settle()
    return one


def unwatch(one: Watch) -> None:
    """Take a watch out, from any thread; where somebody has replaced what stood there, theirs stays.

    A call that has begun goes on. torch reads the slot twice at a call, with no place between the two
    where CPython would let another thread run.
    """
    one.slot.watches = tuple(each for each in one.slot.watches if each is not one)
    one.slot.settle()


def beneath(module: object) -> Call | None:
    """What stands in the slot beneath our watches, of ours or the job's; None for nothing."""
    own = _own(module)
    return theirs(module) if own is None or own.led is None else own.led


def theirs(module: object) -> Call | None:
    """What the job has put into the slot itself."""
    own = _own(module)
    found = vars(module).get(SLOT) if own is None else own
    return found.theirs if isinstance(found, InSlot) else cast("Call | None", found)


def lead_through(module: object, rank: int, layer: Layer) -> Callable[[], None]:
    """Add a layer to a module's call; the undo takes it out, and leaves no trace after the last."""
    slot = _made(module)
    slot.layers[rank] = layer
    slot.lead()

    def undo() -> None:
        if slot.layers.get(rank) is layer:
            del slot.layers[rank]
            slot.lead()

    return undo


def is_led(module: object, rank: int) -> bool:
    """Whether the module's call has a layer of this rank."""
    own = _own(module)
    return own is not None and rank in own.layers


def _own(module: object) -> InSlot | None:
    """What was made for this very module and is in its slot."""
    found = vars(module).get(SLOT)
    return found if isinstance(found, InSlot) and found.module is module else None


def _made(module: object) -> InSlot:
    """The same; made where there is none."""
    own = _own(module)
    if own is not None:
        return own
    below = theirs(module)
    if isinstance(vars(module).get(SLOT), InSlot):
        _fill(module, below)  # of a module that this one was copied from
    return InSlot(module, below)


def _fill(module: object, call: Call | None) -> None:
    if call is None:
        vars(module).pop(SLOT, None)
    else:
        vars(module)[SLOT] = call
