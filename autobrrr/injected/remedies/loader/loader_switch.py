"""Settings of DataLoaders that change from their next epoch on.

torch reads a loader's settings when it is asked for an iterator: `DataLoader.__iter__` stands replaced
while any setting is on. Each loader gets the settings that fit it, and its own ones back at the undo; the
epoch that is running is never touched. A loader that cannot start with ours starts with its own.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import ModuleType
from typing import cast

from ...job_state.rng_state import Restore, capture
from ...live_torch.handler_errors import let_through
from ...live_torch.live_job import Job
from ...live_torch.patches import Patch
from ..registry import Refused, Undo
from .loader_view import LoaderView, of_loader, views

Settle = Callable[[LoaderView], Mapping[str, object]]
"""What to set on a loader, by the names of its attributes; raises Refused where that does not fit."""
OnEpoch = Callable[[object], None]


OnBegun = Callable[[object, object], None]  # with the iterator, and its loader
WITHOUT_WORKERS: Mapping[str, object] = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
}

_ABSENT = object()


class LoaderSwitch:
    """One remedy's settings on all loaders that they fit."""

    def __init__(
        self, name: str, settle: Settle, before: OnEpoch | None = None, after: OnBegun | None = None
    ) -> None:
        self.name = name
        self._settle = settle
        self._before = before
        self.after = after
        self._changed: list[tuple[weakref.ref[object], dict[str, object], dict[str, object]]] = []
        self._met: list[weakref.ref[object]] = []

    def foresee(self, view: LoaderView) -> LoaderView:
        """The loader as it will be with these settings; unchanged where they don't fit."""
        try:
            settings = self._settle(view)
        except Refused:
            return view
        known = {field.name: settings[field.name] for field in fields(view) if field.name in settings}
        return replace(view, **known)  # type: ignore[arg-type]

    def meet(self, loader: object, view: LoaderView) -> None:
        """A loader is about to begin an epoch: the first time, change it.

        Args:
            view: Of the loader, with what earlier switches have settled.
        """
        if not any(ref() is loader for ref in self._met):
            self._met.append(weakref.ref(loader))
            try:
                settings = dict(self._settle(view))
            except Refused:
                return
            state = vars(loader)  # not setattr: torch guards these names once a loader is made
            # One without workers says so on: others read it, to make a loader like this one.
            written = [name for name in settings if state.get("num_workers") or name not in WITHOUT_WORKERS]
            before = {name: state.get(name, _ABSENT) for name in written}
            state.update({name: settings[name] for name in written})
            self._changed.append((weakref.ref(loader), before, settings))
        if self._before is not None and self.holds(loader):
            self._before(loader)

    def holds(self, loader: object) -> bool:
        """Whether this loader has these settings."""
        return any(ref() is loader for ref, _, _ in self._changed)

    def reads_ahead(self, loader: object) -> bool:
        """Whether this loader has none of its own, and is to have some."""
        own = vars(loader).get("num_workers")
        return not own and any(
            ref() is loader and wanted.get("num_workers") for ref, _, wanted in self._changed
        )

    def give_back(self, loader: object | None = None) -> None:
        """Own settings back, for one loader or all; what somebody else has set meanwhile stays."""
        kept = []
        for entry in self._changed:
            ref, before, settings = entry
            found = ref()
            if found is None:
                continue
            if loader is not None and found is not loader:
                kept.append(entry)
                continue
            state = vars(found)
            for name, value in before.items():
                if state.get(name, _ABSENT) != settings[name]:
                    continue
                if value is _ABSENT:
                    state.pop(name, None)
                else:
                    state[name] = value
            if settings.get("persistent_workers") and state.get("_iterator") is not None:
                state["_iterator"] = None  # its workers end with the epoch that still reads from them
        self._changed = kept


