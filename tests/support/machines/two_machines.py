"""Machines whose sessions meet in a made-up store; clocks stand still but for those who sleep."""

from __future__ import annotations

import threading

from autobrrr.errors import AutobrrrError


class NoteStore:
    """What stands at keys, for all machines."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.looks = 0
        self._lock = threading.Lock()

    def note(self, key: str, text: str, instead_of: str) -> str:
        with self._lock:
            if self.kept.get(key, "") == instead_of:
                self.kept[key] = text
            return self.kept.get(key, instead_of)

    def notes(self, keys: list[str]) -> dict[str, str]:
        with self._lock:
            self.looks += len(keys)
            return {key: self.kept[key] for key in keys if key in self.kept}


class StoreClient:
    """A session that reaches the store, or does not."""

    def __init__(self, store: NoteStore, *, lost: bool = False) -> None:
        self.store, self.lost = store, lost

    def note(self, key: str, text: str, instead_of: str = "") -> str:
        self._reach()
        return self.store.note(key, text, instead_of)

    def notes(self, keys: list[str]) -> dict[str, str]:
        self._reach()
        return self.store.notes(keys)

    def _reach(self) -> None:
        if self.lost:
            raise AutobrrrError("the job's store does not answer")


class SharedClock:
    """Seconds that pass for a machine while it sleeps; every sleep lets other machines act."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.meanwhile: list[object] = []

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.meanwhile:
            act = self.meanwhile.pop(0)
            if callable(act):
                act()

    def clock_s(self) -> float:
        return self.now_s
