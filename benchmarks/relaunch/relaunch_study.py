"""What a relaunched trial costs beyond the script's own start, with the sandbox and without.

Trials are real processes that train on the stand-in for torch.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from autobrrr.relaunch.trial.trial_factory import TrialFactory
from support import relaunch


def overhead(folder: Path, start_s: float, walled: bool) -> tuple[float, float]:
    """Seconds of a trial beyond the script's own way to its first step: until it trains, and to end it."""
    text = relaunch.SCRIPT.replace("import torch\n", f"time.sleep({start_s})\nimport torch\n", 1)
    text = text.replace('print("training"', 'print("training", time.time()')
    file = relaunch.script(folder / "user", text)
    with TrialFactory(
        command=(sys.executable, str(file)),
        folder=file.parent,
        environment=relaunch.environment(),
        runtime=folder / "run",
        walled=walled,
    ) as stable:
        began = time.time()
        trial = stable.start()
        while not trial.lines or len(trial.lines[0].split()) < 2:
            trial.look()
            time.sleep(0.002)
        until_trains = float(trial.lines[0].split()[1]) - began - start_s
        ends = time.perf_counter()
        trial.close()
        return until_trains, time.perf_counter() - ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=5)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("| sandbox | start beyond the script's own, median | to end it |\n|---|---|---|")
    for walled in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            found = np.median([overhead(Path(folder), 0.2, walled) for _ in range(args.tries)], axis=0)
        print(f"| {'yes' if walled else 'no'} | {found[0]:.2f} s | {found[1]:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
