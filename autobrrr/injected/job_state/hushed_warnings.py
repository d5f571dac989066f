"""Warnings of a replay: neither shown nor remembered as shown, so that the job still shows them itself.

In: nothing. Out: a context, for the thread that enters it; what other threads warn of is the job's, and so is
what a process that is forked within warns of.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from _thread import get_ident
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import cast

REGISTRY = "__warningregistry__"  # of a module's globals: what was shown of where


class _OfThread:
    """In a filter, in place of the pattern for the text: what one thread says."""

    __slots__ = ("_thread", "over")

    def __init__(self) -> None:
        self._thread = os.getpid(), get_ident()
        self.over = False  # another thread's `catch_warnings` may keep a copy of the filters

    def match(self, _text: str) -> bool:
        """Whether the filter is for this warning."""
        return not self.over and (os.getpid(), get_ident()) == self._thread


@contextlib.contextmanager
def hushed(torch: ModuleType) -> Iterator[None]:
    """What this thread warns of meanwhile is ignored, and what was shown before stays so.

    The filter goes in without a word to `warnings`, as `simplefilter` has: by that all would be shown again.
    """
    filters = cast("list[object]", warnings.filters)
    ours = ("ignore", said := _OfThread(), Warning, None, 0)
    always = torch.is_warn_always_enabled()
    filters.insert(0, ours)
    before, shown = _version(), _registries()
    show = _not_shown()
    torch.set_warn_always(True)  # else those of C++ that come once would have come
    try:
        yield
    finally:
        torch.set_warn_always(always)
        show()
        now = _version()
        if now != before:  # code within has set filters of its own, by which all forget
            for registry, was in shown:
                if was.get("version") == before:
                    registry.clear()
                    registry.update({**was, "version": now})
        said.over = True
        with contextlib.suppress(ValueError):
            filters.remove(ours)


def _not_shown() -> Callable[[], None]:
    """Nor what code within wants to be shown, except to itself; returns how that is undone."""
    show = getattr(warnings, "_showwarnmsg", None)
    if show is None:
        return lambda: None
    thread, shown_by = (os.getpid(), get_ident()), getattr(warnings, "_showwarnmsg_impl", None)

    def quiet(message: object) -> None:
        if (os.getpid(), get_ident()) != thread or getattr(
            warnings, "_showwarnmsg_impl", None
        ) is not shown_by:
            show(message)

    warnings._showwarnmsg = quiet  # type: ignore[attr-defined]
    return lambda: setattr(warnings, "_showwarnmsg", show)


def _version() -> object:
    """The number of changes to filters: read off what a warning that nobody hears leaves in its registry."""
    registry: dict[object, object] = {}
    warnings.warn_explicit("", UserWarning, "", 0, registry=registry)  # type: ignore[arg-type]
    return registry.get("version")


def _registries() -> list[tuple[dict[object, object], dict[object, object]]]:
    """Those of all modules, with what they hold."""
    found = []
    for module in list(sys.modules.values()):
        try:
            held = object.__getattribute__(module, "__dict__")  # a lazy module's own would import
        except AttributeError:
            continue
        registry = held.get(REGISTRY)
        if registry:
            found.append((registry, dict(registry)))
    return found
