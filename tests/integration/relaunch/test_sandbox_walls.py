"""Walls around a trial: the user's tree is the same to the byte afterwards, whoever was killed when."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autobrrr.errors import AutobrrrError
from autobrrr.relaunch.trial import live_trial, trial_factory
from autobrrr.relaunch.trial.live_trial import Limits, LiveTrial
from support import relaunch
from support.training import ran

pytestmark = pytest.mark.integration
WRITES = """
import os, sys, time
os.remove("notes.txt")
open("train.log", "w").write("epoch 1")
os.makedirs("runs/deep"); open("runs/deep/model.pt", "wb").write(b"w" * 1000)
open("train.py", "a").write("# changed")
os.rename("data.bin", "moved.bin")
os.chmod("moved.bin", 0o600)
open("/tmp/autobrrr-test-" + str(os.getpid()), "w").write("x")
open("/dev/shm/autobrrr-test-" + str(os.getpid()), "w").write("x")
print("written", os.getuid(), sorted(os.listdir(".")), flush=True)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def walls_are_possible(tmp_path: Path) -> None:
    if why := relaunch.no_walls(tmp_path):
        pytest.skip(f"no overlay in a namespace here: {why}")


def tree(tmp_path: Path) -> Path:
    file = relaunch.script(tmp_path / "user", WRITES)
    (file.parent / "data.bin").write_bytes(os.urandom(5000))
    return file


def begin(file: Path, tmp_path: Path, size_bytes: int = 64 << 20, extra: tuple[Path, ...] = ()) -> LiveTrial:
    folders = [str(tmp_path / "run" / "t"), *map(str, extra)]
    fence = {"size_bytes": size_bytes, "needed": [str(file.parent)], "open_folders": folders}
    return live_trial.start(relaunch.launch(file), tmp_path / "run" / "t", Limits(grace_s=0.3), fence)


def until_printed(trial: LiveTrial, words: str = "") -> None:
    deadline = time.monotonic() + 60
    while (
        not any(words in line for line in trial.lines)
        and trial.ending is None
        and time.monotonic() < deadline
    ):
        trial.look()
        time.sleep(0.005)


def test_the_script_sees_its_changes_and_the_user_none(tmp_path: Path) -> None:
    file = tree(tmp_path)
    before, outside = (
        relaunch.fingerprint(file.parent),
        (set(os.listdir("/tmp")), set(os.listdir("/dev/shm"))),
    )
    trial = begin(file, tmp_path)
    try:
        until_printed(trial, "]")
        assert trial.lines[0].startswith(
            f"written {os.getuid()} ['moved.bin', 'runs', 'train.log', 'train.py']"
        )
    finally:
        trial.close()
    assert relaunch.fingerprint(file.parent) == before
    for folder, earlier in zip(("/tmp", "/dev/shm"), outside, strict=True):
        assert not [name for name in set(os.listdir(folder)) - earlier if name.startswith("autobrrr-test")]


def test_with_its_keeper_all_of_a_trial_ends(tmp_path: Path) -> None:
    text = "import os, time\nos.fork()\nos.setsid()\nprint('up', flush=True)\ntime.sleep(100)"
    trial = begin(relaunch.script(tmp_path / "user", text), tmp_path)
    try:
        until_printed(trial, "up")
        os.kill(trial.keeper.pid, signal.SIGKILL)
        while trial.ending is None:
            trial.look()
        assert trial.ending.kind == "crash"
    finally:
        trial.close()
    assert relaunch.alive(tmp_path / "run") == []


def test_a_script_that_writes_too_much_finds_the_disk_full(tmp_path: Path) -> None:
    text = "open('large', 'wb').write(b'x' * (8 << 20))"
    trial = begin(relaunch.script(tmp_path / "user", text), tmp_path, size_bytes=2 << 20)
    try:
        assert not trial.warm_up()
        assert trial.ending.kind == "disk_full"
    finally:
        trial.close()


def test_an_open_folder_is_the_real_one_and_output_is_kept_on_demand(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    text = (
        f"open({str(shared / 'cache')!r}, 'w').write('kept')\nopen('model.pt', 'w').write('weights')\n"
        "import time; print('up', flush=True); time.sleep(100)"
    )
    file = relaunch.script(tmp_path / "user", text)
    trial = begin(file, tmp_path, extra=(shared,))
    until_printed(trial)
    trial.close(keep=shared)
    assert (shared / "cache").read_text() == "kept"
    assert not isinstance(trial.kept, str)
    assert (shared / str(file.parent).lstrip("/") / "model.pt").read_text() == "weights"
    assert not (file.parent / "model.pt").exists()


def test_a_folder_for_kept_output_is_the_user_s_and_no_trial_writes_into_it(tmp_path: Path) -> None:
    text = (
        "import os\nprint(open('runs/last.pt').read(), flush=True)\n"
        "open('runs/last.pt', 'w').write('of a trial')\nopen('runs/new.pt', 'w').write('of a trial')\n"
        "print('up', flush=True)\nimport time; time.sleep(100)"
    )
    file = relaunch.script(tmp_path / "user", text)
    runs = file.parent / "runs"
    runs.mkdir()
    (runs / "last.pt").write_text("of the user")
    with relaunch.factory(tmp_path, relaunch.launch(file), kept=runs) as stable:
        trial = stable.start()
        until_printed(trial, "up")
        assert [(each.name, each.read_text()) for each in runs.iterdir()] == [("last.pt", "of the user")]
        trial.close(keep=runs)
    assert not isinstance(trial.kept, str)
    assert (runs / "last.pt").read_text() == "of the user"
    kept = runs / str(runs).lstrip("/")
    assert (kept / "last.pt").read_text() == (kept / "new.pt").read_text() == "of a trial"


def test_a_user_without_rights_gets_the_same_walls(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("the other tests run without rights")
    base = Path("/tmp") / f"autobrrr-walls-{os.getpid()}"
    base.mkdir(mode=0o777)
    try:
        (base / "w").mkdir()
        os.chown(base / "w", 65534, 65534)
        (base / "u").mkdir()
        os.chown(base / "u", 65534, 65534)
        code = (
            "import ctypes, os, sys; from autobrrr.relaunch.sandbox import overlay_mounts as walls\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "ctypes.CDLL(None).prctl(4, 1)  # /proc/self is its own again, as after a login\n"
            "w, u = sys.argv[1:]\n"
            "walls.raise_walls(size_bytes=1 << 20, folder=w, needed=[u], open_folders=[])\n"
            "open(u + '/x', 'wb').write(b'1'); print(os.getuid(), os.listdir(u))\n"
        )
        done = ran(
            [sys.executable, "-c", code, str(base / "w"), str(base / "u")],
            cwd=Path(__file__).resolve().parents[3],
        )
        if "Operation not permitted" in done.stderr:
            pytest.skip("no user namespaces here")
        assert done.stdout == "65534 ['x']\n", done.stderr
        assert os.listdir(base / "u") == []
    finally:
        subprocess.run(["rm", "-rf", str(base)], check=True)


def test_where_no_overlay_is_possible_a_study_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = relaunch.launch(tree(tmp_path))
    monkeypatch.setattr(trial_factory, "walls", lambda *_, **__: {"size_bytes": 1 << 20, "needed": ["/proc"]})
    with (
        relaunch.factory(tmp_path, launch) as stable,
        pytest.raises(AutobrrrError, match="no overlay is possible over /proc") as refused,
    ):
        stable.start()
    assert "--allow-writes" in refused.value.hint
