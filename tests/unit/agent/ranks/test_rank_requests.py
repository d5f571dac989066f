"""A change of all ranks that is asked for is made, tried again, or refused with the reason."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from autobrrr.agent.ranks import rank_switching
from autobrrr.agent.ranks.rank_switching import MOST_TRIES, RankSwitching
from autobrrr.agent.ranks.shared_log import RegisterLost
from autobrrr.agent.ranks.switch_protocol import PLAN
from autobrrr.agent.remedies.registry import Refused

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


class Alone:
    """The only rank of a job, whose steps last 10 ms; what it tells whoever asked for something."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        clock = SimpleNamespace(perf_counter_ns=lambda: self.hot.seq * 10_000_000, monotonic=lambda: 0.0)
        patch.setattr(rank_switching, "time", clock)
        self.told: list[dict[str, object]] = []
        self.register = Register()
        self.measuring = SimpleNamespace(task=None)
        counts = itertools.count(10, 10)
        self.hot = SimpleNamespace(poke=lambda: None, live=True, seq=0)
        active = SimpleNamespace(applied=[], watched=False, arm=0)
        loop = SimpleNamespace(
            torch=torch,
            active=active,
            hot=self.hot,
            measuring=self.measuring,
            job=SimpleNamespace(updated=[]),
            step_ns=10_000_000,
        )
        self.switching = RankSwitching(
            loop,  # type: ignore[arg-type]
            self.register,  # type: ignore[arg-type]
            lambda: next(counts),
            self.told.append,
            rank=0,
            ranks=1,
        )

    def steps(self, count: int) -> list[dict[str, object]]:
        """The replies so far, after so many further steps."""
        for _ in range(count):
            self.hot.seq += 1
            self.switching.at_boundary()
        return [event for event in self.told if "reply" in event]


def test_a_change_is_made_at_the_step_that_was_planned_and_a_second_one_waits_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone(monkeypatch)
    alone.switching.request(1, UNDO)
    with pytest.raises(Refused, match="another change"):
        alone.switching.request(2, UNDO)
    assert alone.switching.at_boundary(), "the next boundary is wanted too"
    assert alone.steps(1) == []
    assert alone.switching.holds
    assert [each["ok"] for each in alone.steps(10)] == [True]
    assert not alone.switching.at_boundary()
    alone.switching.request(2, UNDO)
    assert [each["reply"] for each in alone.steps(10)] == [1, 2]


@pytest.mark.parametrize(
    ("busy_steps", "ok"), [(80, True), (10_000, False)], ids=["for a moment", "for longer than one waits"]
)
def test_a_rank_that_is_being_measured_is_asked_again(
    busy_steps: int, *, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Alone(monkeypatch)
    alone.measuring.task = SimpleNamespace(name="traced steps")
    alone.switching.request(1, UNDO)
    alone.steps(busy_steps)
    alone.measuring.task = None
    (reply,) = alone.steps(2000)
    assert reply["ok"] is ok
    assert ok or reply["why"] == "rank 0 is busy with traced steps"
    assert len([key for key in alone.register.kept if key.endswith(PLAN)]) <= MOST_TRIES


def test_ranks_whose_parameters_were_seen_to_be_sharded_only_after_they_met_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone(monkeypatch)
    alone.switching._loop.job.updated.append(SimpleNamespace(device_mesh="of two"))
    alone.switching.request(1, {"do": "apply", "remedy": "optimizer.fused"})
    (reply,) = alone.steps(2000)
    assert (reply["ok"], reply["why"]) == (False, "rank 0: the job's parameters are sharded over the ranks")


def test_where_the_ranks_can_not_be_asked_the_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.register.is_lost = True
    alone.switching.request(1, UNDO)
    (reply,) = alone.steps(3)
    assert reply["why"] == "the ranks can't be asked: out of reach"
    assert not alone.switching.holds


def test_a_rank_that_leaves_tries_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.measuring.task = SimpleNamespace(name="traced steps")
    alone.switching.request(1, UNDO)
    assert alone.steps(3) == []
    alone.hot.live = False  # nothing to revert, and nobody to wait for
    alone.switching.leave(keep=False, patience_s=1.0)
    (reply,) = alone.steps(1)
    assert reply["why"] == "rank 0 is leaving"
    assert not alone.switching.holds


def test_a_rank_that_leaves_waits_for_no_request_while_training_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone(monkeypatch)
    alone.switching.request(1, UNDO)
    alone.switching.leave(keep=True, patience_s=1.0)  # there is no sleep in this clock
    (reply,) = alone.steps(3)
    assert reply["why"] == "rank 0 is leaving"
