"""Two machines meet in the job's store; who never comes, or tells nonsense, is left out after seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest

from autobrrr.client import all_ranks, far_ranks
from autobrrr.client.far_ranks import FarRanks, RoundState, called
from autobrrr.errors import AutobrrrError
from autobrrr.records import CollectiveWaits, Diagnosis, RanksCompared
from autobrrr.report.text.rank_text import ranks_table, ranks_words
from support.judged.rank_steps import RankModel, job
from support.machines.two_machines import NoteStore, SharedClock, StoreClient
from support.screens import tui

HOURS_NS = 3_600_000_000_000
SIZE = 4
STEPS = [
    msgspec.structs.replace(each, counts=[10 + 3 * number for number in range(64)])
    for each in job([*[RankModel()] * 3, RankModel(more_ms={"forward": 12.0})], 64)
]


def rank(number: int, size: int = SIZE) -> Diagnosis:
    found = tui.snapshot(pid=100 + number, job=tui.job(rank=number, world_size=size))
    return msgspec.structs.replace(found, ranks=None, straggler=None)


def machine(name: str, clock: SharedClock, elsewhere: int | None = 2) -> FarRanks:
    return FarRanks(name, elsewhere=lambda pid: elsewhere, sleep=clock.sleep, clock_s=clock.clock_s)


def timed(ranks: list[int], hours: int) -> dict[int, CollectiveWaits]:
    """What ranks of a machine timed, by its own clock."""
    return {
        100 + each: msgspec.structs.replace(
            STEPS[each], end_ns=[end + hours * HOURS_NS for end in STEPS[each].end_ns]
        )
        for each in ranks
    }


def seen_by(
    store: NoteStore, ranks: list[int], hours: int, found: dict[int, RanksCompared | None]
) -> Callable[[], None]:
    """A machine from its first look to what it makes of all ranks, really asleep in between."""

    def work() -> None:
        far, client = FarRanks(f"node-{ranks[0]}", elsewhere=lambda pid: 2), StoreClient(store)
        told = [rank(each) for each in ranks]
        far.meet(client, told)  # type: ignore[arg-type]
        mine = timed(ranks, hours)
        others = far.exchange(client, told, mine)  # type: ignore[arg-type]
        found[ranks[0]] = all_ranks.compared(told, mine, others)

    return work


def test_both_machines_name_the_late_rank_of_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_ranks, "LOOK_S", 0.01)
    store, found = NoteStore(), dict[int, RanksCompared | None]()
    threads = [
        threading.Thread(target=seen_by(store, ranks, hours, found))
        for ranks, hours in (([0, 1], 0), ([2, 3], 9))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    one, other = found[0], found[2]
    assert one is not None
    assert other is not None
    assert (one.straggler.rank, one.straggler.machine, one.straggler.pid) == (3, "node-2", None)
    assert (other.straggler.rank, other.straggler.machine, other.straggler.pid) == (3, None, 103)
    assert one.straggler.cause == other.straggler.cause == "forward"
    assert one.straggler.compared == other.straggler.compared == 4
    assert [(line.rank, line.pid, line.machine) for line in one.ranks] == [
        (0, 100, None),
        (1, 101, None),
        (2, None, "node-2"),
        (3, None, "node-2"),
    ]
    assert [line.slowest for line in one.ranks] == [False, False, False, True]
    assert all(len(text) <= 4096 for text in store.kept.values())


def test_all_ranks_together_show_those_of_other_machines() -> None:
    store, clock = NoteStore(), SharedClock()
    here = [rank(0), rank(1)]
    found = all_ranks.compared(here, timed([0, 1], 0), others_of(store, clock))
    assert found is not None
    told = [msgspec.structs.replace(each, ranks=found.ranks, straggler=found.straggler) for each in here]
    one = all_ranks.together(told)
    assert one.pid == 100
    assert str(ranks_words(one)).startswith("rank 3 on node-b is slowest: ")
    assert [line.rank for line in one.ranks or []] == [0, 1, 2, 3]
    lines = ranks_table(one.ranks or []).splitlines()
    assert lines[3].split()[:2] == ["2", "node-b"]
    assert lines[4].endswith("slowest")
    assert all_ranks.with_siblings(told[0], told[1:]).ranks == one.ranks


def others_of(store: NoteStore, clock: SharedClock) -> list[object]:
    """What a machine hears, while the other one does its part between two looks."""
    client, told = StoreClient(store), [rank(0), rank(1)]
    far, other = machine("node-a", clock), machine("node-b", SharedClock())
    theirs = [rank(2), rank(3)]
    clock.meanwhile = [
        lambda: other.meet(client, theirs, 0.0),  # type: ignore[arg-type]
        lambda: other.exchange(client, theirs, timed([2, 3], 5)),  # type: ignore[arg-type]
    ]
    far.meet(client, told)  # type: ignore[arg-type]
    assert far.met == {2, 3}
    return list(far.exchange(client, told, timed([0, 1], 0)))  # type: ignore[arg-type]


def test_a_machine_alone_waits_some_seconds_and_looks_no_more_than_once_a_second_at_a_key() -> None:
    store, clock = NoteStore(), SharedClock()
    far = machine("node-a", clock)
    far.meet(StoreClient(store), [rank(0), rank(1)])  # type: ignore[arg-type]
    assert clock.now_s == far_ranks.MEET_S
    assert store.looks <= 3 * (far_ranks.MEET_S + 2)
    assert not far.met
    assert far.exchange(StoreClient(store), [rank(0), rank(1)], timed([0, 1], 0)) == []  # type: ignore[arg-type]
    assert clock.now_s == far_ranks.MEET_S


def test_a_job_of_one_machine_asks_the_store_nothing() -> None:
    store, clock = NoteStore(), SharedClock()
    machine("node-a", clock, 0).meet(StoreClient(store), [rank(0), rank(1)])  # type: ignore[arg-type]
    machine("node-a", clock).meet(StoreClient(store), [rank(0, 2), rank(1, 2)])  # type: ignore[arg-type]
    assert (store.kept, store.looks, clock.now_s) == ({}, 0, 0.0)


@pytest.mark.parametrize("nonsense", ["", "x", "{}", "0" * 4000, "\x00", "steps of mine"])
def test_who_tells_nonsense_is_left_out_and_not_waited_for(nonsense: str) -> None:
    store, clock = NoteStore(), SharedClock()
    client, told = StoreClient(store), [rank(0), rank(1)]
    far, other = machine("node-a", clock), machine("node-b", SharedClock())
    clock.meanwhile = [lambda: other.meet(client, [rank(2), rank(3)], 0.0)]  # type: ignore[arg-type]
    far.meet(client, told)  # type: ignore[arg-type]
    assert far.round is not None
    for number in (2, 3):
        store.kept[f"steps/{number}"] = f"{far.round.name} {nonsense}"
    before_s = clock.now_s
    others = far.exchange(client, told, timed([0, 1], 0))  # type: ignore[arg-type]
    assert others == []
    assert clock.now_s == before_s
    found = all_ranks.compared(told, timed([0, 1], 0), others)
    assert found is not None
    assert found.straggler.compared == 2


def test_a_machine_that_falls_silent_is_waited_for_some_seconds() -> None:
    store, clock = NoteStore(), SharedClock()
    client, told = StoreClient(store), [rank(0), rank(1)]
    far, other = machine("node-a", clock), machine("node-b", SharedClock())
    clock.meanwhile = [lambda: other.meet(client, [rank(2), rank(3)], 0.0)]  # type: ignore[arg-type]
    far.meet(client, told)  # type: ignore[arg-type]
    before_s = clock.now_s
    assert far.exchange(client, told, timed([0, 1], 0)) == []  # type: ignore[arg-type]
    assert clock.now_s - before_s == far_ranks.STEPS_S


def test_steps_that_match_none_of_ours_leave_the_ranks_of_this_machine_compared() -> None:
    store, clock = NoteStore(), SharedClock()
    others = others_of(store, clock)
    elsewhen = [
        msgspec.structs.replace(STEPS[each], counts=[1_000_000 + each for each in range(64)])
        for each in (0, 1)
    ]
    found = all_ranks.compared(
        [rank(0), rank(1)],
        dict(zip((100, 101), elsewhen, strict=True)),
        others,  # type: ignore[arg-type]
    )
    assert found is not None
    assert (found.straggler.compared, found.straggler.rank) == (2, None)


def test_a_store_that_is_lost_is_said() -> None:
    far = machine("node-a", SharedClock())
    with pytest.raises(AutobrrrError, match="store"):
        far.meet(StoreClient(NoteStore(), lost=True), [rank(0), rank(1)])  # type: ignore[arg-type]
    assert far.expected == 2


def test_what_a_crashed_session_left_is_written_over() -> None:
    store, clock = NoteStore(), SharedClock()
    store.kept = {"round": "open 0123456789abcdef", "ready/0": "left", "steps/0": "left"}
    far = machine("node-a", clock)
    far.meet(StoreClient(store), [rank(0), rank(1)])  # type: ignore[arg-type]
    assert store.kept["ready/0"] == "0123456789abcdef node-a"
    assert store.kept["round"] == "closed 0123456789abcdef"
    store.kept["round"] = "nonsense"
    machine("node-a", clock).meet(StoreClient(store), [rank(0), rank(1)])  # type: ignore[arg-type]
    assert RoundState.read(store.kept["round"]) is not None


def test_a_round_that_another_machine_opens_is_a_call_and_ones_own_is_none() -> None:
    store = NoteStore()
    client = StoreClient(store)
    assert called(client, None) is None  # type: ignore[arg-type]
    store.kept["round"] = "open 0123456789abcdef"
    found = called(client, None)  # type: ignore[arg-type]
    assert found == RoundState(name="0123456789abcdef", phase="open")
    assert called(client, RoundState(name="0123456789abcdef", phase="closed")) is None  # type: ignore[arg-type]
    store.kept["round"] = "closed fedcba9876543210"
    assert called(client, found) is None  # type: ignore[arg-type]
    assert store.looks == 4
