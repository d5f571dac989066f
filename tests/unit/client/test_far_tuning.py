"""Of the machines of a job one tunes, and the ranks of the others follow or say why not."""

from __future__ import annotations

import pytest

from autobrrr.client import far_tuning
from autobrrr.client.far_ranks import ROUND, FarRanks, RoundState, called
from autobrrr.client.far_tuning import FarTuning, follow
from autobrrr.errors import AutobrrrError
from support.machines.two_machines import NoteStore, SharedClock, StoreClient
from support.screens import tui


class Rank(StoreClient):
    """The session of one rank."""

    def __init__(self, store: NoteStore, rank: int, why: str | None = None) -> None:
        super().__init__(store)
        self.rank, self.why = rank, why

    def together(self, *, far: bool) -> str | None:
        assert far
        return self.why

    def snapshot(self) -> object:
        return tui.snapshot(pid=100 + self.rank, job=tui.job(rank=self.rank, world_size=4))


def on(machine: str, store: NoteStore, clock: SharedClock, monkeypatch: pytest.MonkeyPatch) -> FarTuning:
    """A machine's way to the others, as far as it is the one that asks now."""
    monkeypatch.setattr(far_tuning, "_this_machine", lambda: machine.encode().hex()[:8].ljust(8, "0"))
    monkeypatch.setattr(far_tuning, "machine_name", lambda: machine)
    return FarTuning(StoreClient(store), sleep=clock.sleep, clock_s=clock.clock_s)  # type: ignore[arg-type]


def test_the_first_leads_and_the_other_hears_who_does(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = NoteStore(), SharedClock()
    one = on("aaa", store, clock, monkeypatch)
    assert one.lead() is None
    other = on("bbb", store, clock, monkeypatch)
    call = other.lead()
    assert call is not None
    assert (call.phase, call.machine) == ("tuned", "aaa")
    follow([Rank(store, 2), Rank(store, 3)], call)  # type: ignore[list-item]
    one.await_followers({2, 3}, 10)
    assert clock.now_s == 0
    clock.meanwhile = [one.end]
    assert other.wait_until_over(call, 60)
    assert clock.now_s == 1
    assert RoundState.read(store.kept[ROUND]) == RoundState(name=call.name, phase="closed")
    assert other.lead() is None, "it may tune now"


def test_a_machine_that_began_to_tune_before_may_do_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = NoteStore(), SharedClock()
    assert on("aaa", store, clock, monkeypatch).lead() is None
    before = store.kept[ROUND]
    assert on("aaa", store, clock, monkeypatch).lead() is None
    assert store.kept[ROUND] != before


def test_a_rank_that_can_not_follow_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = NoteStore(), SharedClock()
    one = on("aaa", store, clock, monkeypatch)
    one.lead()
    follow([Rank(store, 2), Rank(store, 3, "the job's parameters are sharded")], call_in(store))  # type: ignore[list-item]
    with pytest.raises(AutobrrrError, match="rank 3: the job's parameters are sharded"):
        one.await_followers({2, 3}, 10)


def call_in(store: NoteStore) -> RoundState:
    found = RoundState.read(store.kept[ROUND])
    assert found is not None
    return found


def test_a_rank_that_is_not_there_is_waited_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = NoteStore(), SharedClock()
    one = on("aaa", store, clock, monkeypatch)
    one.lead()
    follow([Rank(store, 2)], RoundState(name="0" * 16, phase="tuned", machine="ccc"))  # type: ignore[list-item]
    with pytest.raises(AutobrrrError, match="rank 2, 3 does not follow"):
        one.await_followers({2, 3}, 10)
    assert clock.now_s == 10
    assert not on("bbb", store, clock, monkeypatch).wait_until_over(call_in(store), 5)


def test_nobody_compares_ranks_beside_a_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = NoteStore(), SharedClock()
    on("aaa", store, clock, monkeypatch).lead()
    told = [tui.snapshot(pid=102, job=tui.job(rank=2, world_size=4))]
    far = FarRanks("bbb", elsewhere=lambda pid: 3, sleep=clock.sleep, clock_s=clock.clock_s)
    with pytest.raises(AutobrrrError, match="aaa tunes the job"):
        far.meet(StoreClient(store), told)  # type: ignore[arg-type]
    assert called(StoreClient(store), None) == call_in(store)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "tuned", "tuned 0123456789abcdef", "open 0123456789abcdef aaa", "tuned 0123456789abcde! aaa", "x y"],
)
def test_what_is_no_call_is_none(text: str) -> None:
    assert RoundState.read(text) is None


def test_the_name_of_a_machine_is_cleaned_at_the_door() -> None:
    found = RoundState.read("tuned 0123456789abcdef node\x1b[31m" + "x" * 500)
    assert found is not None
    assert "\x1b" not in found.machine
    assert len(found.machine) <= 64
