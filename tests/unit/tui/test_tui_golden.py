"""Every mode and state as plain text, at two sizes, the first screen at four.

`REMAKE_GOLDEN=1` writes the files anew.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from autobrrr.records import Trend, Where
from autobrrr_tui.view_state import ScreenStanding, View, left_on
from support.screens import tui
from support.screens.tui_screen import text_after

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "tui"
SIZES = ((80, 24), (120, 40))
GUARD = Where(
    file="train.py", line=22, function="guard", share=0.39, error=0.12, phase="other", does="operators"
)
GROWS = Trend(
    what="step", kind="grows", per_step=18_500, first=11.6e6, last=24.8e6, where="train.py:26 compute"
)


def with_lines(view: View) -> View:
    return replace(view, snapshot=msgspec.structs.replace(view.snapshot, where=[GUARD], trends=[GROWS]))


def crowded(view: View) -> View:
    assert view.snapshot is not None
    assert view.snapshot.host is not None
    host = msgspec.structs.replace(view.snapshot.host, run_delay_share=0.36)
    return replace(view, snapshot=msgspec.structs.replace(view.snapshot, host=host))


SCREENS: dict[str, tuple[View, tuple[str, ...]]] = {
    "glance": (tui.judged(), ()),
    "glance_lines": (with_lines(tui.judged()), ()),
    "diagnosis_lines": (with_lines(tui.judged()), ("2",)),
    "glance_measuring": (tui.measuring(), ()),
    "glance_kept": (tui.kept(), ()),
    "glance_busy": (crowded(tui.kept()), ()),
    "glance_gpu": (tui.gpu(), ()),
    "glance_ranks": (tui.ranks(), ()),
    "glance_tuning": (tui.trying(), ()),
    "glance_readonly": (tui.judged(readonly=True), ()),
    "steps": (tui.judged(), ("1",)),
    "diagnosis": (tui.judged(), ("2",)),
    "diagnosis_ranks": (tui.ranks(), ("2",)),
    "tuning": (tui.trying(), ("3",)),
    "tuning_kept": (tui.kept(), ("3", "down")),
    "gaps": (tui.gpu(), ("4",)),
    "gaps_traced": (tui.judged(), ("4",)),
    "recipe": (tui.kept(), ("5",)),
    "log": (tui.kept(), ("6",)),
    "help": (tui.judged(), ("question_mark",)),
    "words": (tui.kept(), ("3", "question_mark", "question_mark")),
    "explained": (tui.judged(), ("2", "enter")),
    "asked": (tui.kept(), ("d",)),
    "opening": (View(pid=8091, why="the job is in a long step"), ()),
    "lost": (
        tui.judged(
            standing=ScreenStanding.LOST,
            why="the sidecar of process 8091 is gone",
            hint="attach again to go on",
        ),
        (),
    ),
    "ended": (tui.judged(standing=ScreenStanding.ENDED, why="process 8091 ended"), ()),
    "refused": (
        View(
            pid=8091, standing=ScreenStanding.REFUSED, why="process 8091 runs no Python", hint="autobrrr ls"
        ),
        (),
    ),
    "detached": (replace(left_on(tui.kept()), standing=ScreenStanding.ENDED, why="detached"), ()),
    "recorded": (
        replace(tui.kept(), standing=ScreenStanding.RECORDED, why="demo, the recording ends here"),
        (),
    ),
    "replayed": (
        replace(tui.trying(), standing=ScreenStanding.RECORDED, why="demo, playing", playing=True),
        (),
    ),
}
STANDINGS = ("opening", "lost", "ended", "refused", "detached", "recorded", "replayed")
FIRST = [name for name in SCREENS if name.startswith("glance") or name in STANDINGS]
ALL_SIZES = ((60, 16), *SIZES, (200, 60))


EVERY = [
    *((name, size) for name in SCREENS for size in SIZES),
    *((name, size) for name in FIRST for size in ((60, 16), (200, 60))),
    *((name, (200, 60)) for name in ("diagnosis_ranks", "tuning_kept")),
    *((name, (60, 16)) for name in ("steps", "tuning_kept")),
]
# A screen takes a tenth of a second: `make check` looks at each kind in one size, `make test` at all.
LOOKED_AT = [(name, SIZES[0]) for name in SCREENS if name not in STANDINGS]
AFTERWARDS = [pytest.param(*each, marks=pytest.mark.integration) for each in EVERY if each not in LOOKED_AT]


def golden(name: str, size: tuple[int, int]) -> Path:
    return GOLDEN / f"{name}-{size[0]}x{size[1]}.txt"


@pytest.mark.parametrize(
    ("name", "size"),
    [*LOOKED_AT, *AFTERWARDS],
    ids=lambda each: each if isinstance(each, str) else f"{each[0]}x{each[1]}",
)
def test_a_screen_looks_as_it_did(name: str, size: tuple[int, int]) -> None:
    view, keys = SCREENS[name]
    shown = text_after(view, *keys, size=size) + "\n"
    file = golden(name, size)
    if os.environ.get("REMAKE_GOLDEN"):
        file.write_text(shown)
    assert shown == file.read_text()


@pytest.mark.parametrize("name", [name for name in SCREENS if name.startswith("glance")])
def test_the_first_screen_has_one_line_that_names_the_regime(name: str) -> None:
    lines = [line.strip() for line in golden(name, (80, 24)).read_text().splitlines()]
    assert lines.count(f"regime: {SCREENS[name][0].regime}") == 1
    assert sum(line.startswith("regime:") for line in lines) == 1


@pytest.mark.parametrize("size", ALL_SIZES, ids=str)
@pytest.mark.parametrize("name", FIRST)
def test_every_state_and_size_answers_the_six_questions(name: str, size: tuple[int, int]) -> None:
    view, shown = SCREENS[name][0], golden(name, size).read_text()
    starts = [line.split(maxsplit=1) for line in shown.splitlines()]
    labels = [words[0] for words in starts if len(words) > 1]
    assert [each for each in labels if each in ("now", "next", "safe")] == ["now", "next", "safe"]
    if view.snapshot is None:
        return
    assert " gain " in shown or " GAIN " in shown
    if view.snapshot.limit != "unknown":
        assert f"Limited by {view.snapshot.limit}: " in shown
        assert f" {view.snapshot.limit_confidence} confidence" in shown
