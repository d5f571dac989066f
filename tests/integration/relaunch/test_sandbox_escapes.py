"""Accidents of a script within a trial's walls: none changes a file of the user's or leaves a process."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.errors import AutobrrrError
from autobrrr.relaunch.trial.live_trial import LiveTrial
from support import relaunch

pytestmark = pytest.mark.integration
WAYS = r"""
import ctypes, mmap, os, shutil, signal, subprocess, sys, time
HOME, SHARED = sys.argv[1:3]
SEGMENT, OUTSIDER, STUDY = map(int, sys.argv[3:])
FILE, libc = HOME + "/precious.bin", ctypes.CDLL(None, use_errno=True)
GO_ON = [sys.executable, "-c", "import time; time.sleep(1000)", HOME]

def call(found):
    if found == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found

def writes_to_home(): open(FILE, "w").write("gone")
def writes_to_tmp(): open(os.path.dirname(HOME) + "/left", "w").write("left")
def forks_twice():
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.execve(sys.executable, GO_ON, {})
        os._exit(0)
def starts_daemons():
    subprocess.Popen(["nohup", *GO_ON], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={})
def changes_the_mode(): os.chmod(FILE, 0o777)
def renames(): os.rename(HOME, HOME + "-moved")
def maps_the_file():
    with open(FILE, "r+b") as file, mmap.mmap(file.fileno(), 0) as seen:
        seen[:4] = b"gone"; seen.flush()
def goes_by_a_link():
    os.symlink(FILE, "link"); open("link", "w").write("gone")
def truncates(): os.truncate(FILE, 0)
def kills_an_outsider():
    for pid in (OUTSIDER, STUDY):
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
def writes_shared_memory(): open(SHARED, "w").write("gone")
def removes_a_segment(): call(libc.shmctl(SEGMENT, 0, None))
def removes_the_tree(): shutil.rmtree(HOME)

ways = [each for name, each in list(globals().items()) if type(each) is type(call) and each is not call]
if not os.fork():  # and one that outlives the end of the script
    for number in range(1, 32):
        try: signal.signal(number, signal.SIG_IGN)
        except OSError: pass
    time.sleep(1000)
for way in ways:
    if not os.fork():
        try: way()
        except OSError as error: print(way.__name__, error, flush=True)
        os._exit(0)
    os.wait()
print("tried", len(ways), flush=True)
time.sleep(1000)
"""


@pytest.fixture
def segment() -> Iterator[int]:
    libc = ctypes.CDLL(None)
    found = libc.shmget(0, 4096, 0o1600)
    yield found
    libc.shmctl(found, 0, None)


@pytest.fixture
def outsider() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
        yield process
        process.kill()


def test_no_accident_changes_a_file_or_leaves_a_process(
    tmp_path: Path, segment: int, outsider: subprocess.Popen[bytes]
) -> None:
    home, shared = tmp_path / "home", Path(f"/dev/shm/autobrrr-test-{os.getpid()}")
    home.mkdir()
    (home / "precious.bin").write_bytes(os.urandom(4096))
    shared.write_text("of the user")
    file = relaunch.script(tmp_path / "user", WAYS)
    before = relaunch.fingerprint(tmp_path)
    words = [str(home), str(shared), str(segment), str(outsider.pid), str(os.getpid())]
    try:
        trial = tried(tmp_path, file, words)
        assert trial.lines[-1] == "tried 13", trial.ending
        assert before.items() <= relaunch.fingerprint(tmp_path).items()
        assert not (tmp_path / "left").exists()
        assert shared.read_text() == "of the user"
    finally:
        shared.unlink()
    assert outsider.poll() is None
    assert ctypes.CDLL(None).shmat(segment, None, 0o10000) != -1
    assert relaunch.alive(home) == relaunch.alive(tmp_path / "run") == []
    assert not [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if names(pid, str(home))]


def tried(tmp_path: Path, file: Path, words: list[str], *, network: bool = True) -> LiveTrial:
    """A trial of the script until it has nothing more to say, which is closed then."""
    with relaunch.factory(tmp_path, relaunch.launch(file, *words), network=network) as stable:
        try:
            trial = stable.start()
        except AutobrrrError as refused:
            pytest.skip(f"no walls here: {refused}")
        deadline = time.monotonic() + 60
        while trial.ending is None and time.monotonic() < deadline:
            trial.look()
            if any(line.startswith("tried") for line in trial.lines):
                break
            time.sleep(0.01)
    return trial


def names(pid: int, word: str) -> bool:
    try:
        return os.fsencode(word) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_without_network_there_is_a_loopback_of_its_own(tmp_path: Path) -> None:
    text = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()):
    print("loopback", [name for _, name in socket.if_nameindex()])
try:
    socket.create_connection(("192.0.2.1", 80), 5)
except OSError as error:
    print("tried", error.errno, flush=True)
time.sleep(1000)
"""
    trial = tried(tmp_path, relaunch.script(tmp_path / "user", text), [], network=False)
    assert trial.lines[0].startswith("loopback ['lo'")
    assert trial.lines[1] == "tried 101"
