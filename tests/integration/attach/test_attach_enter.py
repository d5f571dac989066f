"""The whole way in on real processes: link up, or refused with a sentence and nothing left behind."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from autobrrr.attach.bundle import code_bundle
from autobrrr.attach.enter import AgentConnection, enter
from autobrrr.errors import CannotAttach, TargetGone
from support.attach import KINDS, SLEEPS, TRAINS, VERSIONS, child, eventually, interpreters, probe_bundle
from support.day_cases import by_day
from support.training import EVERY, Finished, TrainingJob, autobrrr, ran

pytestmark = pytest.mark.integration

StartJob = Callable[..., TrainingJob]


@pytest.fixture
def go_in(tmp_path: Path) -> Callable[..., AgentConnection]:
    """`enter` with the probe agent."""
    entries = probe_bundle(tmp_path / "probe")

    def go(pid: int, **words: object) -> AgentConnection:
        return enter(pid, entries=entries, **words)  # type: ignore[arg-type]

    return go


def leave(link: AgentConnection) -> None:
    link.socket.close()
    os.close(link.ring_fd)


def own_folders() -> set[str]:
    """What attaches of this user have in /tmp now."""
    return {name for name in os.listdir("/tmp") if name.startswith(f"autobrrr-{os.getuid()}-")}


def open_files(pid: int) -> list[str]:
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return sorted(links)


def test_the_shipped_agent_comes_up_in_real_torch_and_goes(
    job: StartJob, untouched: Callable[[int], Finished], tmp_path: Path
) -> None:
    trains = job("plain", *EVERY)
    for _ in range(3):
        link = enter(trains.pid)
        assert link.facts.bundle == "code"
        assert link.facts.script.endswith("plain.py")
        assert link.facts.torch == version("torch")
        assert "memfd" in os.readlink(f"/proc/self/fd/{link.ring_fd}")
        leave(link)
        eventually(lambda: "memfd" not in " ".join(open_files(trains.pid)))
    trained = trains.finish()
    assert trained == untouched(trained.steps)


IMPORTS = """
import importlib, sys, torch, torch.utils.data
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module("autobrrr." + name)
print(*sorted(name for name in set(sys.modules) - before if name.partition(".")[0] != "autobrrr"))
"""


def test_the_agent_imports_next_to_nothing_that_torch_has_not() -> None:
    """While it imports a module, a job's thread that looks into `sys.modules` finds one half made."""
    names = [name for name, *_ in code_bundle.entries() if name.startswith("agent")]
    done = ran([sys.executable, "-c", IMPORTS, *names], check=True, timeout=120)
    few = {"statistics", "_statistics", "fractions", "decimal", "_decimal", "resource", "sysconfig"}
    assert set(done.stdout.split()) <= few


@pytest.mark.parametrize("release", VERSIONS)
def test_the_agent_comes_up_in_every_python_from_code_objects(
    release: str, go_in: Callable[..., AgentConnection]
) -> None:
    python = interpreters().get(release)
    if python is None:
        pytest.skip(f"no Python {release} here")
    before = own_folders()
    with child("training", python, standin=True) as target:
        files, threads = open_files(target.pid), target.threads()
        for _ in range(3):
            link = go_in(target.pid)
            assert link.facts.python.startswith(release)
            assert (link.facts.pid, link.facts.bundle, link.facts.argv) == (target.pid, "code", [])
            assert link.attach.method == link.facts.method == "ptrace"
            assert link.attach.latency_ns is not None
            assert 0 < link.attach.pause_ns < link.attach.latency_ns
            eventually(lambda: own_folders() <= before)  # others may come and go meanwhile
            leave(link)
            eventually(lambda: target.threads() == threads and open_files(target.pid) == files)
        assert target.alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("flags", [("-m",), ("-m", "-p", "-f", "--kill-child")])
def test_a_target_with_its_own_tmp(flags: tuple[str, ...], go_in: Callable[..., AgentConnection]) -> None:
    if Path(sys.executable).is_relative_to("/tmp"):
        pytest.skip("the interpreter of these tests lies under /tmp, which the target must cover")
    mount = ("sh", "-c", 'mount -t tmpfs none /tmp && exec "$0" "$@"')
    with child("training", prefix=("unshare", *flags, *mount)) as started:
        below = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        link = go_in(int(below[0]) if below else started.pid)
        assert link.facts.pid == (1 if "-p" in flags else started.pid)
        leave(link)


def refusal_of(pid: int) -> CannotAttach:
    with pytest.raises(CannotAttach) as caught:
        enter(pid)
    assert caught.value.hint
    return caught.value


def test_a_second_agent_is_refused_also_where_nobody_finds_the_first(job: StartJob, tmp_path: Path) -> None:
    trains = job("plain")
    theirs = str(tmp_path / "their own" / "autobrrr")
    first = enter(trains.pid, socket_folder=theirs)  # where no socket is
    try:
        refusal = refusal_of(trains.pid)
        assert f"has a session already that can't be found from here (its socket lies in {theirs})" in (
            refusal.message
        )
        assert f"autobrrr detach {trains.pid} ends it" in refusal.hint
    finally:
        leave(first)
    leave(enter(trains.pid))
    assert trains.finish().steps > 0


