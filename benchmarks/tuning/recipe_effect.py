"""What do the shipped recipes bring, each on a job of the kind that it is for?

    python -m benchmarks.tuning.recipe_effect [--pairs 5] [--seconds 2.5] [--only NAME]…

The unedited script, plain and through `autobrrr run --recipe`, in turn (A B B A …), each in a process of its
own, rate by its own clock after its warm-up. Speed-up: mean of the log-ratios of neighbours, with Student's
95 % interval over the pairs. `--elsewhere`: also on jobs that a recipe should not help.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import t as student

from autobrrr import recipe
from benchmarks import ROOT

JOBS = ROOT / "benchmarks" / "jobs"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
RANKS = "2"
FITTING = {
    "bitwise-only": "small_blocks",
    "cpu-only": "wide_mlp",
    "ddp-small-buckets": "ddp_many_layers",
    "inference-heavy-rl": "policy",
    "input-bound-images": "images packed",
    "memory-bound-pointwise": "pointwise",
    "small-batch-transformer": "small_batch_gpt",
    "tiny-model-host-bound": "small_blocks",
}
# One thread where the cure is not about threads: two of them on two CPUs measure the neighbours.
ONE_THREAD = ("bitwise-only", "memory-bound-pointwise", "input-bound-images", "ddp-small-buckets")
# Where it should bring nothing, and must not harm.
ELSEWHERE = {
    "input-bound-images": "images resized",
    "memory-bound-pointwise": "small_blocks",
    "tiny-model-host-bound": "pointwise",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One recipe on one job: steps a second as a factor, and both rates."""

    speedup: float
    low: float
    high: float
    plain: float
    cured: float


def command(job: str) -> list[str]:
    """How the job is started: the name of its file, and its flags; `ddp_kinds@4 gru` has four ranks."""
    called, *flags = job.split()
    name, _, ranks = called.partition("@")
    launcher = (*TORCHRUN, ranks or RANKS) if name.startswith("ddp") else (sys.executable,)
    return [*launcher, str(JOBS / f"{name}.py"), *flags]


def rate(words: Sequence[str], env: dict[str, str]) -> float:
    """Run one job to its end; its steps a second.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(words, env=env, capture_output=True, text=True, cwd=ROOT, check=False)
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("rate ")]
    if done.returncode or not found:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return float(found[0])


def effect(name: str, job: str, pairs: int, seconds: float, env: dict[str, str]) -> Effect:
    """Measure one recipe on one job."""
    plain = [*command(job), "--seconds", str(seconds)]
    cured = [sys.executable, "-m", "autobrrr", "run", "--recipe", name, "--", *plain]
    rates: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(pairs):
        for on in (False, True) if pair % 2 == 0 else (True, False):
            rates[on].append(rate(cured if on else plain, env))
    logs = [math.log(on / off) for off, on in zip(rates[False], rates[True], strict=True)]
    mean = statistics.mean(logs)
    half = student.ppf(0.975, pairs - 1) * statistics.stdev(logs) / math.sqrt(pairs)
    return Effect(
        speedup=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        plain=statistics.median(rates[False]),
        cured=statistics.median(rates[True]),
    )


def measure() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--only", action="append", choices=list(FITTING), help="this recipe alone")
    parser.add_argument("--elsewhere", action="store_true", help="the second table too")
    args = parser.parse_args()
    wanted = args.only or [name for name in recipe.shipped() if name in FITTING]
    rows = [(name, FITTING[name]) for name in wanted]
    if args.elsewhere:
        rows += [(name, job) for name, job in ELSEWHERE.items() if name in wanted]
    print(f"{args.pairs} pairs of runs of {args.seconds} s, {os.cpu_count()} CPUs\n")
    print(f"{'recipe':<26}{'job':<18}{'plain':>10}{'recipe':>10}  speed-up (95 % interval)")
    with tempfile.TemporaryDirectory() as folder:
        runtime = Path(folder) / "run"
        runtime.mkdir(mode=0o700)
        env = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        # Temporary files too: a launcher leaves its own behind.
        env |= {"XDG_RUNTIME_DIR": str(runtime), "XDG_CACHE_HOME": folder, "TMPDIR": folder}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
        for name, job in rows:
            threads = {"OMP_NUM_THREADS": "1"} if name in ONE_THREAD and job != "images resized" else {}
            found = effect(name, job, args.pairs, args.seconds, env | threads)
            print(
                f"{name:<26}{job:<18}{found.plain:>8.1f}/s{found.cured:>8.1f}/s"
                f"  {found.speedup:.3f} ({found.low:.3f} to {found.high:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    measure()