class Desk:
    """All switches of this process, and the one replacement of `DataLoader.__iter__`."""

    def __init__(self) -> None:
        self._switches: list[LoaderSwitch] = []
        self._patch: Patch | None = None
        self._torch: ModuleType | None = None
        self._pid = os.getpid()
        self._inside = False

    def put_on(self, torch: ModuleType, switch: LoaderSwitch) -> None:
        """Loaders meet this switch from now on."""
        self._torch = torch
        self._switches.append(switch)
        if self._patch is None:
            self._patch = Patch(torch.utils.data.DataLoader, "__iter__", self._wrapped)
            self._patch.put_on()

    def take_off(self, switch: LoaderSwitch) -> None:
        """The switch's settings are undone."""
        if switch in self._switches:
            self._switches.remove(switch)
            switch.give_back()
        if not self._switches and self._patch is not None and self._patch.take_off():
            self._patch = None  # else somebody has patched over it: it is used again

    def has(self, name: str) -> bool:
        """Whether the remedy of this name is on."""
        return any(switch.name == name for switch in self._switches)

    def foresee(self, view: LoaderView) -> LoaderView:
        """A loader as it will be at its next epoch."""
        for switch in self._switches:
            view = switch.foresee(view)
        return view

    def view_of(self, loader: object, *, before: LoaderSwitch | None = None) -> LoaderView:
        """A loader with what is settled for it; by the switches before one of them."""
        view = of_loader(loader)
        for switch in itertools.takewhile(lambda each: each is not before, self._switches):
            if switch.holds(loader):
                view = switch.foresee(view)
        return view

    def _wrapped(self, original: Callable[[object], object]) -> Callable[[object], object]:
        def __iter__(loader: object) -> object:
            if not self._switches or self._inside or os.getpid() != self._pid:
                return original(loader)
            self._inside = True
            torch = cast(ModuleType, self._torch)
            try:
                self._meet(loader)
                drawn = _states_before(torch, loader)
                try:
                    iterator = original(loader)
                except (OSError, RuntimeError, ValueError, AssertionError) as error:
                    let_through(error)
                    if not any(switch.holds(loader) for switch in self._switches):
                        raise
                    for switch in reversed(self._switches):
                        switch.give_back(loader)
                    for restore in drawn:
                        restore()
                    iterator = original(loader)
                self._tell(iterator, loader)
                return iterator
            finally:
                self._inside = False

        __iter__.__wrapped__ = original  # type: ignore[attr-defined]
        return __iter__

    def give_back(self, name: str, loader: object) -> None:
        """A loader is as it was without the remedy of this name, for as long as that is on."""
        for switch in self._switches:
            if switch.name == name:
                switch.give_back(loader)

    def reads_ahead(self, loader: object) -> bool:
        """Whether the job has no workers for it, and we have."""
        return any(switch.reads_ahead(loader) for switch in self._switches)

    def _meet(self, loader: object) -> None:
        for switch in list(self._switches):
            try:
                switch.meet(loader, self.view_of(loader, before=switch))
            except Exception as error:  # noqa: BLE001  a loader of another make stays as it is
                switch.give_back(loader)
                let_through(error)

    def _tell(self, iterator: object, loader: object) -> None:
        for switch in list(self._switches):
            if switch.after is not None:
                try:
                    switch.after(iterator, loader)
                except Exception as error:  # noqa: BLE001  it loads as without us
                    let_through(error)
                    continue


def _states_before(torch: ModuleType, loader: object) -> list[Restore]:
    """What puts back the random states that an iterator draws from as it is made."""
    generator = vars(loader).get("generator")
    return capture(torch, [] if generator is None else [generator])


DESK = Desk()


def switch_loaders(
    job: Job, name: str, settle: Settle, before: OnEpoch | None = None, after: OnBegun | None = None
) -> Undo:
    """Change the loaders of the job from their next epoch on.

    Raises:
        Refused: it is on, no loader is known, or it fits none of those that are; with every reason.
    """
    if DESK.has(name):
        raise Refused(f"{name} is on already")
    reasons = []
    fits = False
    for view in views(job):
        try:
            settle(DESK.foresee(view))
            fits = True
        except Refused as refused:
            reasons.append(str(refused))
    if not fits:
        raise Refused("; ".join(dict.fromkeys(reasons)))
    switch = LoaderSwitch(name, settle, before, after)
    DESK.put_on(job.torch, switch)
    for loader in job.loaders:
        switch.meet(loader, DESK.view_of(loader, before=switch))
    return lambda: DESK.take_off(switch)
