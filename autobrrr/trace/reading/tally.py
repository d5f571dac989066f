"""What a document holds that can't be taken as it stands: how often, and the first place."""

from __future__ import annotations


class Tally:
    """Counts places of a document and keeps the first; `at` is a byte of its (inflated) text."""

    def __init__(self) -> None:
        self.count = 0
        self.at: int | None = None
        self.what = ""

    def add(self, at: int, what: str, count: int = 1) -> None:
        if self.at is None or at < self.at:
            self.at, self.what = at, what
        self.count += count

    @property
    def first(self) -> str:
        return f"at byte {self.at}: {self.what}"
