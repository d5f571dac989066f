"""Whatever an agent says, its session ends with a true sentence, and nothing of the sidecar grows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from autobrrr import paths
from autobrrr.client import session_client
from autobrrr.errors import AutobrrrError
from autobrrr.readable import readable_lines
from autobrrr.records import Diagnosis
from autobrrr.sidecar.process.session_options import SessionOptions
from support.training import environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).resolve().parents[2] / "support" / "injected" / "hostile_agent.py"
MOST_RSS_BYTES = 400 << 20


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The pid of a process with an agent of the kind that the test names."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), request.param], stdout=subprocess.PIPE, env=environment(tmp_path)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        process.kill()


def sidecar(pid: int) -> psutil.Process:
    (found,) = (
        each
        for each in psutil.process_iter(["cmdline"])
        if {"autobrrr.sidecar", str(pid)} <= set(each.info["cmdline"] or ())
    )
    return found


def logged() -> str:
    (log,) = (paths.state_dir() / "sessions").glob("*.jsonl")
    return log.read_text()


def is_clean(text: str) -> bool:
    return readable_lines(text) == text


@pytest.mark.parametrize("agent", ["numbers", "negative"], indirect=True)
def test_facts_that_can_t_be_are_refused_in_one_sentence(agent: int) -> None:
    with pytest.raises(AutobrrrError, match="did not answer: facts: Expected") as caught:
        session_client.join_or_start(agent, SessionOptions())
    assert is_clean(caught.value.message)


@pytest.mark.parametrize("agent", ["steering", "refusing", "removed"], indirect=True)
def test_nothing_that_an_agent_says_steers_a_terminal(agent: int) -> None:
    with session_client.join_or_start(agent, SessionOptions()) as session:
        seen = [str(msgspec.json.encode(event), "utf-8") for event in session.events(for_s=4, every_s=0.1)]
        assert seen
        assert not [text for text in seen if not is_clean(text)]
        if session.ending is None:
            session.detach()
    for line in logged().split("\n")[:-1]:
        assert is_clean(json.dumps(json.loads(line), ensure_ascii=False))


@pytest.mark.parametrize("agent", ["large"], indirect=True)
def test_a_long_command_line_is_cut(agent: int) -> None:
    with session_client.join_or_start(agent, SessionOptions()) as session:
        job = session.snapshot().job
        assert job is not None
        assert len(job.script) <= 4096
        assert sum(map(len, job.argv)) <= 1 << 14
        session.detach()


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ("flood", "said more than 16 MiB at once"),
        ("not utf-8", "message can't be read"),
        ("deep", "message can't be read"),
    ],
    indirect=["agent"],
)
def test_an_agent_that_talks_nonsense_loses_its_link_and_the_reason_is_told(agent: int, why: str) -> None:
    with session_client.join_or_start(agent, SessionOptions()) as session:
        list(session.events(for_s=15, every_s=0.2))
        assert session.ending is not None
        assert session.ending.kind == "link lost"
        assert why in session.ending.why


@pytest.mark.parametrize("agent", ["fuzz", "descriptors", "active", "mute"], indirect=True)
def test_an_agent_that_goes_on_and_on_fills_nothing(agent: int) -> None:
    with session_client.join_or_start(agent, SessionOptions()) as session:
        process = sidecar(agent)
        list(session.events(for_s=2, every_s=0.2))
        descriptors = process.num_fds()
        told = [event for event in session.events(for_s=3, every_s=0.2) if isinstance(event, Diagnosis)]
        assert session.ending is None
        assert told
        assert process.num_fds() <= descriptors + 4
        assert process.num_threads() < 16
        assert process.memory_info().rss < MOST_RSS_BYTES
        subprocess.run(["kill", "-9", str(agent)], check=True)
        list(session.events(for_s=5))
        assert session.ending is not None
        assert session.ending.kind == "job ended"
    end_s = time.monotonic() + 10
    while process.is_running() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not process.is_running()
