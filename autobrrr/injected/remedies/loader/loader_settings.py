"""Settings of DataLoaders that change from their next epoch on, as if the script had been written so.

torch reads a loader's attributes when it is asked for an iterator; the epoch that runs is never touched. A
loader that is made later gets the same settings if they fit it. The undo puts the old values back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...live_torch.live_job import Job
from ..registry import RefusalCode, Refused, WatchedUndo
from .loader_epochs import EPOCHS
from .spare_iterator import MAKER, maker

Settle = Callable[["LoaderView"], Mapping[str, object]]
"""Attributes to set on a loader, by name; raises Refused where that does not fit."""

PATIENCE_S = 5  # longest wait for one batch; a recipe's workers get all the time that the script gives them
_ABSENT = object()


class LoaderSettings:
    """One remedy's settings on all loaders that they fit.

    Attributes:
        trouble: Why they must be undone after all; None while all is well.
    """

    def __init__(self, job: Job, settle: Settle) -> None:
        self.trouble: str | None = None
        self._job = job
        self._settle = settle
        self._patience_s = 0 if job.planned else PATIENCE_S
        self._changed: list[tuple[weakref.ref[object], dict[str, object], dict[str, object]]] = []

    def begins(self, loader: object) -> None:
        """A loader is about to begin an epoch: the first time, change it."""
        self._changed = [each for each in self._changed if each[0]() is not None]
        known = any(ref() is loader for ref, _, _ in self._changed)
        if known or self.trouble or self._job.evaluates:
            return
        view = view_of(loader)
        try:
            settings = dict(_settled(self._settle, view))
        except Refused:
            return
        state = vars(loader)  # not setattr: torch guards some of these names once a loader is made
        forks = {"num_workers", "prefetch_factor"} & settings.keys()
        if forks and settings.get("num_workers") != 0 and view.in_order and MAKER not in state:
            settings[MAKER] = maker(loader, self._failed, self._patience_s)
        before = {name: state.get(name, _ABSENT) for name in settings}
        state.update(settings)
        self._changed.append((weakref.ref(loader), before, settings))

    def give_back(self, loader: object, error: Exception) -> bool:
        """torch can't begin an epoch with these settings: the loader gets its own."""
        known = any(ref() is loader for ref, _, _ in self._changed)
        if known:
            self._failed(error)
        return known

    def undo(self) -> None:
        """All loaders get their own settings from their next epoch on."""
        EPOCHS.leave(self.begins)
        self._give_back()

    def _failed(self, error: Exception) -> None:
        self.trouble = f"loading failed with it: {type(error).__name__}: {error}".partition("\n")[0]
        self._give_back()

    def _give_back(self) -> None:
        """What somebody else has set meanwhile stays."""
        changed, self._changed = self._changed, []
        for ref, before, settings in changed:
            state = {} if ref() is None else vars(ref())
            for name, value in before.items():
                if state.get(name, _ABSENT) is not settings[name]:
                    continue
                if value is _ABSENT:
                    del state[name]
                else:
                    state[name] = value
            if settings.get("persistent_workers") and "_iterator" in state:
                state["_iterator"] = None  # its workers end with the epoch that still reads from them


def _settled(settle: Settle, view: LoaderView) -> Mapping[str, object]:
    settings = settle(view)
    if view.persistent_workers and view.began:
        raise Refused("its workers stay for the whole run: it takes a new start")
    return settings


def set_loaders(job: Job, settle: Settle) -> WatchedUndo:
    """Change the loaders of the job from their next epoch on.

    Raises:
        Refused: no loader is known, or the settings fit none of those that are; with every reason.
    """
    reasons: dict[str, RefusalCode] = {}
    for view in views(job):
        try:
            _settled(settle, view)
            break
        except Refused as refused:
            reasons[str(refused)] = refused.code
    else:
        raise Refused("; ".join(reasons), max(reasons.values()))  # unfit, where one loader is
    settings = LoaderSettings(job, settle)
    EPOCHS.listen(job.torch, settings.begins, settings.give_back)
    for loader in job.loaders:
        settings.begins(loader)
    return WatchedUndo(settings.undo, lambda: settings.trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderView:
    """One loader, as it is set."""

    dataset: object
    indices: object  # yields the indices of a batch (or of an item, without automatic collation)
    map_style: bool
    in_order: bool
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    began: bool  # an iterator is there


def view_of(thing: object) -> LoaderView:
    """Of a loader, or of its iterator, which keeps the loader's settings behind a `_`."""
    state = vars(thing)
    mark = "" if "num_workers" in state else "_"
    return LoaderView(
        dataset=state[f"{mark}dataset"],
        indices=thing._index_sampler,  # type: ignore[attr-defined]
        map_style=state["_dataset_kind"] == 0,
        in_order=state.get(f"{mark}in_order", True) is True,
        num_workers=state[f"{mark}num_workers"],
        prefetch_factor=state.get(f"{mark}prefetch_factor"),
        persistent_workers=bool(state.get(f"{mark}persistent_workers")),
        pin_memory=bool(state.get(f"{mark}pin_memory")),
        began=bool(mark) or state.get("_iterator") is not None,
    )


def views(job: Job) -> list[LoaderView]:
    """The loaders of the job, as far as they are known: themselves, else the running iterator.

    Raises:
        Refused: none has been seen.
    """
    found = job.loaders or ([] if job.iterator is None else [job.iterator])
    if not found:
        raise Refused("no DataLoader has been seen yet", RefusalCode.NOT_MET)
    return [view_of(each) for each in found]
