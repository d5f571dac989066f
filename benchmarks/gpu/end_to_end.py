"""From attach to a faster fresh start: is what a user gets of `tune` and its recipe what a stopwatch shows?

For each job: a verdict with the seconds until it was sure, a tuning with its claim, the recipe, and fresh
starts with and without it in turn, timed by the job's own stopwatch with the device waited for.
"""

import os
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.gpu.live_session import Measure, job, said
from benchmarks.planted.job_process import own_folders, product

REHEARSAL = bool(os.environ.get("GPU_REHEARSAL"))  # small sizes, for a device that is emulated
DIAGNOSE_S, TUNE_S, STARTS = (8, 20, 1) if REHEARSAL else (15, 40, 3)
VERDICT = ("regime", "confidence", "limit", "limit_confidence", "reason")
STEPS = {"mlp": 400, "gpt": 60, "conv": 60, "images": 60}
SMALL = ["--small"] if REHEARSAL else []


def end_to_end(kind: str) -> dict[str, object]:
    script = ["benchmarks/gpu/train_job.py", kind, *SMALL]
    with own_folders() as environment:
        recipe = Path(environment["XDG_RUNTIME_DIR"]) / "found.toml"
        with job(script, environment) as running:
            said(running, "trains")
            pid, began = str(running.pid), time.monotonic()
            found = product(environment, "diagnose", pid, "--for", f"{DIAGNOSE_S}s")
            verdict_s = time.monotonic() - began
            asked = ["--for", f"{TUNE_S}s", "--recipe", str(recipe)]
            tuned = product(environment, "tune", pid, *asked)
            lives_on = running.poll() is None
        plain, with_it = [], []
        for _ in range(STARTS if recipe.exists() else 0):
            plain.append(step_s(script, kind, environment, None))
            with_it.append(step_s(script, kind, environment, recipe))
    gain = statistics.median(plain) / statistics.median(with_it) if with_it else None
    return {
        "verdict": {name: found[name] for name in VERDICT},
        "verdict_s": round(verdict_s, 2),
        "own_cost": found.get("cost"),
        "kept": tuned["kept"],
        "claimed": tuned["speedup"],
        "interval": tuned["interval"],
        "stopwatch": gain,
        "plain_step_s": plain,
        "recipe_step_s": with_it,
        "lives_on": lives_on,
    }


def step_s(script: list[str], kind: str, environment: Mapping[str, str], recipe: Path | None) -> float:
    """A fresh start's own stopwatch."""
    words = [*script, "--steps", str(STEPS[kind])]
    if recipe is not None:
        words = ["-m", "autobrrr", "run", "--recipe", str(recipe), "--", sys.executable, *words]
    with job(words, environment) as running:
        return float(said(running, "took")[1])


RUNS: dict[str, Measure] = {kind: (lambda kind=kind: end_to_end(kind)) for kind in STEPS}
