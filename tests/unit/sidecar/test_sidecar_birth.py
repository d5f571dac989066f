"""A sidecar tells its starter how it went, and notices when nobody waits for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.sidecar import daemon
from autobrrr.sidecar.__main__ import announce
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.process.spawn import environment, error_from, start
from autobrrr.sidecar.sockets.session_socket import find_target
from autobrrr.sidecar.sockets.socket_frames import failure


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def test_an_error_arrives_as_it_was_raised(pipe: tuple[int, int]) -> None:
    announce(pipe[1], **failure(TargetGone("there is no process 7", "look again")))
    error = error_from(json.loads(os.read(pipe[0], 1 << 12))["error"])
    assert (error.message, error.hint, error.exit_code) == ("there is no process 7", "look again", 4)


def test_a_starter_that_has_gone_is_noticed(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(BrokenPipeError):
        announce(pipe[1], wait="still waiting")


def test_a_sidecar_that_ends_before_it_was_ready_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")  # ends at once, and says nothing
    with pytest.raises(AutobrrrError, match="ended before it was ready"):
        start(find_target(os.getpid()), SessionOptions(), print)


def test_a_signal_while_it_attaches_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def enter(pid: int, *, on_wait: Callable[[str], None], **more: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        on_wait("the job does not come to a safe place")

    endpoint = SimpleNamespace(target=find_target(os.getpid()), folder=tmp_path)
    monkeypatch.setattr(daemon, "enter", enter)
    said: list[str] = []
    before = {number: signal.getsignal(number) for number in daemon.SIGNALS}
    try:
        with pytest.raises(AutobrrrError, match="interrupted while attaching; nothing was changed"):
            daemon.serve(endpoint, SessionOptions(), wait=said.append, ready=lambda: None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert said == []


def test_the_sidecar_finds_the_package_and_starts_no_thread_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "relative:/absolute")
    env = environment()
    first, *rest = env["PYTHONPATH"].split(":")
    assert (Path(first) / "autobrrr" / "sidecar").is_dir()
    assert rest == [os.path.abspath("relative"), "/absolute"]
    assert env["OPENBLAS_NUM_THREADS"] == "1"


def test_what_must_start_fast_or_fork_imports_nothing_heavy() -> None:
    modules = "autobrrr.client.session_client, autobrrr.sidecar.__main__, autobrrr.cli.verbs.diagnose"
    heavy = "{'numpy', 'torch', 'psutil', 'optuna', 'textual'}"
    code = f"import sys, {modules}; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
