"""What do the shipped recipes bring, each on a job of the kind that it is for?

    python -m benchmarks.tuning.recipe_effect [--pairs 5] [--seconds 2.5] [--only NAME]…

The unedited script, plain and through `autobrrr run --recipe`, in turn (A B B A …), each in a process of its
own, rate by its own clock after its warm-up. Speed-up: mean of the log-ratios of neighbours, with Student's
95 % interval over the pairs. `--elsewhere`: also on jobs that a recipe should not help.
"""

import os
import sys
import tempfile
from pathlib import Path

from autobrrr import recipe
from benchmarks import ROOT, parser
from benchmarks.planted.job_process import own_folders
from benchmarks.turns import Gain, gain, rate

JOBS = ROOT / "benchmarks" / "jobs"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
RANKS = "2"
FITTING = {
    "bitwise-only": "kinds small_blocks",
    "cpu-only": "kinds wide_mlp",
    "ddp-small-buckets": "ddp_many_layers",
    "inference-heavy-rl": "policy",
    "input-bound-images": "images packed",
    "memory-bound-pointwise": "kinds pointwise",
    "small-batch-transformer": "kinds small_batch_gpt",
    "tiny-model-host-bound": "kinds small_blocks",
}
# One thread where the cure is not about threads: two of them on two CPUs measure the neighbours.
ONE_THREAD = ("bitwise-only", "memory-bound-pointwise", "input-bound-images", "ddp-small-buckets")
# Where it should bring nothing, and must not harm.
ELSEWHERE = {
    "input-bound-images": "images resized",
    "memory-bound-pointwise": "kinds small_blocks",
    "tiny-model-host-bound": "kinds pointwise",
}


def command(job: str) -> list[str]:
    """How the job is started: the name of its file, and its flags; `ddp_kinds@4 gru` has four ranks."""
    called, *flags = job.split()
    name, _, ranks = called.partition("@")
    launcher = (*TORCHRUN, ranks or RANKS) if name.startswith("ddp") else (sys.executable,)
    return [*launcher, str(JOBS / f"{name}.py"), *flags]


def effect(name: str, job: str, pairs: int, seconds: float, env: dict[str, str]) -> Gain:
    """Measure one recipe on one job."""
    plain = [*command(job), "--seconds", str(seconds)]
    cured = [sys.executable, "-m", "autobrrr", "run", "--recipe", name, "--", *plain]
    return gain(pairs, lambda: rate(plain, env), lambda: rate(cured, env))


def measure() -> None:
    """Run and print."""
    flags = parser(__doc__)
    flags.add_argument("--pairs", type=int, default=5)
    flags.add_argument("--seconds", type=float, default=2.5)
    flags.add_argument("--only", action="append", choices=list(FITTING), help="this recipe alone")
    flags.add_argument("--elsewhere", action="store_true", help="the second table too")
    args = flags.parse_args()
    wanted = args.only or [name for name in recipe.shipped() if name in FITTING]
    rows = [(name, FITTING[name]) for name in wanted]
    if args.elsewhere:
        rows += [(name, job) for name, job in ELSEWHERE.items() if name in wanted]
    print(f"{args.pairs} pairs of runs of {args.seconds} s, {os.cpu_count()} CPUs\n")
    print(f"{'recipe':<26}{'job':<22}{'plain':>10}{'recipe':>10}  speed-up (95 % interval)")
    with tempfile.TemporaryDirectory() as folder, own_folders(Path(folder)) as env:
        # Temporary files too: a launcher leaves its own behind.
        env["TMPDIR"] = folder
        for name, job in rows:
            threads = {"OMP_NUM_THREADS": "1"} if name in ONE_THREAD and job != "images resized" else {}
            found = effect(name, job, args.pairs, args.seconds, env | threads)
            print(f"{name:<26}{job:<22}{found.before:>8.1f}/s{found.after:>8.1f}/s  {found}", flush=True)


if __name__ == "__main__":
    measure()
