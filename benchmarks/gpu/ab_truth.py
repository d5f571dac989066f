"""Is a speed-up that `tune` claims on a GPU what a stopwatch shows, however far the host runs ahead?

One remedy, `optimizer.fused`, on a job that has weighed it on itself: host-bound, device-bound behind a full
queue, and reading its loss never, every step, every tenth and every fiftieth step. Right: nothing is kept
that is worth less than a percent, and what is claimed lies within 2 % of the truth or its interval holds it.
"""

import math

from benchmarks.gpu.live_session import Measure, job, said
from benchmarks.planted.job_process import own_folders, product

FOR_S = 25
CASES = {
    f"{layers} layers, device {sleep_us} us more, loss read every {every}": (layers, sleep_us, every)
    for layers, sleep_us, every in (
        (20, 0, 0),
        (20, 0, 1),
        (20, 20_000, 0),
        (20, 20_000, 1),
        (20, 20_000, 10),
        (60, 10_000, 0),
        (60, 10_000, 50),
        (4, 2_000, 10),
        (4, 0, 0),
        (4, 0, 1),
        (4, 5_000, 0),
        (10, 0, 10),
        (10, 2_000, 1),
        (10, 10_000, 50),
        (40, 0, 0),
        (40, 0, 50),
        (40, 20_000, 0),
        (60, 0, 1),
        (60, 0, 10),
        (60, 40_000, 10),
    )
}


def compare(layers: int, sleep_us: int, every: int) -> dict[str, object]:
    words = ["benchmarks/gpu/gain_job.py", "--layers", str(layers), "--sleep-us", str(sleep_us)]
    words += ["--read-every", str(every), "--seconds", str(4 * FOR_S)]
    with own_folders() as environment, job(words, environment) as running:
        _, truth, _, step_ms = said(running, "truth")
        asked = ["--only", "optimizer.fused", "--for", f"{FOR_S}s"]
        tuned = product(environment, "tune", str(running.pid), *asked)
        (trial,) = tuned["trials"] or [{}]  # type: ignore[misc]
        kept, claimed = bool(tuned["kept"]), trial.get("achieved")
        interval = trial.get("interval")
    return {
        "truth": float(truth),
        "step_ms": float(step_ms),
        "kept": kept,
        "claimed": claimed,
        "interval": interval,
        "right": right(float(truth), kept, claimed, interval),
    }


def right(truth: float, kept: bool, claimed: float | None, interval: list[float] | None) -> bool:
    if not kept or claimed is None:
        return True  # silent
    held = interval is not None and interval[0] <= truth <= interval[1]
    return truth > 1.01 and (held or abs(math.log(claimed / truth)) <= 0.02)


COMPARISONS: dict[str, Measure] = {name: (lambda case=case: compare(*case)) for name, case in CASES.items()}
