"""What an attach that is killed while it enters leaves, the next one takes away."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autobrrr.attach.enter import enter
from support.attach import eventually
from support.training import EVERY, Finished, TrainingJob, environment, ran

pytestmark = pytest.mark.integration

ENTERS = """
import os, sys
from pathlib import Path
from autobrrr.attach import enter, target_folder as place

def killed_in(owner, name, after):
    whole = getattr(owner, name)
    def part(*words, **named):
        if after:
            whole(*words, **named)
        os.kill(os.getpid(), 9)
    setattr(owner, name, part)

made = place.TargetFolder.__init__

def named(self, *words, **options):
    made(self, *words, **options)
    print(self.path, flush=True)

place.TargetFolder.__init__ = named
owner = {"enter": enter, "Place": place.TargetFolder}[sys.argv[2]]
killed_in(owner, sys.argv[3], sys.argv[4] == "after")
enter.enter(int(sys.argv[1]))
"""
POINTS = {  # where the kill comes
    "the folder is made": ("Place", "write", "before"),
    "the bundle is written": ("enter", "inject", "before"),
    "the call is in": ("enter", "inject", "after"),
    "the agent has connected": ("enter", "hello_from", "before"),
    "the agent said hello": ("enter", "hello_from", "after"),
}


def rings(pid: int) -> list[str]:
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            continue
    return [each for each in found if "memfd:autobrrr" in each]


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.timeout(900)
def test_whenever_an_attach_is_killed_nothing_stays(
    job: Callable[..., TrainingJob], untouched: Callable[[int], Finished], tmp_path: Path
) -> None:
    trains = job("plain", *EVERY)
    alone = threads(trains.pid)
    for point, (owner, name, when) in POINTS.items():
        words = [str(trains.pid), owner, name, when]
        done = ran(
            [sys.executable, "-c", ENTERS, *words],
            env={**environment(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
            timeout=60,
        )
        assert done.returncode == -9, (point, done.stderr)
        eventually(lambda: threads(trains.pid) == alone and not rings(trains.pid))
        left = Path(done.stdout.strip())
        assert left.name.startswith("autobrrr-")
        link = enter(trains.pid)
        assert not left.exists(), point
        link.socket.close()
        os.close(link.ring_fd)
        eventually(lambda: threads(trains.pid) == alone)
    trained = trains.finish()
    assert trained == untouched(trained.steps)
