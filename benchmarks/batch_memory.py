"""What twice the batch takes of memory: as the probe foretells it, and as the script really takes it.

Each job runs alone at B and at 2B for a few steps; the difference of their peaks is the truth. Then the probe
of the job at B tells its own, from what two replays keep for their backward.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.planted.case import Case, Knob
from benchmarks.planted.diagnosed import LIFE, SETTLE_S
from benchmarks.planted.job_process import PlantedJob, adopt_orphans, end_descendants, own_folders

STEPS = 12
MIB = 1 << 20
CASES = (
    Case(name="convolutions", job="conv", truth="compute", why="", knobs={"batch": 64}),
    Case(
        name="transformer",
        job="transformer",
        truth="compute",
        why="",
        knobs={"width": 256, "length": 64, "batch": 16, "layers": 3, "words": 1000},
    ),
    Case(name="mlp", job="mlp", truth="compute", why="", knobs={"depth": 12, "width": 512, "batch": 1024}),
)


def main() -> None:
    adopt_orphans()
    print("| job | B | peak at B, MiB | at 2B | truly more | foretold | largest batch foretold |")
    print("|---|---|---|---|---|---|---|")
    try:
        with own_folders() as environment:
            for case in CASES:
                print(_row(case, environment), flush=True)
    finally:
        end_descendants()


def _row(case: Case, environment: Mapping[str, str]) -> str:
    batch = int(case.knobs["batch"])
    single, double = (_peak_bytes(case, environment, {"batch": size}) for size in (batch, 2 * batch))
    foretold = largest = "-"
    with PlantedJob(case, environment=environment, over=LIFE) as job:
        job.wait_for_training()
        time.sleep(SETTLE_S)
        memory = _foretold(job.pid, environment)
        if memory:
            foretold = f"{(memory['peak_2x_bytes'] - memory['peak_bytes']) / MIB:.0f}"
            largest = str(memory["largest_batch"])
    return (
        f"| {case.name} | {batch} | {single / MIB:.0f} | {double / MIB:.0f} | {(double - single) / MIB:.0f} "
        f"| {foretold} | {largest} |"
    )


def _foretold(pid: int, environment: Mapping[str, str]) -> dict[str, int] | None:
    """`batch_probe.memory` of a running job."""
    words = [sys.executable, "-m", "autobrrr", "diagnose", str(pid), "--json", "--for", "25s"]
    done = subprocess.run(words, capture_output=True, text=True, env=dict(environment), check=False)
    found = json.loads(done.stdout or "{}")
    memory: dict[str, int] | None = (found.get("batch_probe") or {}).get("memory")
    return memory


def _peak_bytes(case: Case, environment: Mapping[str, str], over: Mapping[str, Knob]) -> int:
    """The largest resident size of a run of a few steps."""
    words = [sys.executable, "-m", case.module, *case.words(over), "--steps", str(STEPS)]
    process = subprocess.Popen(
        words, env={**environment, **case.environment()}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
