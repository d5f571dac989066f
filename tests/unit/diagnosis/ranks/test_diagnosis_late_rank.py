"""The late rank is named with its phase and cause; on quiet, noisy or unknown ranks none is."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.diagnosis.ranks.late_rank import TimedRank, _most_of_others, _others, late_rank, longer_phases
from autobrrr.diagnosis.ranks.rank_steps import same_steps
from autobrrr.diagnosis.ranks.rank_times import rank_times
from autobrrr.records import CollectiveWaits, LateRank
from support.judged.diagnosis import machine
from support.judged.rank_steps import MS, RankModel, job


def judged(*models: RankModel, steps: int = 64, seed: int = 0, world_size: int | None = None) -> LateRank:
    timed = job(models, steps, seed)
    ranks = [
        TimedRank(rank=rank, pid=100 + rank, timed=each, host=model.host)
        for rank, (each, model) in enumerate(zip(timed, models, strict=True))
    ]
    found = late_rank(ranks, len(models) if world_size is None else world_size)
    assert found is not None
    return found


def named(found: LateRank) -> tuple[int | None, str | None, str | None, str | None]:
    return found.rank, found.cause, found.phase, found.when


@pytest.mark.parametrize(
    ("phase", "cause"),
    [
        ("data_wait", "loader"),
        ("forward", "forward"),
        ("backward", "backward"),
        ("optimizer", "optimizer"),
        ("other", "own_code"),
    ],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_phase_that_takes_one_rank_longer_is_its_cause(phase: str, cause: str, ranks: int) -> None:
    models = [RankModel() for _ in range(ranks)]
    models[1] = RankModel(more_ms={phase: 12.0})
    found = judged(*models)
    assert named(found) == (1, cause, phase, "always")
    assert found.costs_ns == pytest.approx(12 * MS, rel=0.1)
    assert (found.steps, found.compared, found.pid) == (64, ranks, 101)
    phases = longer_phases(job(models, 64))
    assert phases == [phase if rank == 1 else None for rank in range(ranks)]


def test_alike_ranks_have_no_late_one() -> None:
    for seed in range(20):
        found = judged(RankModel(), RankModel(), seed=seed)
        assert (found.rank, found.cause, found.why) == (None, None, "alike")


def test_a_rank_that_is_hardly_later_than_the_next_is_not_named() -> None:
    assert judged(RankModel(), RankModel(more_ms={"forward": 1.5})).rank is None


def test_a_rank_that_was_late_in_one_half_of_the_time_only_is_not_named() -> None:
    found = judged(RankModel(), RankModel(more_ms={"forward": 20.0}, until=30))
    assert (found.rank, found.why) == (None, "unsettled")


def test_a_rank_that_is_slower_in_all_of_its_phases_is_named_without_a_cause() -> None:
    slow = RankModel(more_ms={"forward": 5.0, "backward": 7.0, "optimizer": 3.0})
    assert named(judged(RankModel(), slow)) == (1, None, None, "always")


def test_garbage_that_is_collected_in_a_rank_is_its_cause() -> None:
    found = judged(RankModel(), RankModel(more_ms={"other": 12.0}, garbage_ms=11.0))
    assert named(found) == (1, "garbage_collection", "other", "always")


def test_a_thread_that_waits_for_a_cpu_is_the_cause_wherever_it_does() -> None:
    spread = {"forward": 5.0, "backward": 7.0}
    assert named(judged(RankModel(), RankModel(more_ms=spread, delay_ms=11.0)))[:2] == (1, "cpu_taken")


def test_the_cap_of_a_control_group_and_a_rank_that_nobody_disturbs_are_told_apart() -> None:
    spread = {"forward": 5.0, "backward": 7.0}
    (capped, *_), (alone, *_) = machine(throttled_share=0.5, foreign_cores=1.0), machine(foreign_cores=0.0)
    found = judged(RankModel(), RankModel(more_ms=spread, delay_ms=11.0, host=capped))
    assert found.cause == "cpu_cap"
    found = judged(RankModel(), RankModel(more_ms=spread, delay_ms=11.0, host=alone))
    assert (found.rank, found.cause) == (1, None)


def test_a_rank_with_more_data_is_late_for_that() -> None:
    more = RankModel(more_ms={"forward": 4.0, "backward": 8.0}, tokens=900)
    found = judged(RankModel(tokens=512), more)
    assert (found.rank, found.cause) == (1, "uneven_data")
    found = judged(RankModel(tokens=512), msgspec.structs.replace(more, tokens=520))
    assert (found.rank, found.cause) == (1, None)  # so little more does not explain it


def test_ranks_that_are_late_in_turn_are_not_named_and_their_data_is() -> None:
    found = judged(RankModel(tokens=512, tokens_vary=True), RankModel(tokens=512, tokens_vary=True))
    assert (found.rank, found.why, found.cause) == (None, "in_turn", "uneven_data")
    found = judged(RankModel(own_varies=True), RankModel(own_varies=True))
    assert (found.rank, found.why, found.cause) == (None, "in_turn", None)


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize("factors", [(), (0.6, 1.2, 1.9, 2.5), (1.0, 3.0), (1.0, 1.0, 1.0, 4.0)])
def test_a_rank_with_more_of_the_long_batches_by_chance_is_not_late_now_and_then(
    factors: tuple[float, ...],
) -> None:
    model = RankModel(tokens=512, tokens_vary=True, factors=factors)
    for seed in range(40):
        found = judged(model, model, steps=80, seed=seed)
        assert found.rank is None, (seed, found)


def test_a_rank_that_is_late_now_and_then_is_told_from_one_that_always_is() -> None:
    found = judged(RankModel(), RankModel(more_ms={"other": 80.0}, every=10), steps=100)
    assert named(found) == (1, "own_code", "other", "now_and_then")
    assert found.one_in == pytest.approx(10.0)
    assert found.costs_ns == pytest.approx(8 * MS, rel=0.2)
    found = judged(RankModel(), RankModel(more_ms={"other": 80.0}, every=10, garbage_ms=80.0), steps=100)
    assert named(found) == (1, "garbage_collection", None, "now_and_then")


@pytest.mark.parametrize(
    "model",
    [
        RankModel(more_ms={"other": 80.0}, every=40),  # too few to be told from chance
        RankModel(more_ms={"other": 80.0}, every=10, delay_ms=80.0),  # others took its CPU now and then
    ],
)
def test_chance_is_not_blamed_on_a_rank(model: RankModel) -> None:
    assert judged(RankModel(), model, steps=100).rank is None


def test_what_all_ranks_do_now_and_then_is_nobody_s_fault() -> None:
    both = RankModel(more_ms={"other": 80.0}, every=10)
    assert judged(both, both, steps=100).rank is None
    assert judged(both, msgspec.structs.replace(both, offset=5), steps=100).rank is None


def test_collectives_that_all_wait_for_are_named_instead_of_a_rank() -> None:
    found = judged(RankModel(collectives_ms=15.0), RankModel(collectives_ms=15.0))
    assert (found.rank, found.why, found.cause) == (None, "collectives", "collectives")
    assert found.costs_ns == pytest.approx(15 * MS, rel=0.1)


def test_where_gradients_are_exchanged_several_times_a_step_that_is_said_and_no_rank_is_named() -> None:
    late = RankModel(more_ms={"data_wait": 12.0}, reduced=4)
    found = judged(RankModel(reduced=4), late)
    assert (found.rank, found.why, found.cause) == (None, "synced_backwards", "synced_backwards")
    assert found.costs_ns is None  # the waits of one backward in four are known
    once = msgspec.structs.replace(late, reduced=1)
    assert judged(RankModel(), once).rank == 1


def test_two_ranks_that_are_equally_late_are_not_told_apart() -> None:
    late = RankModel(more_ms={"forward": 12.0})
    found = judged(RankModel(), late, late, RankModel())
    assert (found.rank, found.why) == (None, "several")


def test_where_not_all_ranks_were_compared_one_that_waits_itself_is_not_named() -> None:
    late = RankModel(more_ms={"forward": 12.0})
    assert judged(RankModel(), late, world_size=4).rank == 1
    waiting = [msgspec.structs.replace(each, collectives_ms=10.0) for each in (RankModel(), late)]
    found = judged(*waiting, world_size=4)
    assert (found.rank, found.why) == (None, "incomplete")


def test_what_is_not_measured_apart_is_no_phase() -> None:
    timed = job([RankModel(), RankModel(more_ms={"optimizer": 12.0})], 64)
    lumped = []
    for each in timed:
        own = dict(each.own_by_phase_ns)
        update = own.pop("optimizer")
        own["other"] = [a + b for a, b in zip(own["other"], update, strict=True)]
        lumped.append(msgspec.structs.replace(each, own_by_phase_ns=own))
    ranks = [TimedRank(rank=rank, pid=rank, timed=each) for rank, each in enumerate(lumped)]
    found = late_rank(ranks, 2)
    assert found is not None
    assert named(found) == (1, None, None, "always")
    assert longer_phases(lumped) == [None, None]


def test_the_same_steps_are_found_where_ranks_began_to_time_them_apart() -> None:
    one, other = job([RankModel(), RankModel(more_ms={"optimizer": 12.0})], 64)
    cut = {name: column[9:] for name, column in msgspec.structs.asdict(other).items() if type(column) is list}
    own = {name: column[9:] for name, column in other.own_by_phase_ns.items()}
    later = msgspec.structs.replace(other, **cut, own_by_phase_ns=own)
    steps = same_steps([one, later])
    assert steps.step_ns.shape == (2, 55)
    np.testing.assert_array_equal(steps.step_ns[0], np.asarray(one.step_ns[9:], dtype=np.float64))


@pytest.mark.parametrize("change", ["far", "few", "ragged", "absurd", "abstained", "untimed"])
def test_steps_that_can_not_be_compared_name_nobody(change: str) -> None:
    one, other = job([RankModel(), RankModel(more_ms={"forward": 12.0})], 64)
    if change == "far":
        other = msgspec.structs.replace(other, end_ns=[end + 10**12 for end in other.end_ns])
    elif change == "few":
        one, other = job([RankModel(), RankModel(more_ms={"forward": 12.0})], 5)
    elif change == "ragged":
        other = msgspec.structs.replace(other, delay_ns=other.delay_ns[1:])
    elif change == "absurd":
        other = msgspec.structs.replace(other, step_ns=[10**400] * 64)
    elif change == "abstained":
        other = CollectiveWaits(status="abstained", why="busy")
    else:
        other = CollectiveWaits(status="ok", step_ns=[5] * 16, exposed_ns=[1] * 16, blocked_ns=[1] * 16)
    found = late_rank([TimedRank(rank=0, pid=0, timed=one), TimedRank(rank=1, pid=1, timed=other)], 2)
    assert (found.rank, found.why) == (None, "too_few_steps")
    assert longer_phases([one, other]) == [None, None]


@pytest.mark.parametrize(("device", "why"), [("cuda", "on_device"), ("cpu", "too_few_steps")])
def test_ranks_on_a_device_are_not_said_to_have_run_too_few_steps(device: str, why: str) -> None:
    untimed = CollectiveWaits(status="abstained", why="device")
    found = late_rank([TimedRank(rank=rank, pid=rank, timed=untimed, device=device) for rank in (0, 1)], 2)
    assert (found.rank, found.why) == (None, why)


def test_one_rank_alone_is_not_measured() -> None:
    (one,) = job([RankModel()], 64)
    assert late_rank([TimedRank(rank=0, pid=0, timed=one)], 2) is None


@given(
    st.lists(st.floats(0, 20), min_size=2, max_size=5),
    st.sampled_from(["data_wait", "forward", "backward", "optimizer", "other"]),
    st.integers(0, 99),
)
def test_whoever_is_named_works_longest(more: list[float], phase: str, seed: int) -> None:
    found = judged(*(RankModel(more_ms={phase: each}) for each in more), seed=seed)
    if found.rank is not None:
        assert more[found.rank] == max(more)
        assert found.phase == phase


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_each_rank_is_set_against_the_middle_and_the_most_of_the_others(ranks: int) -> None:
    values = np.round(np.random.default_rng(ranks).normal(size=(ranks, 200)) * 3)  # with ties
    others = [np.delete(values, who, axis=0) for who in range(ranks)]
    assert np.array_equal(_others(values), [np.median(each, axis=0) for each in others])
    assert np.array_equal(_most_of_others(values), [each.max(axis=0) for each in others])


def test_times_are_medians_of_the_timed_steps_and_say_how_sure_they_are() -> None:
    waits = CollectiveWaits(
        status="ok",
        step_ns=[100, 100, 102, 98, 100, 400],
        exposed_ns=[60, 62, 60, 58, 60, 360],
        blocked_ns=[0] * 6,
    )
    found = rank_times(waits)
    assert (found.steps, found.step_ns, found.waits_ns, found.own_ns) == (6, 100, 60, 40)
    assert 0 <= found.error_ns < 5


@pytest.mark.parametrize(
    "waits",
    [
        None,
        CollectiveWaits(status="abstained", why="busy"),
        CollectiveWaits(status="ok", step_ns=[1, 2, 3], exposed_ns=[1, 1, 1]),
        CollectiveWaits(status="ok", step_ns=[9, 9, 9, 9, 9], exposed_ns=[1]),
    ],
)
def test_without_enough_timed_steps_there_are_no_times(waits: CollectiveWaits | None) -> None:
    assert rank_times(waits) is None