def test_no_file_beside_the_script_is_run_in_place_of_the_librarys(tmp_path: Path) -> None:
    job_file = tmp_path / "train.py"
    job_file.write_text(
        "import os, time, torch\nparent = os.getppid()\nprint('training', flush=True)\n"
        "while os.getppid() == parent: time.sleep(0.01)\n"
    )
    (tmp_path / "resource.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(9)\n")
    trains = subprocess.Popen([sys.executable, job_file], stdout=subprocess.PIPE, text=True)
    try:
        assert trains.stdout.readline() == "training\n"
        leave(enter(trains.pid))
        assert trains.poll() is None
        assert not (tmp_path / "ran").exists()
    finally:
        trains.kill()
        trains.communicate()


def test_a_job_that_sleeps_without_progress_is_given_up_on(go_in: Callable[..., AgentConnection]) -> None:
    lines: list[str] = []
    before = own_folders()
    with child("asleep", standin=True) as target:
        with pytest.raises(CannotAttach, match=r"its main thread waits .*nothing in it makes progress"):
            go_in(target.pid, on_wait=lines.append)
        assert target.alive()
    assert lines
    eventually(lambda: own_folders() <= before)  # others may come and go meanwhile


@pytest.mark.parametrize("release", VERSIONS)
@pytest.mark.parametrize("state", by_day(["join", "asyncio"], "join".__eq__))
def test_a_job_that_trains_beside_a_main_thread_that_sleeps(
    state: str, release: str, go_in: Callable[..., AgentConnection]
) -> None:
    python = interpreters().get(release)
    if python is None:
        pytest.skip(f"no Python {release} here")
    before = own_folders()
    with child(state, python, standin=True, source=TRAINS + SLEEPS[state]) as target:
        threads = 2
        eventually(lambda: target.threads() == threads)
        for _ in range(2):
            link = go_in(target.pid)
            assert (link.facts.pid, link.facts.bundle) == (target.pid, "code")
            leave(link)
            eventually(lambda: target.threads() == threads)
        assert target.alive()
    eventually(lambda: own_folders() <= before)  # others may come and go meanwhile


def test_a_target_that_ends_while_we_wait(go_in: Callable[..., AgentConnection]) -> None:
    gone = pytest.raises(TargetGone, match="ended while it was being attached")
    with child("asleep", standin=True) as target, gone:
        go_in(target.pid, on_wait=lambda line: target.process.kill())


@pytest.mark.parametrize("way", ["a call", "a thread"])
def test_an_agent_that_fails_to_load_says_why_whichever_way_it_came(way: str, tmp_path: Path) -> None:
    entries = probe_bundle(tmp_path / "broken", main="raise ImportError('not in this torch')")
    before = own_folders()
    source = TRAINS + SLEEPS["join"] if way == "a thread" else KINDS["training"]
    with child(way, standin=True, source=source) as target:
        threads = 2 if way == "a thread" else 1
        eventually(lambda: target.threads() == threads)
        with pytest.raises(CannotAttach, match=r"can't come up .*ImportError: not in this torch"):
            enter(target.pid, entries=entries)
        eventually(lambda: target.threads() == threads)
        assert target.alive()
    eventually(lambda: own_folders() <= before)  # others may come and go meanwhile


def test_a_process_whose_waits_are_replaced_is_refused_at_once_and_left_alone(tmp_path: Path) -> None:
    # What monkey patching does: a Python function in the place of the interpreter's own.
    source = "import time\nown = time.sleep\ntime.sleep = lambda s: own(s)\n" + KINDS["training"]
    before = own_folders()
    with child("a call", standin=True, source=source) as target:
        eventually(lambda: target.threads() == 1)
        with pytest.raises(CannotAttach, match="gevent or eventlet has replaced"):
            enter(target.pid, entries=probe_bundle(tmp_path / "bundle"))
        assert target.threads() == 1
        assert target.alive()
    eventually(lambda: own_folders() <= before)


def test_the_list_and_the_doctor_agree_with_attach(tmp_path: Path) -> None:
    with child("training") as good, child("spin") as bad:
        deadline = time.monotonic() + 20  # it says that it works before it has imported torch
        listed: dict[int, dict[str, object]] = {}
        while good.pid not in listed and time.monotonic() < deadline:
            listed = {line["pid"]: line for line in autobrrr(tmp_path, "ls", "--json").json["jobs"]}
        assert bad.pid not in listed
        line = listed[good.pid]
        assert (line["torch"], line["script"], line["attached"]) == ("2.9.0+standin", "-c", False)
        assert line["attachable"] is True
        assert str(good.pid) in autobrrr(tmp_path, "ls").stdout
        fine = autobrrr(tmp_path, "doctor", str(good.pid), "--json")
        assert fine.code == 0, fine.stdout
        assert {check["status"] for check in fine.json["checks"]} == {"ok"}
        refused = autobrrr(tmp_path, "doctor", str(bad.pid), "--json")
        assert refused.code == 3
        failed = [check for check in refused.json["checks"] if check["status"] == "fail"]
        assert [check["name"] for check in failed] == ["torch"]
        assert failed[0]["fix"]
    assert autobrrr(tmp_path, "doctor", str(good.pid), "--json").code == 4


def test_the_doctor_of_the_machine_attaches_to_a_child(tmp_path: Path) -> None:
    found = autobrrr(tmp_path, "doctor", "--json")
    assert found.code == 0
    by_name = {check["name"]: check for check in found.json["checks"]}
    assert "paused a child process for" in by_name["attach"]["detail"]
