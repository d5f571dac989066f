"""CPU time of a sidecar between trials: at most 2 % of a core.

A process that only plays the agent steps at several rates; the sidecar watches it with nobody
listening, with one and with four subscribers. CPU time is read from `/proc`, after the course of
measurement is over.

    python -m benchmarks.cost.sidecar_load --for-s 20
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from autobrrr.client import session_client
from autobrrr.machine.procfs import stat
from autobrrr.records.session_requests import TakeSnapshot
from autobrrr.sidecar.process.session_options import SessionOptions
from benchmarks import ROOT
from support.training import environment

FAKE = ROOT / "tests" / "support" / "sessions" / "sidecar.py"
RATES_MS = (0.2, 2.0, 200.0)
LISTENERS = (0, 1, 4)
COURSE_S = 60.0
PROMISED = 2.0  # % of a core


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for-s", type=float, default=20.0, help="length of each measurement")
    args = parser.parse_args()
    print(f"{'step':>8} {'listeners':>9} {'CPU':>7} {'RSS':>7}   (promised: at most {PROMISED} %)")
    with tempfile.TemporaryDirectory(prefix="autobrrr-bench-") as name:
        folder = Path(name)
        os.environ.update(environment(folder))
        for step_ms in RATES_MS:
            measure(step_ms, args.for_s)


@contextmanager
def watched(step_ms: float) -> Iterator[int]:
    """The pid of a job that only plays the agent, whose session has judged it."""
    words = [sys.executable, str(FAKE), "--step-ms", str(step_ms), "--for-s", "600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout is not None
            job.stdout.readline()
            with session_client.open_session(job.pid, SessionOptions(probing="off")) as session:
                wait_for_verdict(session)
                yield job.pid
                session.detach()
        finally:
            job.kill()


def measure(step_ms: float, for_s: float) -> None:
    """One job at one rate, with each number of listeners."""
    with watched(step_ms) as pid:
        sidecar = sidecar_of(pid)
        for listeners in LISTENERS:
            share, rss_bytes = load(pid, sidecar, listeners, for_s)
            print(f"{step_ms:5.1f} ms {listeners:>9} {share:6.2f} % {rss_bytes >> 20:4d} MiB", flush=True)


def wait_for_verdict(session: session_client.Client) -> None:
    end_s = time.monotonic() + COURSE_S
    while session.ask(TakeSnapshot()).state != "judged" and time.monotonic() < end_s:
        time.sleep(0.2)


def load(pid: int, sidecar: int, listeners: int, for_s: float) -> tuple[float, int]:
    """Share of a core in percent, and resident memory, with so many subscribers."""
    done = threading.Event()
    ears = [threading.Thread(target=listen, args=(pid, done)) for _ in range(listeners)]
    for ear in ears:
        ear.start()
    time.sleep(1)
    try:
        return spent(sidecar, lambda: time.sleep(for_s))
    finally:
        done.set()
        for ear in ears:
            ear.join()


def spent(pid: int, wait: Callable[[], object]) -> tuple[float, int]:
    """Share of a core in percent and resident memory of a process, meanwhile."""
    began, began_s = stat(pid), time.monotonic()
    wait()
    ended, ended_s = stat(pid), time.monotonic()
    assert began is not None
    assert ended is not None
    return (ended.cpu_ns - began.cpu_ns) / 1e7 / (ended_s - began_s), ended.rss_bytes


def listen(pid: int, done: threading.Event) -> None:
    session = session_client.join(pid)
    assert session is not None
    with session:
        for _ in session.snapshots():
            if done.is_set():
                return


def sidecar_of(pid: int) -> int:
    """The sidecar of a job, by its command line."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if "autobrrr.sidecar" in words and str(pid) in words:
            return process.pid
    raise RuntimeError(f"process {pid} has no sidecar")


if __name__ == "__main__":
    main()
