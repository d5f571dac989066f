"""What the sessions of one job's ranks say, put together: for `diagnose`, `attach`, `ls` and the screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from autobrrr.client import all_ranks, each_rank
from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.records import Diagnosis, LateRank, Limit, RankLine, RankTimes
from autobrrr.report.page_text import parts_text
from autobrrr.report.pages.diagnosis_parts import ranks_table, ranks_words
from autobrrr.report.text.verdict_text import live_line, verdict_text
from support.screens import tui
from support.sessions.client import PlayedClient

MS = 1_000_000


def rank(number: int, waits_ms: float | None = None, *, size: int = 2, step_ms: float = 40.0) -> Diagnosis:
    """The session of one rank; its collectives were timed where it waits."""
    times = None
    if waits_ms is not None:
        times = RankTimes(
            steps=8,
            step_ns=int(step_ms * MS),
            waits_ns=int(waits_ms * MS),
            own_ns=int((step_ms - waits_ms) * MS),
            error_ns=10_000,
        )
    found = tui.snapshot(pid=100 + number, job=tui.job(rank=number, world_size=size))
    seen = [one for one in found.evidence if one.says != "overhead"]
    return msgspec.structs.replace(found, collectives=times, regime="communication", evidence=seen)


class FakeClient(PlayedClient):
    def __init__(self, found: Diagnosis) -> None:
        self.found = found

    def snapshot(self) -> Diagnosis:
        return self.found


def compared(*ranks: Diagnosis, late: int | None = 1) -> list[Diagnosis]:
    """The same ranks, after a comparison in which this one was late."""
    straggler = LateRank(
        rank=late,
        pid=None if late is None else 100 + late,
        why="alike" if late is None else None,
        cause=None if late is None else "backward",
        costs_ns=int(12.3 * MS),
        step_ns=40 * MS,
        compared=len(ranks),
        world_size=ranks[0].job.world_size if ranks[0].job else None,
    )
    lines = [RankLine(rank=one.pid - 100, pid=one.pid, slowest=one.pid - 100 == late) for one in ranks]
    return [msgspec.structs.replace(one, ranks=lines, straggler=straggler) for one in ranks]


def test_a_diagnosis_says_for_whom_the_others_wait() -> None:
    own, other = compared(rank(0, 12.8), rank(1, 0.5))
    found = all_ranks.with_siblings(own, [other])
    assert (found.pid, found.straggler.rank) == (100, 1)
    assert [(one.rank, one.slowest) for one in found.ranks or []] == [(0, False), (1, True)]
    said = "rank 1 is slowest: the others wait 12.3 ms of a mean 40.0 ms step for it; its backward takes"
    assert said in (ranks_words(found) or "")
    assert said in verdict_text(found)
    assert "slowest: rank 1" in live_line(found)


def test_even_ranks_are_compared_and_none_is_marked() -> None:
    own, other = compared(rank(0, 1.0), rank(1, 1.1), late=None)
    found = all_ranks.with_siblings(own, [other])
    assert [one.slowest for one in found.ranks or []] == [False, False]
    assert "none is slower than the others" in str(ranks_words(found))
    assert "slowest" not in live_line(found)


def test_one_rank_with_a_session_is_not_compared_and_the_way_to_know_is_said() -> None:
    found = all_ranks.with_siblings(rank(0, 12.0), [])
    assert found.straggler is None
    assert [one.slowest for one in found.ranks or []] == [None]
    assert "diagnose LAUNCHER" in str(ranks_words(found))
    assert len(verdict_text(found).splitlines()) <= 10


def test_waits_of_ranks_that_were_timed_one_after_the_other_name_nobody() -> None:
    found = all_ranks.with_siblings(rank(0, 12.0), [rank(1, 0.5)])
    assert found.straggler is None
    assert [one.slowest for one in found.ranks or []] == [None, None]
    assert "were not compared" in str(ranks_words(found))


def test_a_job_of_one_rank_says_nothing_of_ranks() -> None:
    alone = tui.snapshot()
    assert all_ranks.with_siblings(alone, [rank(1, 1.0)]) == alone
    assert ranks_words(alone) is None


def test_all_ranks_together_have_the_slowest_on_top_and_name_the_missing() -> None:
    gone = RankLine(rank=1, pid=101, why="process 101 is stopped")
    found = all_ranks.together(compared(rank(2, 0.4, size=3), rank(0, 15.0, size=3), late=2), [gone])
    assert (found.pid, found.straggler and found.straggler.compared) == (102, 2)
    assert [(one.rank, one.slowest) for one in found.ranks or []] == [(0, False), (1, None), (2, True)]
    table = parts_text(ranks_table(found.ranks or [])).splitlines()
    assert table[0].split() == ["rank", "pid", "regime", "step", "own", "work", "waits", "cause"]
    assert table[1].split() == ["0", "100", "communication", "4.20", "ms", "25.0", "ms", "15.0", "ms"]
    assert table[2].endswith("process 101 is stopped")
    assert table[3].endswith("slowest")


def test_a_rank_that_waits_is_not_on_top_where_another_works() -> None:
    waits, works = (
        msgspec.structs.replace(rank(number), limit=limit)
        for number, limit in enumerate(("communication", "unknown"))
    )
    assert all_ranks.together([waits, works]).limit == "unknown"
    assert all_ranks.together([waits, msgspec.structs.replace(works, limit="communication")]).pid == 100
    assert all_ranks.together(compared(waits, works, late=0)).pid == 100


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        (("communication", "communication", "input", "communication"), "loader"),
        (("communication", "communication", "kernels", "communication"), "kernels"),
        (("communication", "communication", "unknown", "communication"), None),
        (("communication", "host", "host", "communication"), None),
        (("communication", "communication", "communication", "communication"), None),
    ],
)
def test_on_devices_the_one_rank_that_is_not_limited_by_communication_is_the_late_one(
    limits: tuple[Limit, ...], cause: str | None
) -> None:
    told = LateRank(rank=None, pid=None, why="on_device", compared=4, world_size=4)
    lines = [RankLine(rank=number, pid=100 + number) for number in range(4)]
    found = [
        msgspec.structs.replace(rank(number, size=4), limit=limit, straggler=told, ranks=lines)
        for number, limit in enumerate(limits)
    ]
    together = all_ranks.together(found)
    late = together.straggler
    assert late is not None
    assert all_ranks.with_siblings(found[0], found[1:]).straggler == late
    if cause is None:
        assert late == told
    else:
        assert (late.rank, late.pid, late.why, late.cause) == (2, 102, None, cause)
        assert together.pid == 102
        assert [line.slowest for line in together.ranks or ()] == [False, False, True, False]
        assert "rank 2 is slowest: the others wait for it in collectives" in str(ranks_words(together))
    assert all_ranks.together(found[:3], [RankLine(rank=3, pid=103, why="gone")]).straggler == told


def test_every_session_is_asked_and_those_that_fail_are_left_out() -> None:
    clients = {100: FakeClient(rank(0)), 102: FakeClient(rank(2))}

    def join(pid: int) -> Client | None:
        if pid == 101:
            raise TargetGone("process 101 ended")
        return clients.get(pid)  # type: ignore[return-value]

    assert [one.pid for one in each_rank.ask([102, 101, 103, 100], joiner=join)] == [100, 102]
    assert all(each.closed for each in clients.values())


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_session_that_does_not_answer_holds_nobody_up(stuck: threading.Event) -> None:
    def join(pid: int) -> Client | None:
        if pid == 100:
            stuck.wait(30)
            raise AutobrrrError("too late")
        return FakeClient(rank(1))  # type: ignore[return-value]

    began_s = time.monotonic()
    assert [one.pid for one in each_rank.ask([100, 101], 0.1, join)] == [101]
    assert time.monotonic() - began_s < 20
    stuck.set()
