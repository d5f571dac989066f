"""Root that attaches to another user's job has that user's rights, and no others; one process traces."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autobrrr.attach import door
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.client import diagnosing
from autobrrr.client.session_client import join
from autobrrr.errors import CannotAttach
from support.attach import STANDIN, child, eventually
from support.training import ran

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user"),
    pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that all can run"),
]
USER = 23460
USERS = (USER, USER + 1)
PROJECT = Path(__file__).resolve().parents[3]
BECOMES = (
    sys.executable,
    "-c",
    "import os, sys; user = int(sys.argv[1]); os.setgroups([]); os.setgid(user); os.setuid(user)\n"
    "os.execv(sys.argv[2], sys.argv[2:])",
)


@pytest.fixture(scope="module", autouse=True)
def nothing_stays() -> Iterator[None]:
    """A user without a home has caches and logs in /tmp."""
    yield
    for user in USERS:
        shutil.rmtree(f"/tmp/autobrrr-{user}", ignore_errors=True)


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of the other user's; pytest's own are closed to it."""
    made = Path(tempfile.mkdtemp(prefix="door-"))
    os.chown(made, USER, USER)
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def job_of(user: int, folder: Path, body: str = "while True: pass") -> Iterator[int]:
    """A process of another user with the stand-in torch, as `exec` leaves it; its pid."""
    shutil.copytree(STANDIN, folder / "standin", dirs_exist_ok=True)
    source = f"import sys; sys.path.insert(0, {str(folder / 'standin')!r}); import torch\n{body}"
    with child("theirs", "/usr/bin/python3", source=source, prefix=(*BECOMES, str(user))) as target:
        eventually(lambda: "libtorch_python" in Path(f"/proc/{target.pid}/maps").read_text())
        yield target.pid


