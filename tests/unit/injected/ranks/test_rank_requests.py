"""A change of all ranks that is asked for while the training thread stands at a boundary is not forgotten."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from autobrrr.injected.ranks import rank_switching
from autobrrr.injected.ranks.rank_meeting import RankMeeting
from autobrrr.injected.ranks.rank_switching import RankSwitching
from autobrrr.injected.ranks.shared_log import RegisterLost

UNDO = {"do": "undo", "remedy": "optimizer.fused"}


class Register:
    """The shared log, which can be out of reach."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.is_lost = False

    def held_keys(self) -> list[str]:
        return list(self.kept)

    def get(self, key: str) -> str | None:
        if self.is_lost:
            raise RegisterLost("out of reach")
        return self.kept.get(key)

    def put(self, key: str, value: str) -> str:
        return self.kept.setdefault(key, value)


def test_a_request_that_comes_while_a_boundary_is_counted_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    register, counts, told = Register(), itertools.count(10, 10), []
    hot = SimpleNamespace(poke=lambda: None, live=True)
    active = SimpleNamespace(applied=[], watched=False)
    met = RankMeeting(rank=0, ranks=1, log=register, store=None, count=lambda: next(counts))  # type: ignore[arg-type]
    switching = RankSwitching(SimpleNamespace(active=active, hot=hot), met, told.append)  # type: ignore[arg-type]

    def counted(seen: list[object]) -> int:
        """The agent's thread gives the first request up and takes a second one at this very moment."""
        size = sum(1 for _ in seen)
        if size == 2 and not any("reply" in event for event in told):
            register.is_lost = True
            switching.pump()
            register.is_lost = False
            switching.request(2, UNDO)
        return size

    switching.request(1, UNDO)
    monkeypatch.setattr(rank_switching, "len", counted, raising=False)
    assert switching.at_boundary(), "the next boundary is wanted too"
    for _ in range(3):
        switching.at_boundary()
    switching.pump()
    assert [event["reply"] for event in told if "reply" in event] == [1]
    assert "1/plan" in register.kept
