"""How much later does a script take its first step under `autobrrr run --recipe`?

    python -m benchmarks.attach.run_start [--pairs 10]

Plain and through `run`, in turn (A B B A …), each in a process of its own; from the start of the command to
the end of the script's first optimizer step, and to the end of the command. Cost = the mean over pairs of one
less the other, with Student's 95 % interval. The first run of each kind is left out: it fills caches.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import parser
from benchmarks.planted.job_process import own_folders
from benchmarks.turns import in_turn, mean_interval

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


def report(name: str, pairs: Sequence[tuple[float, float]]) -> None:
    """One line: both medians, and the mean difference of pairs with its interval."""
    plain, ours = np.median(pairs, axis=0)
    mean, low, high = mean_interval([after - before for before, after in pairs])
    print(f"{name:<22}{plain:>8.3f} s{ours:>8.3f} s{mean:>+9.3f} s ({low:+.3f} to {high:+.3f})")


def measure() -> None:
    """Run and print."""
    flags = parser(__doc__)
    flags.add_argument("--pairs", type=int, default=10)
    args = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder, own_folders() as env:
        script, recipe = Path(folder) / "first_step.py", Path(folder) / "r.toml"
        script.write_text(SCRIPT)
        recipe.write_text(RECIPE)
        plain = [sys.executable, str(script)]
        run = [sys.executable, "-m", "autobrrr", "run", "--recipe", str(recipe), "--", *plain]
        _, *found = in_turn(args.pairs + 1, lambda: once(plain, env), lambda: once(run, env))
    print(f"{args.pairs} pairs, {os.cpu_count()} CPUs\n")
    print(f"{'':<22}{'plain':>10}{'run':>10}{'cost':>11} (95 % interval)")
    for name, which in (("to the first step", 0), ("the whole command", 1)):
        report(name, [(before[which], after[which]) for before, after in found])


if __name__ == "__main__":
    measure()
