"""What stands on standard error, and how a result looks on a terminal and in a pipe."""

from __future__ import annotations

import sys
from io import StringIO

import pyte
import pytest
from rich.cells import cell_len

from autobrrr.cli import printed
from autobrrr.cli.printed import Loudness, Narrator
from autobrrr.cli.verbs import tune
from autobrrr.records import TuneProgress
from autobrrr.report.text.verdict_text import verdict_text
from autobrrr.report.text_rows import hung
from support.judged.verdicts import SNAPSHOTS

COLUMNS, LINES = 60, 16


class Terminal(StringIO):
    """Takes what is written, and shows what a person would see of it."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        shown = pyte.Screen(COLUMNS, LINES)
        pyte.Stream(shown).feed(self.getvalue().replace("\n", "\r\n"))
        return [line.rstrip() for line in shown.display if line.strip()]


def looked_at(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in the place of both streams; pytest puts its own there when a fixture is through."""
    made = Terminal()
    for name, value in (("COLUMNS", str(COLUMNS)), ("LINES", str(LINES)), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(sys, "stdout", made)
    return made


def test_on_a_terminal_the_status_is_one_line_and_gone_before_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = looked_at(monkeypatch)
    narrator = Narrator()
    for replay in range(20):
        narrator.status(f"probing 2B, {replay} of 28, in a process of its own beside the job", 12.0)
    narrator.say("joined the existing session of process 7")
    (line, status) = terminal.screen
    assert line == "autobrrr: joined the existing session of process 7"
    assert "probing 2B, 19 of 28" in status
    assert "up to 12 s left" in status
    narrator.clear()
    assert terminal.screen == [line]


def test_in_a_pipe_a_stage_of_a_tuning_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ("a: compiling beside the job", "applying a: training pauses", "trying a: 1.1x", "trying a: 1.2x")
    for text in texts:
        tune._say_progress(TuneProgress(stage="trial", text=text, remedy="a"))
    printed.NARRATOR.clear()
    said = capsys.readouterr()
    assert [line.partition("] ")[2] for line in said.err.splitlines()] == list(texts[:3])
    assert said.out == ""


def test_quiet_says_nothing_and_verbose_says_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = looked_at(monkeypatch)
    narrator = Narrator()
    narrator.loudness = Loudness.QUIET
    narrator.say("a")
    narrator.status("b", 1.0)
    narrator.next_step("c")
    assert terminal.getvalue() == ""
    narrator.loudness = Loudness.VERBOSE
    narrator.status("tracing")
    narrator.status("probing")
    narrator.clear()
    assert terminal.screen == ["autobrrr: tracing", "autobrrr: probing"]


def test_on_a_terminal_it_is_coloured_and_hangs_below_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = looked_at(monkeypatch)
    printed.show("train.py (pid 7): regime: overhead, confidence high\n  remedy        " + "a word " * 12)
    assert "\x1b[" in terminal.getvalue()
    head, first, *more = terminal.screen
    assert head == "train.py (pid 7): regime: overhead, confidence high"
    assert {len(line) - len(line.lstrip()) for line in more} == {first.index("a word")}


@pytest.mark.parametrize("name", SNAPSHOTS)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_of_a_verdict_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = verdict_text(SNAPSHOTS[name])
    lines = [part for line in text.split("\n") for part in hung(line, width)]
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())
