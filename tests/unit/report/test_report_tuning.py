"""The table of a tuning says what was tried, and in one line each what does not fit."""

from __future__ import annotations

import msgspec

from autobrrr.records import Advice, Trial
from autobrrr.report.pages.tuning_parts import beyond, tuning_text
from support.screens.tui import tuned
from support.sessions.service import TRIAL

KEPT = msgspec.structs.replace(TRIAL, why="faster: +30 %")


def refused(kernel: str) -> Trial:
    return msgspec.structs.replace(
        KEPT,
        remedy="attention.sdpa",
        options={"kernel": kernel},
        outcome="refused",
        why=f"no module calls it with {kernel}",
    )


TUNING = msgspec.structs.replace(tuned(), trials=[KEPT, refused("flash"), refused("math")])


def test_what_there_was_no_time_for_is_one_line_for_each_reason() -> None:
    spent = "too little of the budget is left: 6 A/B pairs take 2.6 s"
    skipped = [
        msgspec.structs.replace(KEPT, remedy=name, outcome="skipped", why=why, predicted=predicted)
        for name, why, predicted in (
            ("gc.freeze", spent, None),
            ("attention.sdpa", spent, 1.08),
            ("compile.default", "it stops training for about 25 s", 1.2),
        )
    ]
    lines = tuning_text(msgspec.structs.replace(TUNING, trials=[KEPT, *skipped])).splitlines()
    assert [line for line in lines if "not tried" in line] == [
        f"  - not tried: gc.freeze, attention.sdpa (1.08x predicted): {spent}",
        "  - not tried: compile.default (1.20x predicted): it stops training for about 25 s",
    ]
    assert not any(line.strip().startswith(("gc.freeze", "attention.sdpa")) for line in lines)


def test_advice_that_no_running_step_can_try_comes_with_the_command_that_proves_it() -> None:
    def advice(remedy: str, reach: str, cls: str, expected: float | None) -> Advice:
        return Advice(remedy=remedy, why="", expected=expected, reach=reach, class_=cls)  # type: ignore[arg-type]

    tried = [msgspec.structs.replace(TRIAL, remedy="loader.prefetch_factor")]
    found = beyond(
        [
            advice("optimizer.fused", "live", "rounding", 1.2),
            advice("loader.workers", "next_epoch", "bitwise", 1.74),
            advice("batch.larger", "relaunch", "changes-training", None),
            advice("loader.prefetch_factor", "next_epoch", "stream", 1.1),
            advice("edit.no_sync", "edit", "rounding", 1.3),
            advice("edit.padding", "edit", "rounding", 1.27),
        ],
        msgspec.structs.replace(tuned(), trials=tried, speedup=1.25),
    )
    beginning = "advised, but not for a running job: "
    assert found == [
        f"{beginning}loader.workers (from the next epoch on, 1.74x predicted); to prove it: "
        "autobrrr tune --param loader.workers -- CMD",
        f"{beginning}batch.larger (from the start on); to prove it: "
        "autobrrr tune --param batch.larger --allow changes-training -- CMD",
        "more than what is kept: edit the script, 1.30x predicted (autobrrr explain edit.no_sync); "
        "then start again",
    ]
