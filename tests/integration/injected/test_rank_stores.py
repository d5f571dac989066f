"""The store of a real job from within an agent, and a log that real processes share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.injected.ranks import job_store
from autobrrr.injected.ranks.job_store import JobStore, of_job
from autobrrr.injected.ranks.shared_log import RegisterLost, SharedLog

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]

SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""
WRITER = """
import sys
from autobrrr.injected.ranks.shared_log import SharedLog
log = SharedLog.open(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    print(log.put(str(number), sys.argv[2]), flush=True)
"""
ENDING = """
import sys, threading, time
from torch.distributed import TCPStore
from autobrrr.injected.ranks.job_store import JobStore
ours = JobStore(lambda: TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, wait_for_workers=False))
ours.put("here", "yes")
def ask():
    while True:
        ours.get("here")
for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
threading.excepthook = lambda *_: None
time.sleep(0.1)
"""
LEAVING = """
import sys, threading, time
from torch.distributed import TCPStore
from autobrrr.injected.ranks.job_store import JobStore
def dial():
    return TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, wait_for_workers=False)
ends = threading.Event()
def come_and_go():
    while not ends.is_set():
        ours = JobStore(dial)
        ours.put("here", "yes")
        ours.leave()
for _ in range(4):
    threading.Thread(target=come_and_go, daemon=True).start()
threading.excepthook = lambda *_: None
time.sleep(0.3)
ends.set()
time.sleep(0.0003)
"""


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def job_store_at(port: int, monkeypatch: pytest.MonkeyPatch) -> tuple[object, JobStore]:
    """The job's own connection, and ours."""
    import torch
    from torch import distributed

    theirs = distributed.PrefixStore(
        "default_pg", distributed.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    )
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: theirs)
    return theirs, of_job(torch)


def test_a_question_of_ours_keeps_none_of_the_jobs_waiting(
    server: tuple[subprocess.Popen[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = job_store_at(server[1], monkeypatch)
    ours.get("nothing")  # it connects
    waiting = threading.Event()
    heard: list[bytes] = []

    def wait_for_a_key() -> None:
        waiting.set()
        heard.append(ours._link[0].get("default_pg/late"))

    thread = threading.Thread(target=wait_for_a_key)
    thread.start()
    waiting.wait(30)
    assert theirs.add("counter", 1) == 1  # type: ignore[attr-defined]
    assert heard == []  # ours still waits
    theirs.set("late", "now")  # type: ignore[attr-defined]
    thread.join(60)
    assert heard == [b"now"]


def test_what_stands_in_a_real_store_is_what_was_put_first(
    server: tuple[subprocess.Popen[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, third = (job_store_at(server[1], monkeypatch)[1] for _ in range(3))
    assert one.get("1/outcome") is None
    assert one.put("1/outcome", "go") == "go"
    assert other.put("1/outcome", "drop") == "go"
    assert other.get("1/outcome") == "go"
    assert other.put("1/outcome", "drop", instead_of="go") == "drop"
    one.leave()
    assert other.get("1/outcome") == "drop"  # it is not what that one has put there
    other.leave()
    assert third.get("1/outcome") is None
    third.leave()


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_store_that_is_stopped_or_gone_is_not_waited_for(
    how: signal.Signals, server: tuple[subprocess.Popen[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ours = job_store_at(server[1], monkeypatch)
    monkeypatch.setattr(job_store, "CONNECT_S", 0.5)
    ours.put("here", "yes")
    monkeypatch.setattr(job_store, "ANSWER_S", 0.5)
    server[0].send_signal(how)
    os.waitid(os.P_PID, server[0].pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(RegisterLost):
            ours.get("here")
        ours.leave()
        with pytest.raises(RegisterLost):
            of_job(sys.modules["torch"]).get("here")
    finally:
        server[0].send_signal(signal.SIGCONT)


@pytest.mark.parametrize("script", [ENDING, LEAVING], ids=["asks", "hangs up"])
def test_a_job_that_ends_while_a_question_is_under_way_ends_as_it_would_without_us(
    script: str, server: tuple[subprocess.Popen[str], int]
) -> None:
    command = [sys.executable, "-c", script, str(server[1])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(5):
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_processes_agree_on_what_was_first_though_one_is_killed() -> None:
    log = SharedLog.create()
    command = [sys.executable, "-c", WRITER, log.address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen(
            [*command, str(rank), "2000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(3)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        first = writers[0].stdout
        assert first is not None
        first.readline()
        writers[0].kill()
        heard = [writer.communicate(timeout=120)[0].split() for writer in writers[1:]]
        assert heard[0] == heard[1] == [log.get(str(number)) for number in range(2000)]
        assert set(heard[0]) <= {"0", "1", "2"}
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
        log.leave()
