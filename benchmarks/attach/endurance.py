"""Does attaching ever wear a job out? Many attach/detach cycles, then many killed sidecars.

    python -m benchmarks.attach.endurance [--cycles 500] [--kills 100] [--shard 50] [--into ROWS.jsonl]
        [--for SECONDS]

A real training job for each shard. After every cycle and kill its threads and open files must be what they
were; a shard ends with a cycle, after which no socket may lie in its folder either. Its weights must be, to
the bit, those of a run of as many steps that was never attached. A sidecar is killed at any moment from its
first on: while it enters (the agent is not in the job yet), or inside, while it watches, traces and probes.
With `--into` each shard adds a row, and the same command goes on where it was cut off, as long as the sources
are the same; `--for` ends the shard that is under way. Prints one JSON line a part; exit code 1 where
anything differs. `grown_bytes` is the memory of the job after all over that before the first, which holds
what the first session loads once; `grown_later_bytes` that of the second half of the shard.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks import parser
from benchmarks.planted.results import append, read, revision
from support import training

PATIENCE_S = 60.0  # a busy machine is no fault
START_S = 60.0  # until the sidecar of an attach is there
ENTERING_S, INSIDE_S = 1.5, 12.0  # after its first moment, at most, a sidecar is killed
SOURCES = ("autobrrr",)
Row = dict[str, Any]
Act = Callable[[Path, int], str]  # does it once; at which stage it was


def main() -> int:
    flags = parser(__doc__)
    flags.add_argument("--cycles", type=int, default=500, help="in all pieces")
    flags.add_argument("--kills", type=int, default=100, help="in all pieces")
    flags.add_argument("--shard", type=int, default=50, help="cycles or kills of one job")
    flags.add_argument("--into", type=Path, help="file of the rows")
    flags.add_argument("--for", dest="for_s", type=float, default=math.inf, help="seconds")
    args = flags.parse_args()
    until_s = time.monotonic() + args.for_s
    of = revision(sources=SOURCES)
    rows = read(args.into, of)
    parts: dict[str, tuple[int, Act]] = {"cycles": (args.cycles, cycle), "kills": (args.kills, kill)}
    told = []
    for name, (count, act) in parts.items():
        while (left := missing(name, count, rows)) and time.monotonic() < until_s:
            row = {"part": name, "revision": of, **endure(min(left, args.shard), act, until_s)}
            rows.append(row)
            append(args.into, row)
        told.append({**summary(name, rows), "missing": missing(name, count, rows)})
        print(json.dumps(told[-1]), flush=True)
    return int(any(one["left_something"] or not one["same_bits"] for one in told))


def missing(part: str, count: int, rows: Sequence[Row]) -> int:
    """How many are still to be done."""
    return max(0, count - sum(int(row["times"]) for row in rows if row["part"] == part))


def summary(part: str, rows: Sequence[Row]) -> Row:
    """All shards of a part as one; memory is that of the worst shard."""
    found = [row for row in rows if row["part"] == part]
    stages: Counter[str] = Counter()
    for row in found:
        stages.update(row["stages"])
    return {
        "part": part,
        "times": sum(row["times"] for row in found),
        "shards": len(found),
        "stages": dict(stages),
        "left_something": sum(row["left_something"] for row in found),
        "same_bits": all(row["same_bits"] for row in found),
        "steps": sum(row["steps"] for row in found),
        "grown_bytes": max((row["grown_bytes"] for row in found), default=0),
        "grown_later_bytes": max((row.get("grown_later_bytes") or 0 for row in found), default=0),
    }


def endure(count: int, act: Act, until_s: float) -> Row:
    """Do it `count` times to one job, or until the time is up, and once at least."""
    stages: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="endurance-") as place:
        folder = Path(place)
        job = training.start("plain", folder)
        try:
            before, differing = footprint(job.pid), 0
            rss_before = psutil.Process(job.pid).memory_info().rss
            half_bytes: int | None = None
            while not stages or (stages.total() < count and time.monotonic() < until_s):
                stages[act(folder, job.pid)] += 1
                differing += not settles(lambda: footprint(job.pid) == before)
                if stages.total() == count // 2:
                    half_bytes = rss_bytes(job.pid)
            cycle(folder, job.pid)  # it takes away what killed ones could not
            differing += not settles(lambda: footprint(job.pid) == before and not sockets(folder))
            rss_after = rss_bytes(job.pid)
            trained = job.finish()
        finally:
            job.kill()
        reference = training.start("plain", folder, "--steps", str(trained.steps))
        try:
            same = reference.finish(3600) == trained
        finally:
            reference.kill()
    return {
        "times": stages.total(),
        "stages": dict(stages),
        "left_something": differing,
        "same_bits": same,
        "steps": trained.steps,
        "grown_bytes": rss_after - rss_before,
        "grown_later_bytes": None if half_bytes is None else rss_after - half_bytes,
    }


def cycle(folder: Path, pid: int) -> str:
    """Attach, watch for a moment, detach."""
    for words in (("attach", str(pid), "--for", "200ms", "--json"), ("detach", str(pid))):
        outcome = training.autobrrr(folder, *words)
        assert outcome.code == 0, outcome.stderr
    return "watching"


def kill(folder: Path, pid: int) -> str:
    """Attach, and kill the sidecar: every other time soon after its first moment, while it enters."""
    command = subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "attach", str(pid), "--probe", "--for", "20s", "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=training.environment(folder),
    )
    try:
        before = footprint(pid)
        if settles(lambda: bool(sidecars(folder)), START_S):
            time.sleep(random.uniform(0, random.choice((ENTERING_S, INSIDE_S))))
        stage = "entering" if footprint(pid) == before else "inside"
        for process in sidecars(folder):
            process.send_signal(signal.SIGKILL)
        command.wait(60)
    finally:
        command.kill()
        command.wait()
    return stage


def sidecars(folder: Path) -> list[psutil.Process]:
    """Those of sessions of this benchmark."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("XDG_RUNTIME_DIR") == str(folder / "run")
            if ours and "autobrrr.sidecar" in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def sockets(folder: Path) -> list[str]:
    """Sockets and locks that lie in the runtime folder."""
    return [each.name for each in (folder / "run").rglob("*.sock*")]


def rss_bytes(pid: int) -> int:
    """The least that is seen for some seconds, in which the last agent's thread ends."""
    looks = []
    for _ in range(50):
        looks.append(psutil.Process(pid).memory_info().rss)
        time.sleep(0.1)
    return min(looks)


def footprint(pid: int) -> tuple[int, int]:
    """Open files and threads."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def settles(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
    """Whether it holds within some seconds."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


if __name__ == "__main__":
    sys.exit(main())
