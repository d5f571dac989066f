"""Ranks of two machines, whose clocks are hours apart, and what stands in a store that anybody writes to."""

from __future__ import annotations

import base64
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.diagnosis.ranks.late_rank import TimedRank, late_rank, longer_phases
from autobrrr.diagnosis.ranks.rank_summary import MOST_BYTES, packed, unpacked
from autobrrr.records import CollectiveWaits, HostSample, LateRank
from autobrrr.records.rank_records import straggler_words
from support.judged.rank_steps import MS, RankModel, job

COLUMNS = (
    "step_ns",
    "exposed_ns",
    "end_ns",
    "delay_ns",
    "garbage_ns",
    "samples",
    "tokens",
    "reduced",
    "counts",
)
HOURS_NS = 3_600_000_000_000


def timed(models: list[RankModel], steps: int = 200, seed: int = 0) -> list[TimedRank]:
    """Ranks that begin 7 collectives a step, but for every fifth step, which begins none."""
    counts = [100 + 7 * (number - number // 5) for number in range(steps)]
    return [
        TimedRank(rank=rank, pid=100 + rank, timed=msgspec.structs.replace(each, counts=counts), device="cpu")
        for rank, each in enumerate(job(models, steps, seed))
    ]


def through_the_store(rank: TimedRank, machine: str = "node-b", clock_ns: int = 0) -> TimedRank:
    """The rank as another machine sees it, whose clock is so much behind."""
    ends = [end + clock_ns for end in rank.timed.end_ns]
    there = msgspec.structs.replace(rank.timed, end_ns=ends)
    text = packed(
        TimedRank(rank=rank.rank, pid=rank.pid, timed=there, host=rank.host, device=rank.device), machine
    )
    assert text is not None
    assert len(text.encode()) <= MOST_BYTES
    return unpacked(text)


def named(ranks: list[TimedRank], world_size: int = 4) -> LateRank:
    found = late_rank(ranks, world_size)
    assert found is not None
    return found


@pytest.mark.parametrize("hours", [-7, 0, 9])
@pytest.mark.parametrize("steps", [60, 400, 3000])
def test_a_late_rank_on_another_machine_is_named_whatever_its_clock_says(hours: int, steps: int) -> None:
    ranks = timed([*[RankModel()] * 3, RankModel(more_ms={"backward": 12.0})], steps)
    seen = [*ranks[:2], *(through_the_store(each, clock_ns=hours * HOURS_NS) for each in ranks[2:])]
    found = named(seen)
    assert (found.rank, found.cause, found.pid, found.machine) == (3, "backward", None, "node-b")
    assert (found.compared, found.world_size, found.why) == (4, 4, None)
    assert found.costs_ns == pytest.approx(12 * MS, rel=0.1)
    assert found.steps >= 40
    assert longer_phases([each.timed for each in seen], [each.machine for each in seen])[3] == "backward"
    said = straggler_words(found, lambda ns: f"{(ns or 0) / 1e6:.0f} ms")
    assert said.startswith("rank 3 on node-b is slowest: the others wait 12 ms")


def test_the_machine_of_the_late_rank_names_it_as_its_own() -> None:
    ranks = timed([*[RankModel()] * 3, RankModel(more_ms={"data_wait": 12.0})])
    found = named([*(through_the_store(each, "node-a", 3 * HOURS_NS) for each in ranks[:2]), *ranks[2:]])
    assert (found.rank, found.pid, found.machine, found.cause) == (3, 103, None, "loader")


def test_ranks_that_timed_other_moments_are_compared_by_the_steps_that_they_share() -> None:
    ranks = timed([RankModel(), RankModel(more_ms={"forward": 12.0})], 300)
    columns = {name: getattr(ranks[1].timed, name)[100:] for name in COLUMNS}
    own = {name: each[100:] for name, each in ranks[1].timed.own_by_phase_ns.items()}
    later = msgspec.structs.replace(ranks[1].timed, own_by_phase_ns=own, **columns)
    other = through_the_store(TimedRank(rank=1, pid=101, timed=later), clock_ns=HOURS_NS)
    found = named([ranks[0], other], world_size=2)
    assert found.rank == 1
    assert found.steps < 200


def test_alike_ranks_of_two_machines_have_no_late_one_and_the_missing_are_counted() -> None:
    ranks = timed([RankModel()] * 4)
    found = named([ranks[0], through_the_store(ranks[2]), through_the_store(ranks[3])], world_size=8)
    assert found.rank is None
    assert found.why == "alike"
    assert straggler_words(found, str).endswith(" (3 of 8 ranks compared)")


def test_ranks_without_steps_in_common_name_nobody() -> None:
    first, second = timed([RankModel()] * 2)
    later = msgspec.structs.replace(second.timed, counts=[each + 1_000_000 for each in second.timed.counts])
    other = through_the_store(TimedRank(rank=1, pid=101, timed=later))
    assert named([first, other], 2).why == "too_few_steps"
    uncounted = msgspec.structs.replace(second.timed, counts=[0] * 200)
    assert named([first, through_the_store(TimedRank(rank=1, pid=1, timed=uncounted))], 2).why == (
        "too_few_steps"
    )


def test_a_rank_that_counts_nothing_has_nothing_to_tell() -> None:
    first = timed([RankModel()] * 2)[0]
    for nothing in (CollectiveWaits(status="abstained"), msgspec.structs.replace(first.timed, counts=[])):
        assert packed(TimedRank(rank=0, pid=100, timed=nothing), "node-a") is None
    assert packed(TimedRank(rank=None, pid=100, timed=first.timed), "node-a") is None


def test_the_cap_of_its_control_group_is_told_to_other_machines() -> None:
    host = HostSample(
        t_ns=5,
        cpu_share=None,
        rss_bytes=None,
        threads=None,
        run_delay_share=None,
        steal_share=None,
        children_cpu_share=None,
        throttled_share=0.5,
        foreign_cores=1.0,
    )
    capped = RankModel(more_ms={"forward": 5.0, "backward": 7.0}, delay_ms=11.0)
    ranks = timed([RankModel(), capped])
    other = TimedRank(rank=1, pid=101, timed=ranks[1].timed, host=host)
    assert named([ranks[0], through_the_store(other)], 2).cause == "cpu_cap"


def as_stands(**figures: object) -> str:
    """A text as ours, some of whose fields are others."""
    text = packed(timed([RankModel()] * 2, 20)[0], "node-b")
    assert text is not None
    found = {**msgspec.json.decode(zlib.decompress(base64.b85decode(text))), **figures}
    return base64.b85encode(zlib.compress(msgspec.json.encode(found))).decode()


@pytest.mark.parametrize(
    "figures",
    [
        {"step": []},
        {"step": [1, 2]},
        {"step": [0] * 20},
        {"step": [1 << 60] * 20},
        {"counts": [-1] * 20},
        {"unit_ns": 0},
        {"rank": -1},
        {"rank": "3"},
        {"version": 2},
        {"own": {"forward": [1]}},
        {"own": []},
        {"machine": 7},
    ],
)
def test_figures_that_no_rank_has_are_refused(figures: dict[str, object]) -> None:
    assert unpacked(as_stands()).rank == 0
    with pytest.raises(ValueError, match="no steps of a rank"):
        unpacked(as_stands(**figures))


def test_a_text_that_unpacks_to_too_much_is_refused() -> None:
    with pytest.raises(ValueError, match="no steps of a rank"):
        unpacked(base64.b85encode(zlib.compress(b"[" * (1 << 24), 9)).decode())


def test_the_name_of_a_machine_is_made_readable() -> None:
    found = unpacked(as_stands(machine="\x1b[31mred" + "x" * 500))
    assert found.machine is not None
    assert "\x1b" not in found.machine
    assert len(found.machine) < 100


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: base64.b85encode(raw).decode()))
def test_nonsense_is_refused_and_raises_nothing_else(text: str) -> None:
    with pytest.raises(ValueError):
        unpacked(text)
