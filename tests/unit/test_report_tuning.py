"""The table of a tuning says what was tried, and in one line each what does not fit."""

from __future__ import annotations

import msgspec

from autobrrr.records import Reverted, Trial, Tuning
from autobrrr.report.tuning import tuning_table

KEPT = Trial(
    remedy="optimizer.fused",
    options={},
    outcome="kept",
    why="faster: +30 %",
    class_="rounding",
    predicted=1.2,
    achieved=1.3,
    interval=[1.2, 1.4],
    blocks=8,
    steps=80,
    duration_ns=5,
)


def refused(kernel: str) -> Trial:
    return msgspec.structs.replace(
        KEPT,
        remedy="attention.sdpa",
        options={"kernel": kernel},
        outcome="refused",
        why=f"refused: no module calls it with {kernel}",
    )


TUNING = Tuning(
    objective="step_ns",
    baseline=2e6,
    best=1e6,
    speedup=1.3,
    interval=[1.25, 1.35],
    class_="rounding",
    kept=["optimizer.fused"],
    reverted=[],
    trials=[KEPT, refused("flash"), refused("math")],
    recipe=None,
)


def test_predicted_stands_beside_achieved() -> None:
    row = next(line for line in tuning_table(TUNING).splitlines() if line.startswith("optimizer.fused"))
    assert "1.20x" in row
    assert "1.30x" in row
    assert "1.20 to 1.40" in row


def test_what_does_not_fit_is_one_line_however_many_options_were_tried() -> None:
    lines = [line for line in tuning_table(TUNING).splitlines() if "attention.sdpa" in line]
    assert lines == ["does not fit here: attention.sdpa: no module calls it with flash"]


def test_what_the_guard_undid_is_said() -> None:
    undone = msgspec.structs.replace(
        TUNING, kept=[], guard_undid=[Reverted(remedy="optimizer.fused", why="slower by now")]
    )
    table = tuning_table(undone)
    assert "the guard undid optimizer.fused: slower by now" in table
    assert "nothing worth keeping was proven" in table
