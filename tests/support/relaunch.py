"""A script to relaunch that starts at once: it trains on the stand-in for torch, as fast as its flags say."""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autobrrr.relaunch.search.search_space import Parameter
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from support import training

STANDIN = Path(__file__).resolve().parent / "standin"
SCRIPT = """
import argparse, os, sys, time
import torch
from torch.optim.optimizer import Optimizer

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--mode", default="fast", choices=["fast", "slow"])
parser.add_argument("--slowness", type=float, default=1.0)
parser.add_argument("--most", type=int, default=10**9, help="the batch that still fits")
parser.add_argument("--steps", type=int, default=10**9)
parser.add_argument("--hang-at", type=int, default=-1)
parser.add_argument("--write", default="")
args = parser.parse_args()

class Plain(Optimizer):
    def _update(self):
        pass

if args.batch_size > args.most:
    raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
per_step = args.accumulate * (0.004 + 0.0001 * args.batch_size)
per_step *= 1.0 if args.mode == "fast" else 1.5
per_step *= args.slowness
per_step -= 0.001 * min(args.num_workers, 2)
optimizer = Plain([torch.Tensor(1.0)])
print("training", flush=True)
for step in range(args.steps):
    if step == args.hang_at:
        time.sleep(1000)
    optimizer.zero_grad()
    time.sleep(per_step)
    torch.Tensor().backward()
    optimizer.step()
    if args.write and step == 5:
        with open(args.write, "a") as file:
            file.write("trained\\n")
"""


def script(folder: Path, text: str = SCRIPT) -> Path:
    """A folder with a script and a file of the user's own."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    (folder / "notes.txt").write_text("of the user\n")
    return folder / "train.py"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(STANDIN), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def launch(file: Path, *flags: str, python: tuple[str, ...] = (sys.executable,)) -> TrialLaunch:
    return TrialLaunch(command=(*python, str(file), *flags), environment=environment(), folder=file.parent)


def factory(place: Path, launched: TrialLaunch, **more: Any) -> TrialFactory:
    """Where trials of a command come from, with its folders in this place."""
    return TrialFactory(
        command=launched.command,
        folder=launched.folder,
        environment=launched.environment,
        runtime=place / "run",
        **more,
    )


def tuning(
    place: Path, *words: str, command: Sequence[str] = (sys.executable, "train.py"), **more: Any
) -> subprocess.Popen[str]:
    """`autobrrr tune` of the script in `user` on the stand-in for torch, in a process of its own."""
    root = STANDIN.parents[2]
    ours = {**training.environment(place), "PYTHONPATH": f"{root}:{STANDIN}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "autobrrr", "tune", *words, "--", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ours,
        cwd=place / "user",
        **more,
    )


def tuned(place: Path, *words: str, **more: Any) -> training.Outcome:
    """What such a tuning leaves."""
    with tuning(place, *words, **more) as process:
        try:
            out, said = process.communicate(timeout=150)
        finally:
            process.kill()
    return training.Outcome(process.returncode, out, said)


RAISES = """
import sys
from autobrrr.relaunch.sandbox import overlay_mounts
folder, needed = sys.argv[1:]
try:
    overlay_mounts.raise_walls(size_bytes=1 << 20, folder=folder, needed=[needed], open_folders=[])
except OSError as problem:
    sys.exit(str(problem))
"""


def no_walls(place: Path) -> str:
    """Why this machine lets nobody raise walls; empty where it does."""
    (place / "try").mkdir(exist_ok=True)
    words = [sys.executable, "-c", RAISES, str(place / "try"), str(place)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=STANDIN.parents[2])
    return done.stderr.strip()


def fingerprint(folder: Path) -> dict[str, tuple[int, float, str]]:
    """Every file below a folder: mode, time, content."""
    return {
        str(file.relative_to(folder)): (
            file.stat().st_mode,
            file.stat().st_mtime,
            hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def alive(folder: Path) -> list[int]:
    """Processes of trials whose study has its folder below this one, but for the test's own."""
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in each.read_bytes():
                found.append(int(each.parent.name))
    return found


def parameter(name: str, count: int, given: int = 0) -> Parameter:
    """A flag with so many levels: 1, 2, 4 ..."""
    return Parameter(
        name=name,
        kind="flag",
        levels=tuple(1 << i for i in range(count)),
        given=given,
        ordered=True,
        cls="changes-training",
    )
