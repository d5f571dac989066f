"""Long measurements are gathered in pieces: what has a row is not done again, and all rows count."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.attach import attach_stress, endurance
from benchmarks.verdict import predicted_gain


def target(name: str) -> attach_stress.Target:
    return attach_stress.Target(
        version="3.11", python="python", name=name, source="", go=attach_stress._by_call
    )


def entered(name: str, attaches: int, **more: Any) -> attach_stress.Row:
    row = {"attaches": attaches, "faults": [], "retried": 0, "pauses_ms": [], "latencies_ms": []}
    return {**target(name).named, **row, **more}


def test_the_next_process_is_of_the_target_that_was_entered_least() -> None:
    wanted = [target("spin"), target("join"), target("malloc")]
    rows = [entered("spin", 40), entered("join", 12), entered("malloc", 40)]
    following = attach_stress.fewest(wanted, rows, 50)
    assert following is not None
    assert (following.name, attach_stress.done(rows, following)) == ("join", 12)
    rows += [entered("spin", 10), entered("join", 38), entered("malloc", 10)]
    assert attach_stress.fewest(wanted, rows, 50) is None


def test_attaches_of_all_pieces_are_told_together() -> None:
    rows = [
        entered("spin", 2, pauses_ms=[0.1, 0.3], latencies_ms=[5.0, 6.0]),
        entered("join", 9, pauses_ms=[9.0] * 9),
        entered("spin", 1, pauses_ms=[0.2], latencies_ms=[7.0], faults=["refused"], retried=1),
    ]
    told = attach_stress.summary(target("spin"), rows)
    assert (told["attaches"], told["faults"], told["what"], told["retried"]) == (3, 1, ["refused"], 1)
    assert told["stop_ms"] == {"median": 0.2, "p99": 0.3, "max": 0.3}
    assert told["latency_ms"]["max"] == 7.0


def shard(part: str, times: int, **more: Any) -> endurance.Row:
    row = {"left_something": 0, "same_bits": True, "steps": 100, "grown_bytes": 4096}
    return {"part": part, "times": times, "stages": {"entering": times}, **row, **more}


def test_shards_of_another_part_count_for_nothing() -> None:
    rows = [shard("kills", 30), shard("kills", 50), shard("cycles", 500)]
    assert endurance.missing("kills", 100, rows) == 20
    assert endurance.missing("cycles", 400, rows) == 0


@pytest.mark.parametrize("odd", [{"left_something": 1}, {"same_bits": False}])
def test_one_shard_that_left_something_or_trained_otherwise_is_told(odd: dict[str, object]) -> None:
    rows = [
        shard("kills", 30),
        shard("kills", 2, stages={"inside": 2}, grown_bytes=9000, grown_later_bytes=70, **odd),
    ]
    told = endurance.summary("kills", rows)
    assert (told["times"], told["shards"], told["steps"], told["grown_bytes"]) == (32, 2, 200, 9000)
    assert told["grown_later_bytes"] == 70
    assert told["stages"] == {"entering": 30, "inside": 2}
    assert told["left_something"] == odd.get("left_something", 0)
    assert told["same_bits"] == odd.get("same_bits", True)


def trial(
    remedy: str, achieved: float | None, low: float = 0.9, predicted: float | None = 1.0
) -> dict[str, object]:
    interval = None if achieved is None else [low, 2 * achieved]
    return {"remedy": remedy, "achieved": achieved, "interval": interval, "predicted": predicted}


def test_the_best_proven_remedy_is_looked_up_among_those_that_were_tried() -> None:
    advice = ["compile.default", "optimizer.fused", "host.malloc"]
    fused, malloc = trial("optimizer.fused", 1.2, 1.1), trial("host.malloc", 1.5, 1.3)
    rows = [
        {"advice": advice, "trials": [trial("compile.default", None), fused, trial("host.malloc", 1.9)]},
        {"advice": advice, "trials": [fused, malloc]},
        {"advice": advice, "trials": [trial("gc.freeze", 1.3, 1.2), fused, malloc]},
        {"advice": advice[:2], "trials": [fused, malloc]},
        {"advice": advice, "trials": [trial("optimizer.fused", 1.2, 0.99)]},
    ]
    assert [predicted_gain.stands(row) for row in rows] == [1, 2, 2, 2, None]
    told = predicted_gain.summary(rows)
    assert (told["jobs"], told["pairs"], told["with_a_best"]) == (5, 10, 4)
    assert (told["first"], told["among_three"]) == (1, 4)


def test_a_gain_predicted_too_high_is_as_far_off_as_one_too_low() -> None:
    rows = [{"advice": [], "trials": [trial("a", 1.5, predicted=3.0), trial("b", 3.0, predicted=1.5)]}]
    told = predicted_gain.summary(rows)
    assert told["median_error"] == pytest.approx(1.0)
    assert told["p90_error"] == pytest.approx(1.0)
