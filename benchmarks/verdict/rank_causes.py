"""Is the late rank named, and why it is late; is none named in a quiet job?

    python -m benchmarks.verdict.rank_causes [--only CAUSE ...] [--repeat N]

Each case is a job of gloo ranks on this machine (`jobs/late_rank_job.py`) with one planted cause; then
`autobrrr diagnose LAUNCHER`. A row of `results/rank-causes.jsonl` says what was planted and what was said;
the table goes beside it.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from autobrrr.attach.job_roles import launched_ranks
from benchmarks import ROOT
from benchmarks.planted.results import append, read
from support.torchrun import TORCHRUN, Torchrun
from support.training import autobrrr

JOB = ROOT / "benchmarks" / "jobs" / "late_rank_job"
RESULTS = ROOT / "benchmarks" / "results" / "rank-causes.jsonl"
TABLE = RESULTS.with_suffix(".md")
SAID = ("rank", "cause", "phase", "when", "why", "costs_ms", "step_ms", "steps", "load", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job, and what is to be said of it: rank, cause, when."""

    plant: str
    rank: int | None
    cause: str | None
    when: str | None = "always"
    ranks: int = 2
    late: int = 1
    buffers: bool = False  # rank 0 hands its buffers to the others before each forward
    burns: bool = False  # another process has the late rank's core half of the time


CASES = {
    "loader": Case(plant="loader", rank=1, cause="loader"),
    "forward": Case(plant="forward", rank=1, cause="forward"),
    "backward": Case(plant="backward", rank=1, cause="backward"),
    "optimizer": Case(plant="optimizer", rank=1, cause="optimizer"),
    "gc": Case(plant="gc", rank=1, cause="garbage_collection"),
    "cpu": Case(plant="cpu", rank=1, cause="cpu_taken", burns=True),
    "uneven": Case(plant="uneven", rank=1, cause="uneven_data"),
    "uneven_in_turn": Case(plant="uneven_in_turn", rank=None, cause="uneven_data", when=None),
    "own_code": Case(plant="own_code", rank=1, cause="own_code"),
    "copies": Case(plant="copies", rank=1, cause="own_code"),  # they are made between loading and forward
    "checkpoint": Case(plant="checkpoint", rank=1, cause="own_code", when="now_and_then"),
    "collectives": Case(plant="collectives", rank=None, cause="collectives", when=None),
    "synced": Case(plant="synced", rank=None, cause="synced_backwards", when=None),
    "loader_buffers": Case(plant="loader", rank=0, cause="loader", late=0, buffers=True),
    "quiet": Case(plant="quiet", rank=None, cause=None, when=None),
    "quiet_cpu": Case(plant="cpu_quiet", rank=None, cause=None, when=None),
    "forward_of_4": Case(plant="forward", rank=1, cause="forward", ranks=4),
    "loader_of_4": Case(plant="loader", rank=1, cause="loader", ranks=4),
    "checkpoint_of_4": Case(plant="checkpoint", rank=1, cause="own_code", when="now_and_then", ranks=4),
    "quiet_of_4": Case(plant="quiet", rank=None, cause=None, when=None, ranks=4),
    "backward_of_8": Case(plant="backward", rank=1, cause="backward", ranks=8),
    "quiet_of_8": Case(plant="quiet", rank=None, cause=None, when=None, ranks=8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was said of one case."""

    case: str
    verdict: str  # right, silent: no rank or no cause named, wrong, failed
    rank: int | None = None
    cause: str | None = None
    phase: str | None = None
    when: str | None = None
    why: str | None = None
    costs_ms: float | None = None
    step_ms: float | None = None
    steps: int = 0
    took_s: float = 0.0
    load: float = 0.0  # of the machine, in the last minute


@contextlib.contextmanager
def launched(case: Case, folder: Path) -> Iterator[Torchrun]:
    """The job, once all of its ranks train; ended with all that it started."""
    job = Torchrun(
        folder,
        launcher=(*TORCHRUN[:-1], str(case.ranks)),
        script=str(JOB),
        ranks=case.ranks,
        CAUSE=case.plant,
        LATE=str(case.late),
        BUFFERS="1" if case.buffers else "",
    )
    try:
        job.wait_until_it_trains()
        yield job
    finally:
        job.kill()


@contextlib.contextmanager
def burning(case: Case, launcher: int) -> Iterator[None]:
    """Each rank on a core of its own; a foreign process on that of the late one."""
    if "cpu" not in case.plant:
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    ranks = launched_ranks(launcher)
    for number, pid in enumerate(ranks):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cores[number % len(cores)]})
    if not case.burns:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(other.pid, {cores[1 % len(cores)]})
    try:
        yield
    finally:
        other.kill()
        other.wait()


def play(name: str, case: Case, folder: Path) -> Row:
    """One case from beginning to end."""
    began_s = time.monotonic()
    with launched(case, folder) as job, burning(case, job.process.pid):
        done = autobrrr(folder, "diagnose", job.pid, "--no-probe", "--for", "12s", "--json")
    load = round(os.getloadavg()[0], 2)
    if done.code != 0 or not isinstance(late := done.json.get("straggler"), dict):
        print(done.stderr[-400:], file=sys.stderr)
        return Row(case=name, verdict="failed", load=load)
    said = (late["rank"], late["cause"], late["when"])
    quiet = case.rank is None and case.cause is None
    if said == (case.rank, case.cause, case.when) or (quiet and late["rank"] is None):
        verdict = "right"
    elif late["rank"] in (None, case.rank) and late["cause"] is None:
        verdict = "silent"
    else:
        verdict = "wrong"
    return Row(
        case=name,
        verdict=verdict,
        **{name: late[name] for name in ("rank", "cause", "phase", "when", "why", "steps")},
        costs_ms=_ms(late["costs_ns"]),
        step_ms=_ms(late["step_ns"]),
        took_s=round(time.monotonic() - began_s, 1),
        load=load,
    )


def _ms(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 2)


def table(rows: list[Row]) -> str:
    lines = [
        "| planted | rank | cause | when | said: rank | cause | phase | when | why none "
        "| costs, ms | step, ms | steps | load | verdict |",
        "|" + "---|" * 14,
    ]
    for row in rows:
        case, said = CASES[row.case], asdict(row)
        cells = [row.case, case.rank, case.cause, case.when, *(said[name] for name in SAID)]
        lines.append("| " + " | ".join("-" if each is None else str(each) for each in cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "home"
        folder.mkdir()
        for name in args.only * args.repeat:
            row = play(name, CASES[name], folder)
            print(row, flush=True)
            append(RESULTS, asdict(row))
    rows = [Row(**each) for each in read(RESULTS) if each["case"] in CASES]
    TABLE.write_text(table(rows) + "\n")
    print(table(rows))
    return 1 if any(row.verdict == "wrong" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
