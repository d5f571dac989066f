"""A real sidecar on real sockets, with a process that only plays the agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autobrrr import paths
from autobrrr.agent.wire.framing import encode, receive
from autobrrr.client import session_client
from autobrrr.errors import AutobrrrError
from autobrrr.records.tuning_records import TuneRequest
from autobrrr.sidecar.process.session_options import SessionOptions, SidecarOrder
from autobrrr.sidecar.sockets.session_socket import connect, find_target
from support.attach import eventually
from support.sessions.sidecar import raw_frame
from support.training import autobrrr, environment, sidecars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FAKE = Path(__file__).resolve().parents[2] / "support" / "sessions" / "sidecar.py"


class FakeJob:
    """A process that a sidecar takes for a job with a preloaded agent."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(FAKE), *words], stdout=subprocess.PIPE, text=True, env=environment(folder)
        )
        assert self.process.stdout is not None
        self.lines = self.process.stdout
        assert self.lines.readline() == "training\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def link_ended(self) -> dict[str, object]:
        """Waits until a sidecar has left; how, and what it had commanded."""
        found = json.loads(self.lines.readline())
        assert isinstance(found, dict)
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.lines.close()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, as a client, looks where the sidecars of the test are."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Callable[..., FakeJob]]:
    started: list[FakeJob] = []

    def start(*words: str) -> FakeJob:
        started.append(FakeJob(tmp_path, *words))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def start(job: FakeJob, **options: object) -> session_client.Client:
    return session_client.join_or_start(job.pid, SessionOptions(**options))  # type: ignore[arg-type]


def test_diagnose_attaches_decides_and_leaves_nothing(fake: Callable[..., FakeJob], tmp_path: Path) -> None:
    job = fake()
    found = autobrrr(tmp_path, "diagnose", str(job.pid), "--json", "--for", "20s")
    assert found.code == 0, found.stderr
    assert found.json["regime"] == "overhead", found.json["reason"]
    assert found.json["attach"]["method"] == "preload"  # type: ignore[index]
    ended = job.link_ended()
    assert ended["ended"] == "detached"
    assert ended["commands"][:3] == ["facts", "frames", "trace"]  # type: ignore[index]
    eventually(lambda: not sidecars(tmp_path))
    assert not list((tmp_path / "run" / "autobrrr").glob("[0-9]*"))


def test_the_verdict_for_people_fits_a_screen(fake: Callable[..., FakeJob], tmp_path: Path) -> None:
    found = autobrrr(tmp_path, "diagnose", str(fake().pid), "--for", "20s")
    lines = found.stdout.splitlines()
    assert found.code == 0, found.stderr
    assert len(lines) <= 16
    assert "Limited by host: " in lines[0]


