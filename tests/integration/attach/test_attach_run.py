"""`autobrrr run` and preloaded agents: the command is what it was, and an agent is in it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autobrrr.attach.enter import enter
from autobrrr.attach.preload import preloaded_agent
from support.attach import RARE, STANDIN, eventually, interpreters, probe_bundle
from support.day_cases import by_day
from support.training import autobrrr, environment, ran

pytestmark = pytest.mark.integration

# Applies the plan in name only, says so, and listens as the agent does.
LISTENING_AGENT = """
import json, os, socket, sys
from .wire import framing


def start(boot):
    with open(boot["outcome"], "a") as out:
        for name in boot["plan"] or ():
            out.write(json.dumps({"remedy": name, "status": "applied", "why": None}) + "\\n")
    boot["ready"]()
    door = socket.socket(socket.AF_UNIX)
    folder = os.open(os.path.dirname(boot["listen"]), os.O_PATH)  # all of it may be too long a name
    door.bind("/proc/self/fd/%d/%s" % (folder, os.path.basename(boot["listen"])))
    os.close(folder)
    door.listen(1)
    while True:
        link, _ = door.accept()
        ring = os.memfd_create("ring")
        facts = {
            "pid": os.getpid(), "python": sys.version.split()[0], "torch": sys.modules["torch"].__version__,
            "script": sys.argv[0], "argv": sys.argv, "train_tid": 0, "threads": None,
            "bundle": boot["bundle"], "method": boot["method"],
        }
        hello = framing.encode({"event": "hello", "ring_fd": True, "facts": facts})
        socket.send_fds(link, [hello], [ring])
        os.close(ring)
        try:
            framing.receive(link)
        except framing.Closed:
            link.close()
