"""Does a speed-up that `tune` reports hold when the script is started anew with its recipe?

    python -m benchmarks.tuning.reported_gain [--job NAME]… [--for 45] [--pairs 4] [--seconds 3] [--only R,…]

Each job is tuned while it runs; the recipe it wrote is then compared with the plain script in relaunched
pairs, A B B A. Agreed: the two log-ratios differ by no more than their joint 95 % interval,
sqrt(half_1^2 + half_2^2).
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from autobrrr.records import Tuning
from benchmarks import ROOT
from benchmarks.planted.job_process import JobFailed, own_folders, product
from benchmarks.tuning.recipe_effect import command, effect
from benchmarks.turns import Gain

KINDS = (
    *("adagrad", "autoencoder", "bilstm", "conv", "decoder", "ema", "gan"),
    *("gru", "nadam", "norms", "pointwise", "residual", "rmsprop", "sgd"),
    *("small_batch_gpt", "small_blocks", "tables", "wide_mlp"),
)
JOBS = ("policy", "images packed", *(f"kinds {kind}" for kind in KINDS))
SETTLE_S, RANKS_SETTLE_S = 6.0, 15.0


def tune(job: str, for_s: float, only: str | None, recipe: Path, environment: Mapping[str, str]) -> Tuning:
    """Tune one job while it runs.

    Raises:
        JobFailed: nothing came out.
    """
    words = [*command(job), "--seconds", str(3 * for_s + 60)]
    running = subprocess.Popen(
        words, env=dict(environment), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(RANKS_SETTLE_S if job.startswith("ddp") else SETTLE_S)
        asked = ["--for", f"{for_s:g}s", "--recipe", str(recipe), *([] if only is None else ["--only", only])]
        found = product(environment, "tune", str(running.pid), *asked)
        words = [sys.executable, "-m", "autobrrr", "detach", str(running.pid)]
        subprocess.run(words, env=dict(environment), capture_output=True, check=False)
        return msgspec.convert(found, Tuning)
    finally:
        running.terminate()  # a launcher ends its ranks
        running.wait()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", action="append")
    parser.add_argument("--for", dest="for_s", type=float, default=45.0)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", help="try only these remedies")
    args = parser.parse_args()
    print(f"{'job':<22}{'reported':>24}{'relaunched':>24}  agreed  kept")
    agreed = counted = 0
    with tempfile.TemporaryDirectory() as folder, own_folders() as environment:
        for job in args.job or JOBS:
            recipe = Path(folder) / f"{job.replace(' ', '-')}.toml"
            try:
                tuning = tune(job, args.for_s, args.only, recipe, environment)
            except JobFailed as failed:
                print(f"{job:<22}failed: {failed}")
                continue
            if tuning.interval is None or not recipe.exists():
                print(f"{job:<22}{'nothing kept':>24}", flush=True)
                continue
            low, high = tuning.interval
            reported = Gain(factor=tuning.speedup, low=low, high=high)
            found = effect(str(recipe), job, args.pairs, args.seconds, environment)
            within = reported.agrees(found)
            agreed, counted = agreed + within, counted + 1
            said = f"{job:<22}{reported!s:>24}{found!s:>24}  {'yes' if within else 'NO':<6}"
            print(f"{said}  {', '.join(tuning.kept)}", flush=True)
    print(f"\nagreed in {agreed} of {counted}")


if __name__ == "__main__":
    main()
