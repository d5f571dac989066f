"""How much later does a script take its first step under `autobrrr run --recipe`?

    python -m benchmarks.attach.run_start [--pairs 10]

Plain and through `run`, in turn (A B B A …), each in a process of its own; from the start of the command to
the end of the script's first optimizer step, and to the end of the command. Cost = the mean over pairs of one
less the other, with Student's 95 % interval. The first run of each kind is left out: it fills caches.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scipy.stats import t as student

from benchmarks import ROOT

SCRIPT = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
for batch, in DataLoader(TensorDataset(torch.randn(8, 8)), batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
    print("stepped", time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
"""
RECIPE = """
schema = 1
[remedies]
"optimizer.foreach" = true
"gc.freeze" = true
"host.malloc" = true
"""


def once(words: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Seconds to the first step, and to the end."""
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    ended = time.clock_gettime(time.CLOCK_MONOTONIC)
    stepped = next(line for line in done.stdout.splitlines() if line.startswith("stepped"))
    return float(stepped.split()[1]) - began, ended - began


def report(name: str, plain: list[float], ours: list[float]) -> None:
    """One line: both medians, and the mean difference of pairs with its interval."""
    costs = [after - before for before, after in zip(plain, ours, strict=True)]
    half = student.ppf(0.975, len(costs) - 1) * statistics.stdev(costs) / math.sqrt(len(costs))
    mean = statistics.mean(costs)
    print(
        f"{name:<22}{statistics.median(plain):>8.3f} s{statistics.median(ours):>8.3f} s"
        f"{mean:>+9.3f} s ({mean - half:+.3f} to {mean + half:+.3f})"
    )


def measure() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (runtime := Path(folder) / "run").mkdir(mode=0o700)
        script, recipe = Path(folder) / "first_step.py", Path(folder) / "r.toml"
        script.write_text(SCRIPT)
        recipe.write_text(RECIPE)
        env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "XDG_CACHE_HOME": folder}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
        plain = [sys.executable, str(script)]
        words = {
            False: plain,
            True: [sys.executable, "-m", "autobrrr", "run", "--recipe", str(recipe), "--", *plain],
        }
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for pair in range(args.pairs + 1):
            for on in (False, True) if pair % 2 else (True, False):
                times = once(words[on], env)
                if pair:
                    found[on].append(times)
    print(f"{args.pairs} pairs, {os.cpu_count()} CPUs\n")
    print(f"{'':<22}{'plain':>10}{'run':>10}{'cost':>11} (95 % interval)")
    for name, which in (("to the first step", 0), ("the whole command", 1)):
        report(name, *([times[which] for times in found[on]] for on in (False, True)))


if __name__ == "__main__":
    measure()
