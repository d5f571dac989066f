"""A module's calls watched from where torch looks before it calls: not from the module's dicts of hooks.

In: a module and what to call around it. Out: a watch in `_compiled_call_impl`, over whatever stands
there (a remedy's layers). torch leaves that out when the module is copied or pickled, and never
scripts it; hooks would be copied, pickled and scripted with the module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import cast

from .torch_types import Module

SLOT = "_compiled_call_impl"
Call = Callable[..., object]


class InSlot:
    """What we put into the slot, which is nobody's but the module's."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """TorchScript passes over functions that it can't read, and raises for other objects."""
        return FunctionType

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()  # a copy of the module, made attribute by attribute, has nothing of ours


class Watch(InSlot):
    """Stands in the slot: `enter(module, args, kwargs)`, the call, `leave(module, args, result)`."""

    __slots__ = ("_enter", "_leave", "_module", "inner")

    def __init__(self, module: object, inner: Call | None, enter: Call | None, leave: Call | None) -> None:
        self._module = weakref.ref(module)
        self._enter = enter
        self._leave = leave
        self.inner = inner  # what stood there before; None: the module's own call

    @property
    def module(self) -> object | None:
        """The module, while it lives."""
        return self._module()

    def __call__(self, *args: object, **kwargs: object) -> object:
        module = cast(Module, self._module())
        enter = self._enter
        if enter is not None:
            enter(module, args, kwargs)
        result = (self.inner or module._call_impl)(*args, **kwargs)
        leave = self._leave
        if leave is not None:
            leave(module, args, result)
        return result

    def still(self) -> None:
        """Call nothing any more, wherever a shallow copy of the module may have taken it."""
        self._enter = self._leave = None


def watchable(torch: ModuleType, roots: list[object]) -> list[object]:
    """Of some root modules those whose calls can be watched.

    `DataParallel` makes replicas of what it holds that share all attributes: a watch of one would call
    the module in place of its replica.
    """
    parallel = getattr(getattr(torch, "nn", None), "DataParallel", ())
    replicated = {
        id(part)
        for root in roots
        if isinstance(root, parallel)
        for part in root.modules()
        if part is not root
    }
    return [root for root in roots if id(root) not in replicated]


def watch(module: object, enter: Call | None, leave: Call | None) -> Watch:
    """Watch the calls of a module from now on; hand the watch to `unwatch`."""
    made = Watch(module, cast("Call | None", vars(module).get(SLOT)), enter, leave)
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
    return over[-1].inner if over else cast("Call | None", vars(module).get(SLOT))


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


def _fill(module: object, call: Call | None) -> None:
    if call is None:
        vars(module).pop(SLOT, None)
    else:
        vars(module)[SLOT] = call


def _watches(module: object) -> list[Watch]:
    """Ours, the outermost first."""
    found: list[Watch] = []
    at: object = vars(module).get(SLOT)
    while isinstance(at, Watch):
        found.append(at)
        at = at.inner
    return found
