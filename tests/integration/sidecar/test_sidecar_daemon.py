"""A real sidecar on real sockets, with a process that only plays the agent."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.client import session_client
from autobrrr.errors import AutobrrrError
from autobrrr.records.session_requests import ReadLog, TakeSnapshot, TuneRequest
from autobrrr.sidecar.process.session_options import SessionOptions
from support.attach import eventually
from support.training import autobrrr, environment, sidecars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FAKE = Path(__file__).resolve().parents[2] / "support" / "sessions" / "sidecar.py"


class FakeJob:
    """A process that a sidecar takes for a job with a preloaded agent."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(FAKE), *words], stdout=subprocess.PIPE, text=True, env=environment(folder)
        )
        self.lines = self.process.stdout
        assert self.lines.readline() == "training\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def link_ended(self) -> dict[str, object]:
        """Waits until a sidecar has left; how, and what it had commanded."""
        return json.loads(self.lines.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.lines.close()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process, as a client, looks where the sidecars of the test are; none outlives it."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    yield
    eventually(lambda: not sidecars(tmp_path))
    assert not list((tmp_path / "run" / "autobrrr").glob("[0-9]*"))


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeJob]:
    started = FakeJob(tmp_path, *getattr(request, "param", ()))
    yield started
    started.kill()


def start(job: FakeJob, **options: object) -> session_client.Client:
    return session_client.open_session(job.pid, SessionOptions(**options))  # type: ignore[arg-type]


