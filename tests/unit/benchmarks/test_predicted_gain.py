"""What is told of predicted gains: the best remedy by its trial, and how far predictions were off."""

import pytest

from benchmarks.verdict import predicted_gain


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
