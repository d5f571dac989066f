"""A module's calls watched from where torch looks before it calls: not from the module's dicts of hooks.

In: a module and what to call around it. Out: a watch in `_compiled_call_impl`, over whatever stands
there (a remedy's layers). torch leaves that out when the module is copied or pickled, and never
scripts it; hooks would be copied, pickled and scripted with the module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from sys import _getframe
from types import FunctionType
from typing import cast

from .torch_types import Module

SLOT = "_compiled_call_impl"
Call = Callable[..., object]


class InSlot:
    """What we put into the slot, which is nobody's but the module's.

    A module made of another one's `__dict__` (a replica of DataParallel, a clone of learn2learn's) has it in
    its own slot, and is called as if it were not there. Only torch knows which module it calls: its frame
    tells, for 0.25 us a call.

    Attributes:
        inner: What stood there before, of ours or the job's; None: the module's own call.
    """

    __slots__ = ("_module", "inner")

    def __init__(self, module: object, inner: Call | None = None) -> None:
        self._module = weakref.ref(module)
        self.inner = inner

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
        if called is module or not hasattr(called, "_call_impl"):
            return self.lead(cast(Module, module), args, kwargs)
        return _call(_not_ours(self), cast(Module, called), args, kwargs)

    def lead(self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """The call of the module whose slot it is."""
        return _call(self.inner, module, args, kwargs)


class Watch(InSlot):
    """Stands in the slot: `enter(module, args, kwargs)`, the call, `leave(module, args, result)`."""

    __slots__ = ("_enter", "_leave")

    def __init__(self, module: object, inner: Call | None, enter: Call | None, leave: Call | None) -> None:
        super().__init__(module, inner)
        self._enter = enter
        self._leave = leave

    def lead(self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """The same, watched."""
        enter = self._enter
        if enter is not None:
            enter(module, args, kwargs)
        result = _call(self.inner, module, args, kwargs)
        leave = self._leave
        if leave is not None:
            leave(module, args, result)
        return result

    def still(self) -> None:
        """Call nothing any more, wherever a shallow copy of the module may have taken it."""
        self._enter = self._leave = None


def _call(inner: Call | None, module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    if inner is None:
        return module._call_impl(*args, **kwargs)
    return inner.lead(module, args, kwargs) if isinstance(inner, InSlot) else inner(*args, **kwargs)


def _not_ours(call: Call | None) -> Call | None:
    """What the job has put there itself, below all of ours."""
    while isinstance(call, InSlot):
        call = call.inner
    return call


def watch(module: object, enter: Call | None, leave: Call | None) -> Watch:
    """Watch the calls of a module from now on; hand the watch to `unwatch`."""
    made = Watch(module, _in_slot(module), enter, leave)
    vars(module)[SLOT] = made
    return made


def unwatch(one: Watch) -> None:
    """Take a watch out, from any thread; where somebody has replaced what stood there, theirs stays.

    A call that has begun goes on through it. torch reads the slot twice at a call, with no place
    between the two where CPython would let another thread run.
    """
    one.still()
    module, inner = one.module, one.inner
    if module is None:
        return
    if vars(module).get(SLOT) is one:
        _fill(module, inner)
        return
    for over in _watches(module):
        if over.inner is one:
            over.inner = inner


def beneath(module: object) -> Call | None:
    """What stands in the slot beneath our watches; None for nothing."""
    over = _watches(module)
    return over[-1].inner if over else _in_slot(module)


def put_beneath(module: object, call: Call | None) -> None:
    """Replace what stands beneath our watches; they stay."""
    over = _watches(module)
    if over:
        over[-1].inner = call
    else:
        _fill(module, call)


def silence(module: object) -> Callable[[], None] | None:
    """Leave out all watches of a module for a while; what puts them back, None where there is none."""
    top = vars(module).get(SLOT)
    if not isinstance(top, Watch):
        return None
    _fill(module, beneath(module))
    return lambda: _fill(module, top)


def _in_slot(module: object) -> Call | None:
    """What stands in the slot; of ours only what was made for this very module."""
    found = cast("Call | None", vars(module).get(SLOT))
    return found if isinstance(found, InSlot) and found.module is module else _not_ours(found)


def _fill(module: object, call: Call | None) -> None:
    if call is None:
        vars(module).pop(SLOT, None)
    else:
        vars(module)[SLOT] = call


def _watches(module: object) -> list[Watch]:
    """Ours, the outermost first."""
    found: list[Watch] = []
    at = _in_slot(module)
    while isinstance(at, Watch):
        found.append(at)
        at = at.inner
    return found