"""
TRAIN = "import torch\nprint('ready', flush=True)\nwhile True: pass\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(TRAIN)
    return file


@contextmanager
def preloaded(
    tmp_path: Path, *words: str, plan: dict[str, object] | None = None, python: str = sys.executable
) -> Iterator[tuple[subprocess.Popen[str], preloaded_agent.Prepared]]:
    """A command with the listening agent preloaded."""
    entries = probe_bundle(tmp_path / "probe", main=LISTENING_AGENT)
    env = {**environment(tmp_path), "PYTHONPATH": str(STANDIN)}
    runtime = tmp_path / "run" / "autobrrr"
    prepared = preloaded_agent.prepare(plan, env, runtime, entries=entries)
    started = subprocess.Popen(
        [python, *words], env=prepared.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout.readline() == "ready\n", started.communicate()
        yield started, prepared
    finally:
        started.kill()
        started.communicate()
        prepared.remove()


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize("version", by_day(sorted(interpreters()), lambda version: version not in RARE))
def test_attach_joins_the_agent_that_came_with_the_process(
    version: str, script: Path, tmp_path: Path
) -> None:
    with preloaded(tmp_path, str(script), python=interpreters()[version]) as (started, _):
        eventually(lambda: preloaded_agent.listening(started.pid))
        for _ in range(2):
            link = enter(started.pid)
            assert (link.attach.method, link.attach.pause_ns) == ("preload", 0)
            assert link.facts.script == str(script)
            assert link.facts.python.startswith(version)
            link.socket.close()
            os.close(link.ring_fd)


def test_the_script_finds_its_plan_reported_torch_as_it_was_and_no_agent_in_its_children(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import glob, multiprocessing, os, sys, time\n"
        "def work(out):\n"
        "    import torch\n"
        "    time.sleep(0.5)\n"
        "    out.put(len(os.listdir('/proc/self/task')))\n"
        "if __name__ == '__main__':\n"
        "    folder = os.environ['PYTHONPATH'].split(':')[0]\n"
        "    for how in ('fork', 'spawn'):\n"
        "        context = multiprocessing.get_context(how)\n"
        "        out = context.SimpleQueue()\n"
        "        child = context.Process(target=work, args=(out,)); child.start(); child.join()\n"
        "        assert out.get() == 1\n"
        "    import torch\n"
        "    (found,) = glob.glob(folder + '/outcome-*')\n"
        "    assert 'gc.freeze' in open(found).read()\n"
        "    assert type(torch.__loader__).__module__ == '_frozen_importlib_external', torch.__loader__\n"
        "    assert torch.__spec__.loader is torch.__loader__\n"
        "    assert not [finder for finder in sys.meta_path if 'Watcher' in repr(finder)]\n"
        "    assert not [entry for entry in sys.path if '/run-' in entry]\n"
        "    print('ready', flush=True)\n"
        "    while True: pass\n"
    )
    with preloaded(tmp_path, str(script), plan={"gc.freeze": True}) as (started, _):
        assert threads(started.pid) == 2


def test_an_existing_sitecustomize_still_runs(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys\nsys.came_first = 'yes'\n")
    env = {**environment(tmp_path), "PYTHONPATH": str(theirs)}
    prepared = preloaded_agent.prepare(None, env, tmp_path / "run" / "autobrrr")
    asked = "import sys, sitecustomize; print(sys.came_first, sitecustomize.__file__)"
    done = ran([sys.executable, "-c", asked], env=prepared.environment, check=True)
    assert done.stdout == f"yes {theirs / 'sitecustomize.py'}\n"
    assert done.stderr == ""


@pytest.mark.parametrize("version", by_day(sorted(interpreters()), lambda version: version not in RARE))
def test_a_python_without_torch_or_sitecustomize_notices_nothing(version: str, tmp_path: Path) -> None:
    prepared = preloaded_agent.prepare(None, environment(tmp_path), tmp_path / "run" / "autobrrr")
    done = ran(
        [interpreters()[version], "-W", "error", "-c", "print(1)"], env=prepared.environment, check=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    ("ending", "code"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0), ("1/0", 1)],
)
def test_the_exit_code_is_the_commands(ending: str, code: int, tmp_path: Path) -> None:
    done = autobrrr(tmp_path, "run", "--json", "--", sys.executable, "-c", f"print('own output')\n{ending}")
    assert done.code == code
    assert done.json["exit_code"] == code
    assert done.json["schema"] == 1
    assert done.json["remedies"] == []
    assert done.json["step_ns"] is None
    assert not list((tmp_path / "run" / "autobrrr").glob("run-*"))


def test_a_signal_to_run_reaches_the_command_once_and_leaves_no_folder(tmp_path: Path) -> None:
    counts = (
        "import signal, time\ncount = 0\n"
        "def more(*_):\n    global count\n    count += 1\n"
        "signal.signal(signal.SIGTERM, more)\nprint('ready', flush=True)\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: time.sleep(0.01)\n"
        "raise SystemExit(40 + count)"
    )
    started = subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "run", "--", sys.executable, "-c", counts],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    with started.stdout:
        assert started.stdout.readline() == "ready\n"
    time.sleep(0.2)
    started.send_signal(signal.SIGTERM)
    assert started.wait(20) == 41
    assert not list((tmp_path / "run" / "autobrrr").glob("run-*"))


def test_a_command_whose_reader_has_gone_ends_as_in_a_shell(tmp_path: Path) -> None:
    done = autobrrr(tmp_path, "run", "--", "bash", "-c", "yes | head -1; exit ${PIPESTATUS[0]}")
    assert (done.stdout, done.code) == ("y\n", 128 + signal.SIGPIPE)
    assert "Broken pipe" not in done.stderr


def test_ranks_of_a_launcher_are_armed_and_it_is_not(script: Path, tmp_path: Path) -> None:
    launcher = tmp_path / "torchrun"
    launcher.write_text(
        "import os, subprocess, sys, torch\n"
        "ranks = [subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, 'RANK': str(rank),\n"
        "         'LOCAL_RANK': str(rank)}, stdout=subprocess.PIPE) for rank in range(2)]\n"
        "for rank in ranks: rank.stdout.readline()\n"
        "print('ready', flush=True)\n"
        "import signal; signal.pause()\n"
    )
    script.write_text(
        "import os, time, torch\nparent = os.getppid()\nprint('ready', flush=True)\n"
        "while os.getppid() == parent: time.sleep(0.01)\n"
    )
    with preloaded(tmp_path, str(launcher), str(script)) as (started, prepared):
        eventually(lambda: len(list(prepared.folder.glob("outcome-*"))) == 2)
        names = sorted(path.name.rsplit("-", 1)[0] for path in prepared.folder.glob("outcome-*"))
        assert names == ["outcome-0", "outcome-1"]
        assert threads(started.pid) == 1
