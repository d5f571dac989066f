"""A change of all ranks that is asked for while the training thread stands at a boundary is not forgotten."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from autobrrr.agent.ranks import rank_switching
from autobrrr.agent.ranks.rank_switching import RankSwitching
from autobrrr.agent.ranks.shared_log import RegisterLost
from autobrrr.agent.ranks.switch_protocol import PLAN

UNDO = {"do": "undo", "remedy": "optimizer.fused"}


class Register:
    """The shared log, which can be out of reach."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.is_lost = False

    def plans(self) -> int:
        return sum(key.endswith(PLAN) for key in self.kept)

    def get(self, key: str) -> str | None:
        if self.is_lost:
            raise RegisterLost("out of reach")
        return self.kept.get(key)

    def put(self, key: str, value: str) -> str:
        return self.kept.setdefault(key, value)


def rank_alone(register: Register, told: list[dict[str, object]]) -> RankSwitching:
    """The only rank of a job."""
    counts = itertools.count(10, 10)
    hot = SimpleNamespace(poke=lambda: None, live=True, seq=0)
    active = SimpleNamespace(applied=[], watched=False, arm=0)
    loop = SimpleNamespace(
        torch=torch, active=active, hot=hot, hooks_off=lambda: None, measuring=SimpleNamespace(task=None)
    )
    return RankSwitching(loop, register, lambda: next(counts), told.append, rank=0, ranks=1)  # type: ignore[arg-type]


def test_a_request_that_comes_while_a_boundary_is_counted_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    register = Register()
    told: list[dict[str, object]] = []
    switching = rank_alone(register, told)

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


@pytest.mark.parametrize(
    ("busy_rounds", "ok"), [(80, True), (10_000, False)], ids=["for a moment", "for longer than one waits"]
)
def test_a_rank_that_is_being_measured_is_asked_again(
    busy_rounds: int, *, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, object]] = []
    now_s = itertools.count()
    clock = SimpleNamespace(
        perf_counter_ns=itertools.count(0, 10**7).__next__, monotonic=lambda: next(now_s) * 0.01
    )
    monkeypatch.setattr(rank_switching, "time", clock)
    switching = rank_alone(Register(), told)
    measuring = switching._loop.measuring
    measuring.task = SimpleNamespace(name="traced steps")  # type: ignore[assignment]
    switching.request(1, UNDO)
    for number in range(3000):
        if number == busy_rounds:
            measuring.task = None
        switching.at_boundary()
        switching.pump()
        if any("reply" in event for event in told):
            break
    (reply,) = (event for event in told if "reply" in event)
    assert reply["ok"] is ok
    assert ok or reply["why"] == "rank 0 is busy with traced steps"