def watch(job: FakeJob, folder: Path, *flags: str) -> subprocess.Popen[str]:
    """An `attach` that has seen the session."""
    words = [sys.executable, "-m", "autobrrr", "attach", str(job.pid), "--json", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    watching = subprocess.Popen(words, text=True, env=environment(folder), **pipes)
    watching.stdout.readline()
    return watching


def test_diagnose_attaches_decides_and_leaves_nothing(job: FakeJob, tmp_path: Path) -> None:
    found = autobrrr(tmp_path, "diagnose", str(job.pid), "--json", "--for", "20s")
    assert found.code == 0, found.stderr
    assert found.json["regime"] == "overhead" or "too busy" in str(found.json["reason"]), found.json["reason"]
    assert found.json["attach"]["method"] == "preload"  # type: ignore[index]
    ended = job.link_ended()
    assert ended["ended"] == "detached"
    assert ended["commands"][:3] == ["facts", "frames", "trace"]  # type: ignore[index]


def test_attach_stays_and_detach_ends_it(job: FakeJob, tmp_path: Path) -> None:
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
        assert len(session.ask(ReadLog(5)).lines) > 1
    assert autobrrr(tmp_path, "detach", str(job.pid)).code == 0
    assert job.link_ended()["ended"] == "detached"
    again = autobrrr(tmp_path, "detach", str(job.pid))
    assert (again.code, "has no session" in again.stderr) == (1, True)


def test_two_commands_that_race_share_one_sidecar(job: FakeJob, tmp_path: Path) -> None:
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
        assert each.ending.kind == "detached"
        each.close()


def test_a_killed_sidecar_is_a_lost_link_and_the_next_attach_starts_anew(
    job: FakeJob, tmp_path: Path
) -> None:
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


def test_a_sidecar_that_is_asked_to_go_detaches_first(job: FakeJob, tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with start(job):
            os.kill(sidecars(tmp_path)[0], number)
            ended = job.link_ended()
        assert (ended["ended"], ended["commands"][-1]) == ("detached", "detach")  # type: ignore[index]
        eventually(lambda: not sidecars(tmp_path))


def test_when_the_job_ends_so_does_its_session_with_a_last_snapshot(job: FakeJob, tmp_path: Path) -> None:
    with start(job, probing="off") as session:
        snapshots = session.snapshots(every_s=0.1)
        for snapshot in snapshots:
            if snapshot.state == "judged":
                break
        job.process.kill()
        last = list(snapshots)[-1]
        assert (last.final, last.activity) == (True, "job ended")
        assert (session.ending.kind, session.ending.decided) == ("job ended", True)
    job.process.wait()


@pytest.mark.parametrize("job", [("--step-ms", "60000")], indirect=True)
def test_a_job_that_ends_before_anything_is_known_is_gone(job: FakeJob, tmp_path: Path) -> None:
    killer = threading.Timer(3, job.process.kill)
    killer.start()
    found = autobrrr(tmp_path, "diagnose", str(job.pid), "--json")
    killer.join()
    assert found.code == 4, found.stderr
    assert found.stdout == ""
    assert json.loads(found.stderr.splitlines()[-1])["exit_code"] == 4


def test_ctrl_c_leaves_the_session_and_says_how_to_end_it(job: FakeJob, tmp_path: Path) -> None:
    watching = watch(job, tmp_path)
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert json.loads(out.splitlines()[-1])["final"] is True
    assert f"next: autobrrr detach {job.pid}" in err
    with start(job) as session:
        assert not session.started
        session.detach()


def test_a_foreground_session_ends_in_order_when_its_command_is_killed(job: FakeJob, tmp_path: Path) -> None:
    watching = watch(job, tmp_path, "--foreground")
    watching.kill()
    watching.communicate()
    assert job.link_ended()["ended"] == "detached"


def test_a_foreground_command_that_joined_ends_a_session_which_nobody_else_uses(
    job: FakeJob, tmp_path: Path
) -> None:
    with session_client.open_session(job.pid, SessionOptions(), owned=True):
        watching = watch(job, tmp_path, "--foreground")
    watching.send_signal(signal.SIGINT)
    assert "the session ended: detached" in watching.communicate(timeout=20)[1]
    assert job.link_ended()["ended"] == "detached"


def test_from_outside_no_agent_is_asked_and_no_regime_is_named(job: FakeJob, tmp_path: Path) -> None:
    found = autobrrr(tmp_path, "attach", str(job.pid), "--outside", "--for", "2s", "--json")
    assert found.code == 0, found.stderr
    assert (found.json["regime"], found.json["attach"]["method"]) == ("unknown", "outside")  # type: ignore[index]
    assert found.json["host"]["rss_bytes"] > 0  # type: ignore[index]
    assert autobrrr(tmp_path, "detach", str(job.pid)).code == 0


def test_a_sidecar_whose_starter_has_given_up_leaves_again(job: FakeJob, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    order = json.dumps({"options": {}, "ready_fd": writer, "tracer_fd": None})
    words = [sys.executable, "-m", "autobrrr.sidecar", str(job.pid), order]
    subprocess.run(words, pass_fds=(writer,), env=environment(tmp_path), check=False)
    os.close(writer)
    assert job.link_ended()["ended"] == "link lost"


@pytest.mark.parametrize("job", [("--step-ms", "500")], indirect=True)
def test_a_diagnose_that_is_killed_takes_its_session_along(job: FakeJob, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "autobrrr", "diagnose", str(job.pid)]
    command = subprocess.Popen(words, stderr=subprocess.PIPE, env=environment(tmp_path))
    while b"attaching to process" in command.stderr.readline():
        pass  # the next line comes from the session: it is connected
    command.kill()
    command.wait()
    command.stderr.close()
    assert job.link_ended()["ended"] == "detached"


def test_a_session_with_the_tuner_at_work_can_be_ended(job: FakeJob) -> None:
    with start(job, probing="off") as session, start(job) as other:
        told: list[object] = []

        def tune() -> None:
            try:
                told.append(session.tune(TuneRequest(for_s=60, only=["optimizer.fused"])).note)
            except AutobrrrError as error:
                told.append(error.message)

        worker = threading.Thread(target=tune)
        worker.start()
        eventually(lambda: other.ask(TakeSnapshot()).state == "tuning")
        assert other.detach().left == ()
        worker.join(20)
        # The tuner may have come to its end before the session did, or not.
        assert told
        assert "stopped by the user" in str(told[0]) or "session ended" in str(told[0])
    assert job.link_ended()["ended"] == "detached"


def listens(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def test_figures_are_served_as_long_as_the_session_lasts(job: FakeJob, tmp_path: Path) -> None:
    attached = autobrrr(tmp_path, "attach", str(job.pid), "--plain", "--for", "2s", "--metrics", "0")
    assert attached.code == 0, attached.stderr
    found = re.search(r"metrics: (http://127\.0\.0\.1:(\d+)/metrics)", attached.stderr)
    assert found is not None, attached.stderr
    url, port = found.group(1), int(found.group(2))

    def steps() -> bool:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return b"autobrrr_step_seconds{" in answer.read()

    eventually(steps)
    again = autobrrr(tmp_path, "attach", str(job.pid), "--plain", "--for", "1s", "--metrics", "0")
    assert again.code == 0, again.stderr
    assert url in again.stderr  # it is the session's
    assert autobrrr(tmp_path, "detach", str(job.pid)).code == 0
    eventually(lambda: not listens(port))
