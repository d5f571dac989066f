"""A sidecar tells its starter how it went, and notices when nobody waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.sidecar.__main__ import Announcement, StarterGone
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.process.spawn import environment, error_from, start
from autobrrr.sidecar.sockets.session_socket import find_target
from autobrrr.sidecar.sockets.socket_frames import failure


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def lines(reader: int) -> list[dict[str, object]]:
    with os.fdopen(reader) as said:
        return [json.loads(line) for line in said]


def test_the_starter_hears_what_is_waited_for_and_that_it_is_ready(pipe: tuple[int, int]) -> None:
    announcement = Announcement(pipe[1])
    announcement.wait("the main thread is in a system call")
    announcement.end(ready=True)
    announcement.end(served=True)  # the pipe is closed by now: nothing is said twice
    assert lines(pipe[0]) == [{"wait": "the main thread is in a system call"}, {"ready": True}]


def test_an_error_arrives_as_it_was_raised(pipe: tuple[int, int]) -> None:
    Announcement(pipe[1]).end(**failure(TargetGone("there is no process 7", "look again")))
    (said,) = lines(pipe[0])
    error = error_from(said["error"])
    assert (error.message, error.hint, error.exit_code) == ("there is no process 7", "look again", 4)


def test_a_starter_that_has_gone_is_noticed(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    announcement = Announcement(pipe[1])
    with pytest.raises(StarterGone):
        announcement.wait("still waiting")


def test_a_sidecar_that_ends_before_it_was_ready_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")  # ends at once, and says nothing
    with pytest.raises(AutobrrrError, match="ended before it was ready"):
        start(find_target(os.getpid()), SessionOptions(), print)


def test_the_sidecar_finds_the_package_and_starts_no_thread_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "relative:/absolute")
    env = environment()
    first, *rest = env["PYTHONPATH"].split(":")
    assert (Path(first) / "autobrrr" / "sidecar").is_dir()
    assert rest == [os.path.abspath("relative"), "/absolute"]
    assert env["OPENBLAS_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "module",
    ["autobrrr.client.session_client", "autobrrr.sidecar.__main__", "autobrrr.cli.verbs.diagnose"],
)
def test_what_must_start_fast_or_fork_imports_nothing_heavy(module: str) -> None:
    heavy = "{'numpy', 'torch', 'psutil', 'optuna', 'textual'}"
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
