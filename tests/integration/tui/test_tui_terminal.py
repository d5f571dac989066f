"""The terminal UI on a real terminal, against a real training job: what a person would see and do."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.screens.tui_terminal import Terminal
from support.training import TrainingJob, autobrrr, environment, sidecars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

StartJob = Callable[..., TrainingJob]
Open = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*words: str, **more: object) -> Terminal:
        env = {**environment(tmp_path), "PWD": str(tmp_path)}
        opened.append(Terminal(*words, env=env, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def regime(screen: Terminal) -> str:
    """The word on the first screen's line."""
    found = [match for line in screen.lines if (match := re.fullmatch(r"\s*regime: (\w+)", line))]
    return found[0].group(1) if len(found) == 1 else ""


def test_a_person_looks_around_leaves_comes_back_and_detaches(
    job: StartJob, terminal: Open, tmp_path: Path
) -> None:
    target = job("plain", "--busy")
    screen = terminal("attach", str(target.pid))
    screen.until(lambda s: regime(s) == "measuring")
    screen.until(lambda s: "median" in s.text and "phases" in s.text and "cost" in s.text)
    for key, word in (("1", "median step of each second"), ("2", "shares"), ("3", "optimizer.fused")):
        screen.press(key)
        screen.until(lambda s, word=word: word in s.text)
    screen.resize(60, 16)
    screen.press("0")
    screen.until(lambda s: regime(s) != "" and "[0 Glance]" in s.text)
    screen.press("q")
    assert screen.code() == 0
    assert f"next: autobrrr detach {target.pid}" in screen.text.replace("\n", "")
    assert target.alive()

    again = terminal("attach", str(target.pid), columns=120, lines=40)
    again.until(lambda s: regime(s) != "" and "median" in s.text)
    again.press("3")
    again.until(lambda s: "optimizer.fused" in s.text)
    again.press("d")
    again.until(lambda s: "the session is over: detached" in s.text)
    again.press("q")
    assert again.code() == 0
    assert "Traceback" not in again.text
    assert not sidecars(tmp_path)
    assert target.alive()


def test_a_remedy_goes_on_and_off_by_keys(job: StartJob, terminal: Open, tmp_path: Path) -> None:
    target = job("plain")
    assert autobrrr(tmp_path, "attach", str(target.pid), "--for", "1s", "--json", "--no-probe").code == 0
    screen = terminal("attach", str(target.pid), columns=100)
    screen.press("3")
    screen.until(lambda s: "optimizer.fused" in s.text)
    screen.choose("optimizer.fused")
    screen.press("a")
    screen.until(lambda s: "optimizer.fused is on" in s.text)
    screen.until(lambda s: any(re.match(r"> optimizer\.fused\s+on\b", line) for line in s.lines))
    screen.press("5")
    screen.until(lambda s: '"optimizer.fused" = true' in s.text)
    screen.press("u")
    screen.until(lambda s: "optimizer.fused is off" in s.text)
    screen.until(lambda s: "no remedy is on" in s.text)
    screen.press("q")
    assert screen.code() == 0
    assert autobrrr(tmp_path, "detach", str(target.pid)).code == 0


def test_a_sidecar_that_is_killed_and_a_job_that_is_killed_leave_a_clear_screen(
    job: StartJob, terminal: Open, tmp_path: Path
) -> None:
    target = job("plain")
    screen = terminal("attach", str(target.pid), "--no-probe")
    screen.until(lambda s: "median" in s.text)
    for pid in sidecars(tmp_path):
        os.kill(pid, signal.SIGKILL)
    screen.until(lambda s: "the sidecar of process" in s.text)
    assert target.alive()
    assert autobrrr(tmp_path, "attach", str(target.pid), "--for", "1s", "--json", "--no-probe").code == 0
    screen.until(lambda s: "waiting for a new session" not in s.text and "median" in s.text)
    target.kill()
    screen.until(lambda s: "the session is over" in s.text)
    screen.press("q")
    assert screen.code() in (0, 4)
    assert "Traceback" not in screen.text


def test_the_shipped_session_plays_without_a_job(terminal: Open) -> None:
    screen = terminal("report", "demo", "--tui")
    screen.until(lambda s: "Limited by host" in s.text and "recorded session" in s.text)
    screen.press("t")
    screen.until(lambda s: "no job to tune" in s.text)
    screen.press("q")
    assert screen.code() == 0


def test_top_lists_jobs_and_goes_into_one(job: StartJob, terminal: Open, tmp_path: Path) -> None:
    target = job("plain")
    screen = terminal("top", "--readonly", columns=120)
    screen.until(lambda s: str(target.pid) in s.text)
    screen.choose(str(target.pid))
    screen.press("\r")
    screen.until(lambda s: "READ-ONLY" in s.text and "median" in s.text)
    screen.press("t")
    screen.until(lambda s: "read-only: tune would touch the job" in s.text)
    screen.press("q")
    assert screen.code() == 0
    assert autobrrr(tmp_path, "detach", str(target.pid)).code == 0