def behind_the_door(pid: int, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of root's that has gone through the door of a job."""
    source = "import os, sys\nfrom autobrrr.attach import door\ndoor.go_through(int(sys.argv[1]))\n"
    return ran(
        [sys.executable, "-c", source + textwrap.dedent(code), str(pid), *words],
        env={**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}", "SECRET": "of root's"},
        timeout=120,
    )


def test_behind_the_door_all_rights_are_the_jobs(theirs: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's own")
    secret.chmod(0o640)
    code = """
    lines = open("/proc/self/status").read().splitlines()
    found = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
    print(found["Uid"], found["Gid"], found["Groups"], found["CapPrm"], found["CapEff"], found["NoNewPrivs"])
    try: print(open(sys.argv[2]).read())
    except PermissionError: print("closed")
    print(sorted(set(os.environ) & {"SECRET", "HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"}))
    import optuna, subprocess  # the program can be read, wherever it lies, and be run
    words = [sys.executable, "-c", "import os; print(os.getuid())"]
    print(subprocess.run(words, stdout=-1, text=True).stdout)
    """
    with job_of(USER, theirs) as pid:
        done = behind_the_door(pid, code, str(secret))
    rights, read, named, ran, *_ = done.stdout.splitlines()
    assert rights.split() == [*[str(USER)] * 8, "0" * 16, "0" * 16, "1"], done.stderr
    assert (read, named, ran) == ("closed", "[]", str(USER))


def test_the_folder_that_root_stands_in_and_those_of_its_variables_stay_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    opened = door._program_folders()
    assert not any(tmp_path.is_relative_to(each) or PROJECT.is_relative_to(each) for each in opened)
    assert any((PROJECT / "autobrrr").is_relative_to(each) for each in opened)


def test_the_jobs_user_can_not_look_into_what_has_become_it(theirs: Path) -> None:
    """It holds root's terminal, and root's environment in its memory."""
    code = """
    import subprocess
    looks = "import sys\\nfor name in ('environ', 'mem'):\\n" \\
        " try: open(f'/proc/{sys.argv[1]}/{name}', 'rb').read(1); print('open')\\n" \\
        " except OSError: print('shut')\\n"
    os.write(1, subprocess.run(["/usr/bin/python3", "-c", looks, str(os.getpid())], stdout=-1).stdout)
    """
    with job_of(USER, theirs) as pid:
        assert behind_the_door(pid, code).stdout.split() == ["shut", "shut"]


TRACES = """
from pathlib import Path
from autobrrr.machine import same_program
from autobrrr.attach import door
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.attach.ptrace.injector import inject
from autobrrr.errors import AutobrrrError
def tried(do):
    try: print("done", do() is not None)
    except (AutobrrrError, OSError) as error: print(type(error).__name__, error)
"""


def test_the_tracer_traces_the_job_and_nothing_of_others(theirs: Path) -> None:
    with job_of(USER, theirs) as pid, job_of(USER + 1, theirs) as other, child("spin") as roots:
        code = TRACES + (
            "for pid in map(int, sys.argv[1:]):\n"
            "    tried(lambda: kept_tracer.memory(pid))\n"
            "    tried(lambda: inject(pid, 'pass'))\n"
        )
        done = behind_the_door(pid, code, str(other), str(roots.pid))
        refused = "TargetGone process {} runs with other rights than when it was looked at"
        assert done.stdout.splitlines() == [
            *["done True"] * 2,
            *[refused.format(other)] * 2,
            *[refused.format(roots.pid)] * 2,
        ], done.stderr


def test_a_job_that_becomes_a_program_of_roots_is_not_traced(theirs: Path) -> None:
    """What was named to the tracer is the program that was looked at, whoever asks by now."""
    set_uid = theirs / "su"
    shutil.copy(Path("/usr/bin/python3").resolve(), set_uid)
    set_uid.chmod(0o4755)
    becomes = f"import os, time\nwhile not os.path.exists({str(theirs / 'now')!r}): time.sleep(0.01)\n"
    becomes += f"os.execv({str(set_uid)!r}, ['su', '-c', 'while True: pass'])"
    code = TRACES + (
        "import time\npid, now = int(sys.argv[1]), Path(sys.argv[2])\n"
        "looked_at = kept_tracer.Tracer(kept_tracer.link_for(pid))\n"
        "now.touch()\n"
        "while same_program.seen(pid).uid != 0: time.sleep(0.01)\n"
        "print(looked_at.ask({'pid': pid}), looked_at.ask({'pid': pid, 'way': 'pending_call', 'code': ''}))\n"
        "tried(lambda: inject(pid, 'pass'))\n"
    )
    with job_of(USER, theirs, becomes) as pid:
        done = behind_the_door(pid, code, str(theirs / "now"))
        os.kill(pid, 9)
    first, second = done.stdout.splitlines()
    assert first.count(", [])") == 2, "no descriptor came with it"
    assert "'pause_ns'" not in first
    assert "other rights" in second


def test_the_agent_comes_up_and_its_folder_is_the_users(theirs: Path) -> None:
    code = """
    from pathlib import Path
    from autobrrr.attach.enter import enter
    from autobrrr.attach.target_folder import TargetFolder
    from support.attach import probe_bundle
    made, write = [], TargetFolder.write
    def spied(self, name, data):
        write(self, name, data)
        made.extend(os.stat(each, dir_fd=self._fd).st_uid for each in (".", name))
    TargetFolder.write = spied
    link = enter(int(sys.argv[1]), entries=probe_bundle(Path(sys.argv[2])))
    print(link.facts.pid, link.facts.bundle, set(made))
    link.socket.close()
    """
    with job_of(USER, theirs) as pid:
        done = behind_the_door(pid, code, str(theirs))
        assert done.stdout == f"{pid} code {{{USER}}}\n", done.stderr
        eventually(lambda: not list(Path("/tmp").glob(f"autobrrr-{USER}-*")))


def test_a_command_about_another_users_job_is_that_users(theirs: Path, tmp_path: Path) -> None:
    """From outside, so that it takes no real torch: folder, lock, socket and log are made as that user."""
    user = USER + 7
    os.chown(theirs, user, user)
    words = [sys.executable, "-m", "autobrrr"]
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tui'}", "HOME": str(tmp_path)}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return ran([*words, *more], env=environment)

    with job_of(user, theirs) as pid:
        attached = run("attach", str(pid), "--outside", "--plain", "--for", "1s")
        assert attached.returncode == 0, attached.stderr
        assert f"uid {user}: going on as that user; results: /tmp/autobrrr-{user}" in attached.stderr
        made = [path for path in Path(f"/tmp/autobrrr-{user}").rglob("*") if path.name != ".cache"]
        assert {path.suffix for path in made} >= {".sock", ".lock", ".jsonl", ".log"}
        assert {path.lstat().st_uid for path in made} == {user}
        listed = json.loads(run("ls", "--json").stdout)["jobs"]
        assert [each["attached"] for each in listed if each["pid"] == pid] == [True]
        assert "the session goes on" in run("report", str(pid)).stdout
        assert run("detach", str(pid)).returncode == 0
        assert not list(tmp_path.rglob("*.jsonl")), "root's own folders have nothing of it"
    shutil.rmtree(f"/tmp/autobrrr-{user}")


def test_what_can_not_change_its_user_leaves_other_users_jobs_alone(theirs: Path) -> None:
    """The Python API, the screen of all jobs and `mcp` run in a process that goes on being root's."""
    with job_of(USER, theirs) as pid:
        for ask in (
            lambda: join(pid),
            lambda: diagnosing.diagnosed(pid, diagnosing.DiagnosisOptions(), lambda line: None),
        ):
            with pytest.raises(CannotAttach, match=f"belongs to uid {USER}") as caught:
                ask()
            assert "becomes that user" in caught.value.hint
    assert not kept_tracer.is_kept()


def test_a_process_of_two_users_is_refused(theirs: Path) -> None:
    """As a set-uid program is: whose rights would be right?"""
    set_uid = theirs / "su"
    shutil.copy(Path("/usr/bin/python3").resolve(), set_uid)
    set_uid.chmod(0o4755)
    words = [*BECOMES, str(USER), str(set_uid), "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as both:
        both.stdout.readline()
        done = ran([sys.executable, "-m", "autobrrr", "doctor", str(both.pid)])
        both.kill()
    assert done.returncode == 3
    assert "the rights of two users" in done.stderr


def test_a_process_that_shows_nothing_to_its_own_user_is_named(theirs: Path) -> None:
    """One that has changed its user without an exec could be looked at with root's rights only."""
    source = (
        f"import os, torch\nos.setgid({USER}); os.setuid({USER})\nprint('set', flush=True)\nwhile True: pass"
    )
    with child("set", source=source, standin=True) as target:
        assert target.process.stdout.readline() == "set\n"
        done = behind_the_door(target.pid, "from autobrrr.cli import main\nmain(['doctor', sys.argv[1]])")
        assert "shows its memory to root alone" in done.stdout, done.stderr
        assert target.alive()
