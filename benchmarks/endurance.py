"""Does attaching ever wear a job out? Many attach/detach cycles, then many killed sidecars.

    python benchmarks/endurance.py [--cycles 500] [--kills 100]

One real training job for each part. After every cycle and kill its threads and open files must be
what they were; at the end its weights must be, to the bit, those of a run of as many steps that was
never attached. Prints one JSON line a part; exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support import training  # noqa: E402

PATIENCE_S = 8.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--kills", type=int, default=100)
    args = parser.parse_args()
    parts = {"cycles": (args.cycles, cycle), "kills": (args.kills, kill)}
    fine = True
    for name, (count, act) in parts.items():
        fine &= endure(name, count, act)
    return int(not fine)


def endure(name: str, count: int, act: Callable[[Path, int], None]) -> bool:
    """Do it `count` times to one job; prints what came of it."""
    with tempfile.TemporaryDirectory(prefix="endurance-") as place:
        folder = Path(place)
        job = training.start("plain", folder, "--collect-every", "500")
        try:
            before, differing = footprint(job.pid), 0
            rss_before = psutil.Process(job.pid).memory_info().rss
            for _ in range(count):
                act(folder, job.pid)
                differing += not settles(lambda: footprint(job.pid) == before)
            grown = psutil.Process(job.pid).memory_info().rss - rss_before
            trained = job.finish()
        finally:
            job.kill()
        reference = training.start("plain", folder, "--steps", str(trained.steps))
        same = reference.finish(3600) == trained
        reference.kill()
    fine = same and not differing
    result = {"part": name, "times": count, "left_something": differing, "same_bits": same}
    print(json.dumps({**result, "steps": trained.steps, "grown_bytes": grown}), flush=True)
    return fine


def cycle(folder: Path, pid: int) -> None:
    """Attach, watch for a moment, detach."""
    for words in (("attach", str(pid), "--for", "200ms", "--json"), ("detach", str(pid))):
        outcome = training.autobrrr(folder, *words)
        assert outcome.code == 0, outcome.stderr


def kill(folder: Path, pid: int) -> None:
    """Attach, and kill the sidecar at a random moment of what it does first."""
    outcome = training.autobrrr(folder, "attach", str(pid), "--for", "1ms", "--json")
    assert outcome.code == 0, outcome.stderr
    time.sleep(random.uniform(0, 4))
    runtime = str(folder / "run")
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("XDG_RUNTIME_DIR") == runtime
            if ours and "autobrrr.sidecar" in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
        except (psutil.Error, OSError):
            continue


def footprint(pid: int) -> tuple[int, int]:
    """Open files and threads."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def settles(holds: Callable[[], bool]) -> bool:
    """Whether it holds within some seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


if __name__ == "__main__":
    sys.exit(main())