def test_attach_stays_and_detach_ends_it(fake: Callable[..., FakeJob], tmp_path: Path) -> None:
    job = fake()
    found = autobrrr(tmp_path, "attach", str(job.pid), "--for", "2s", "--json")
    assert found.code == 0, found.stderr
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert [line["final"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert f"next: autobrrr detach {job.pid}" in found.stderr
    (sidecar,) = sidecars(tmp_path)
    assert os.getsid(sidecar) != os.getsid(0)
    with session_client.join(job.pid) as session:  # type: ignore[union-attr]
        assert session.facts.pid == job.pid
        assert not session.started
        assert len(session.log(5).lines) > 1
    assert autobrrr(tmp_path, "detach", str(job.pid)).code == 0
    assert job.link_ended()["ended"] == "detached"
    eventually(lambda: not sidecars(tmp_path))
    again = autobrrr(tmp_path, "detach", str(job.pid))
    assert (again.code, "has no session" in again.stderr) == (1, True)


def test_live_lines_show_the_verdict_and_the_session_goes_on(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    found = autobrrr(tmp_path, "attach", str(job.pid), "--for", "6s", "--plain")
    assert found.code == 0, found.stderr
    assert "Limited by host: " in found.stdout
    assert start(job).detach().left == ()


def test_two_commands_that_race_share_one_sidecar(fake: Callable[..., FakeJob], tmp_path: Path) -> None:
    job = fake()
    clients: list[session_client.Client] = []
    racers = [threading.Thread(target=lambda: clients.append(start(job))) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert len(clients) == 4
    assert sum(each.started for each in clients) == 1
    eventually(lambda: len(sidecars(tmp_path)) == 1)  # those that came too late go by themselves
    watched = [next(iter(each.snapshots(every_s=0.1))) for each in clients]
    assert {snapshot.pid for snapshot in watched} == {job.pid}
    clients[0].detach()
    for each in clients[1:]:
        list(each.snapshots())
        assert each.ending is not None
        assert each.ending.kind == "detached"
        each.close()


def test_a_killed_sidecar_is_a_lost_link_and_the_next_attach_starts_anew(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    first = start(job)
    (pid,) = sidecars(tmp_path)
    os.kill(pid, signal.SIGKILL)
    assert job.link_ended()["ended"] == "link lost"
    with pytest.raises(AutobrrrError, match="the job trains on"):
        list(first.snapshots())
    first.close()
    second = start(job)
    assert second.started
    assert second.detach().left == ()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_sidecar_that_is_asked_to_go_detaches_first(
    number: signal.Signals, fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    with start(job):
        os.kill(sidecars(tmp_path)[0], number)
        ended = job.link_ended()
    assert (ended["ended"], ended["commands"][-1]) == ("detached", "detach")  # type: ignore[index]
    eventually(lambda: not sidecars(tmp_path))


def test_when_the_job_ends_so_does_its_session_with_a_last_snapshot(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    with start(job, probing="off") as session:
        snapshots = session.snapshots(every_s=0.1)
        for snapshot in snapshots:
            if snapshot.state == "judged":
                break
        job.process.kill()
        last = list(snapshots)[-1]
        assert (last.final, last.activity) == (True, "job ended")
        assert session.ending is not None
        assert (session.ending.kind, session.ending.decided) == ("job ended", True)
    job.process.wait()
    eventually(lambda: not sidecars(tmp_path))


def test_a_job_that_ends_before_anything_is_known_is_gone(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake("--step-ms", "60000")
    killer = threading.Timer(3, job.process.kill)
    killer.start()
    found = autobrrr(tmp_path, "diagnose", str(job.pid), "--json")
    killer.join()
    assert found.code == 4, found.stderr
    assert found.stdout == ""
    assert json.loads(found.stderr.splitlines()[-1])["exit_code"] == 4


def test_clients_that_send_garbage_disturb_nobody(fake: Callable[..., FakeJob]) -> None:
    job = fake()
    with start(job) as session:
        target = find_target(job.pid)
        vandals: list[socket.socket] = []
        for raw in (b"\0\0\0\2[]", b"\xff" * 100, b"GET / HTTP/1.0\r\n\r\n", raw_frame(b'{"v":7}')):
            vandal = connect(target)
            assert vandal is not None
            vandal.sendall(raw)
            answer = receive(vandal)
            assert answer["ok"] is False
            vandals.append(vandal)
        silent = connect(target)
        assert silent is not None
        silent.sendall(encode({"do": "ping"})[:-3])
        deaf = connect(target)
        assert deaf is not None
        deaf.sendall(encode({"do": "subscribe", "every_ms": 100}))
        half_open = connect(target)
        assert half_open is not None
        half_open.close()
        for number, snapshot in enumerate(session.snapshots(every_s=0.1)):
            assert snapshot.pid == job.pid
            if number == 5:
                break
        for each in (*vandals, silent, deaf):
            each.close()
        session.detach()
    assert job.link_ended()["ended"] == "detached"


def test_ctrl_c_leaves_the_session_and_says_how_to_end_it(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    watching = subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "attach", str(job.pid), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert json.loads(out.splitlines()[-1])["final"] is True
    assert f"next: autobrrr detach {job.pid}" in err
    with start(job) as session:
        assert not session.started
        session.detach()


def test_a_foreground_session_ends_with_its_command(fake: Callable[..., FakeJob], tmp_path: Path) -> None:
    job = fake()
    found = autobrrr(tmp_path, "attach", str(job.pid), "--foreground", "--for", "2s", "--plain")
    assert found.code == 0, found.stderr
    assert job.link_ended()["ended"] == "detached"
    eventually(lambda: not sidecars(tmp_path))


def test_a_foreground_session_ends_in_order_when_its_command_is_killed(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    watching = subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "attach", str(job.pid), "--foreground", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(tmp_path),
    )
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.kill()
    watching.wait()
    watching.stdout.close()
    assert job.link_ended()["ended"] == "detached"
    eventually(lambda: not sidecars(tmp_path))


def test_from_outside_no_agent_is_asked_and_no_regime_is_named(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    found = autobrrr(tmp_path, "attach", str(job.pid), "--outside", "--for", "2s", "--json")
    assert found.code == 0, found.stderr
    assert (found.json["regime"], found.json["attach"]["method"]) == ("unknown", "outside")  # type: ignore[index]
    assert found.json["host"]["rss_bytes"] > 0  # type: ignore[index]
    assert autobrrr(tmp_path, "detach", str(job.pid)).code == 0


def test_a_pid_that_is_not_there_is_exit_four(tmp_path: Path) -> None:
    for verb in ("attach", "diagnose", "detach"):
        found = autobrrr(tmp_path, verb, "4194304")
        assert (found.code, found.stdout) == (4, "")
        assert "there is no process 4194304" in found.stderr


def test_a_process_without_torch_is_refused_and_the_reason_reaches_the_user(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        found = autobrrr(tmp_path, "diagnose", str(sleeper.pid), "--json")
        assert (found.code, found.stdout) == (3, "")
        assert json.loads(found.stderr.splitlines()[-1])["exit_code"] == 3
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
    eventually(lambda: not sidecars(tmp_path))


def test_a_sidecar_whose_starter_has_given_up_leaves_again(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake()
    reader, writer = os.pipe()
    os.close(reader)
    order = SidecarOrder(options=SessionOptions(), ready_fd=writer)
    words = [sys.executable, "-m", "autobrrr.sidecar", str(job.pid), order.word()]
    subprocess.run(words, pass_fds=(writer,), env=environment(tmp_path), check=True)
    os.close(writer)
    assert job.link_ended()["ended"] == "link lost"
    eventually(lambda: not sidecars(tmp_path))


def test_a_diagnose_that_is_killed_takes_its_session_along(
    fake: Callable[..., FakeJob], tmp_path: Path
) -> None:
    job = fake("--step-ms", "500")
    words = [sys.executable, "-m", "autobrrr", "diagnose", str(job.pid)]
    command = subprocess.Popen(words, stderr=subprocess.PIPE, env=environment(tmp_path))
    assert command.stderr is not None
    while b"attaching to process" in command.stderr.readline():
        pass  # the next line comes from the session: it is connected
    command.kill()
    command.wait()
    command.stderr.close()
    assert job.link_ended()["ended"] == "detached"
    eventually(lambda: not sidecars(tmp_path))


def test_sockets_work_under_a_folder_whose_path_is_longer_than_an_address(
    fake: Callable[..., FakeJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = fake()
    agent = next((tmp_path / "run" / "autobrrr").glob("agent-*"))
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True, mode=0o700)
    paths.make_private(deep / "autobrrr")
    (deep / "autobrrr" / agent.name).hardlink_to(agent)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with start(job) as session:
        assert session.snapshot().pid == job.pid
        assert session_client.join(job.pid) is not None
        session.detach()
    assert job.link_ended()["ended"] == "detached"


def test_a_session_with_the_tuner_at_work_can_be_ended(fake: Callable[..., FakeJob]) -> None:
    job = fake()
    with start(job, probing="off") as session, start(job) as other:
        told: list[object] = []

        def tune() -> None:
            try:
                told.append(session.tune(TuneRequest(for_s=60, only=["optimizer.fused"])).note)
            except AutobrrrError as error:
                told.append(error.message)

        worker = threading.Thread(target=tune)
        worker.start()
        eventually(lambda: other.snapshot().state == "tuning")
        time.sleep(1)
        assert other.detach().left == ()
        worker.join(20)
        # The tuner may have come to its end before the session did, or not.
        assert told
        assert "stopped by the user" in str(told[0]) or "session ended" in str(told[0])
    assert job.link_ended()["ended"] == "detached"
