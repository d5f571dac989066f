"""Does a job on a GPU that was judged and left train to the same bits as one that nobody touched?

Weights, optimizer state and the device's random state, of four kinds of jobs: twice alone, then with attach,
diagnose, a profiler window and detach. And attach and detach again and again: each must come and go.
"""

import subprocess

from benchmarks.gpu.live_session import Measure, job, said
from benchmarks.planted.job_process import own_folders, product

STEPS = 6000
KINDS = ("plain", "amp", "loader", "accumulate")
ROUNDS = 40


def bits(kind: str) -> dict[str, object]:
    words = ["benchmarks/gpu/bits_job.py", kind, str(STEPS)]
    alone = []
    with own_folders() as environment:
        for _ in range(2):
            with job(words, environment) as running:
                alone.append(said(running, "bits")[1:])
        with job(words, environment) as running:
            said(running, "trains")
            found = product(environment, "diagnose", str(running.pid), "--window", "--for", "15s")
            still = running.poll() is None
            touched = said(running, "bits")[1:]
    window = found.get("window")
    return {
        "same_alone": alone[0] == alone[1],
        "same_touched": touched == alone[0],
        "left_before_its_end": still,
        "window": {name: window.get(name) for name in ("status", "why", "cupti", "stall_ns")}
        if isinstance(window, dict)
        else None,
        "regime": found["regime"],
    }


def comes_and_goes() -> dict[str, object]:
    words = ["benchmarks/gpu/bits_job.py", "plain", str(10**9)]
    done = 0
    with own_folders() as environment, job(words, environment) as running:
        said(running, "trains")
        for _ in range(ROUNDS):
            product(environment, "diagnose", str(running.pid), "--for", "1s")
            if running.poll() is not None:
                break
            done += 1
        threads = subprocess.run(
            ["ls", f"/proc/{running.pid}/task"], capture_output=True, text=True, check=False
        )
        return {"rounds": done, "of": ROUNDS, "threads": len(threads.stdout.split())}


HARMS: dict[str, Measure] = {
    **{f"bits of {kind}": (lambda kind=kind: bits(kind)) for kind in KINDS},
    "comes and goes": comes_and_goes,
}
