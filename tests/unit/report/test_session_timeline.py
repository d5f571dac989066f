"""The course of a session: steps a second, what was tried and what was on, on one clock."""

from __future__ import annotations

import msgspec

from autobrrr.records import Record
from autobrrr.records.events import entry_of
from autobrrr.records.wire_answers import ActivityLine, StepHistory
from autobrrr.report.log_lines import LogEntry
from autobrrr.report.past_session import SessionReader, SessionTimeline
from support.screens import tui

S, MS = 1_000_000_000, 1_000_000


def timeline(*entries: tuple[float, Record]) -> SessionTimeline:
    reader = SessionReader()
    for at_s, body in entries:
        reader.take(LogEntry(at_s, entry_of(body), body))
    return reader.timeline()


def test_a_history_is_laid_behind_its_moment_and_a_later_one_goes_on() -> None:
    found = timeline(
        (100.0, StepHistory(bucket_ns=S, median_ns=[9 * MS], longest_ns=[9 * MS])),
        (
            103.0,
            StepHistory(bucket_ns=S, median_ns=[4 * MS, None, 5 * MS], longest_ns=[6 * MS, None, 7 * MS]),
        ),
        (105.0, StepHistory(bucket_ns=S, median_ns=[3 * MS], longest_ns=[8 * MS])),
    )
    assert [(each.at_s, each.median_ns // MS) for each in found.seconds] == [(0, 9), (1, 4), (3, 5), (5, 3)]
    assert found.began_unix_s == 100.0
    assert found.length_s == 5.0


def test_a_trial_is_a_band_that_ends_where_it_was_written() -> None:
    trial = msgspec.structs.replace(tui.trial(), duration_ns=3 * S)
    found = timeline((10.0, tui.snapshot()), (15.0, trial))
    (band,) = [each for each in found.bands if each.kind == "trial"]
    assert (band.from_s, band.to_s, band.outcome) == (2.0, 5.0, "kept")


def test_a_remedy_is_on_from_where_it_was_kept_to_where_it_is_gone() -> None:
    on = tui.snapshot(active=["optimizer.fused"], state="judged")
    found = timeline(
        (0.0, tui.snapshot(active=[], state="judged")),
        (4.0, tui.snapshot(active=["optimizer.fused"], state="tuning")),  # a block: it is off again at once
        (8.0, tui.tuned()),
        (9.0, on),
        (20.0, on),
        (21.0, tui.snapshot(active=[], state="judged")),
    )
    bands = [(each.text, each.from_s, each.to_s) for each in found.bands if each.kind == "on"]
    assert bands == [("optimizer.fused", 8.0, 21.0)]


def switch(text: str, active: list[str] | None = None) -> ActivityLine:
    return ActivityLine(text=text, about="switch", active=active)


def stretches(found: SessionTimeline) -> list[tuple[str, float, float]]:
    return [(each.text, each.from_s, each.to_s) for each in found.bands if each.kind == "on"]


def test_each_block_of_a_tuning_is_a_stretch_and_what_was_kept_is_on_from_its_last_switch() -> None:
    tuning = tui.snapshot(active=[], state="tuning")
    found = timeline(
        (0.0, tuning),
        (1.0, switch("on", ["optimizer.fused"])),
        (2.0, switch("off", [])),
        (3.0, switch("on", ["optimizer.fused"])),
        (4.0, switch("on", ["optimizer.fused", "gc.freeze"])),
        (5.0, switch("off", ["optimizer.fused"])),
        (6.0, switch("off", [])),
        (7.0, switch("on", ["optimizer.fused"])),
        (8.0, tui.tuned()),
        (9.0, tui.snapshot(active=["optimizer.fused"], state="judged")),
        (20.0, tui.snapshot(active=["optimizer.fused"], state="judged")),
    )
    assert stretches(found) == [
        ("optimizer.fused", 1.0, 2.0),
        ("optimizer.fused", 3.0, 6.0),
        ("gc.freeze", 4.0, 5.0),
        ("optimizer.fused", 7.0, 20.0),
    ]
    assert not any(each.kind == "switch" for each in found.marks)  # the stretches show them
