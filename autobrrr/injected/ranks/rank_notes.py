"""What sessions on several machines tell each other: short texts at keys of the job's store.

In: keys and texts of a session, which alone knows what they mean. Out: what stands there. Called on the
agent's thread; each call may take seconds, and nothing of the job waits meanwhile. Nothing is asked unless a
session asks. All that was put there goes when the agent leaves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType

from . import job_store

FOLDER = "notes/"
KEY = re.compile(r"[a-z]{1,16}(/\d{1,10})?\Z")
MOST_KEYS = 16  # asked at once


class RankNotes:
    """One session's way to the others."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._store: job_store.JobStore | None = None

    def put(self, key: str, text: str, instead_of: str) -> str:
        """What stands at a key, once `text` took the place of that; of nothing where it is empty.

        Raises:
            RegisterLost: the store can't be asked.
            ValueError: this is no key.
        """
        return self._connected().put(_name(key), text, instead_of)

    def get(self, keys: Sequence[str]) -> dict[str, str]:
        """The texts that stand at these keys; what is too long to be ours is left out. Raises as `put`."""
        if len(keys) > MOST_KEYS:
            raise ValueError(f"{len(keys)} keys; at most {MOST_KEYS} are asked at once")
        store = self._connected()
        found = {key: store.get(_name(key)) for key in keys}
        return {key: text for key, text in found.items() if text is not None}

    def leave(self) -> None:
        """Delete what was put, and hang up."""
        store, self._store = self._store, None
        if store is not None:
            store.leave()

    def _connected(self) -> job_store.JobStore:
        if self._store is None:
            self._store = job_store.of_job(self._torch)
        return self._store


def _name(key: str) -> str:
    if not isinstance(key, str) or KEY.match(key) is None:
        raise ValueError("a key is a word, and the number of a rank")
    return FOLDER + key
