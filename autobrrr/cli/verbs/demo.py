"""`autobrrr demo`: the main job on a small training script of our own, with the real commands.

Every line that starts with `$` is run as a user would type it; nothing is simulated.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from autobrrr import own_modules, paths
from autobrrr.cli.printed import NARRATOR
from autobrrr.cli.verb_arguments import flag
from autobrrr.errors import AutobrrrError, NotInstalled
from autobrrr.told_to_end import deaf_child, stopped_in_order

TRAIN = Path(__file__).resolve().parents[2] / "demo" / "train.py"
COMPARABLE = 1.2  # runs of one command that differ by more were disturbed
_say = partial(print, flush=True)
RUN_NS = 5e9
STEP = re.compile(r"baseline_ns = ([0-9.]+)")
SPEED = re.compile(r"trained \d+ steps: ([0-9.]+) steps/s")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    for_tuning = "time for the live tuning (default 40s)"
    flag(parser, "--tune-for D", for_tuning, dest="tune_for", type=str, default="40s")
    flag(parser, "--steps N", "steps of each run (default: about five seconds of them)")


def run(args: argparse.Namespace) -> int:
    if importlib.util.find_spec("torch") is None:
        raise NotInstalled("torch", "demo")
    with (
        stopped_in_order(),
        tempfile.TemporaryDirectory(prefix="autobrrr-demo-", dir=paths.temporary_dir()) as folder,
    ):
        recipe = Path(folder) / "demo.toml"
        with deaf_child([sys.executable, str(TRAIN)], subprocess.DEVNULL) as job:
            _say(f"# a training job runs as pid {job.pid}: {TRAIN.name}, 12 small blocks, plain AdamW")
            _command("diagnose", str(job.pid))
            _command("tune", str(job.pid), "--for", args.tune_for, "--recipe", str(recipe))
            if recipe.exists():  # else the session ended with its tuning
                _command("detach", str(job.pid))
        page = paths.state_dir() / "demo.html"  # of a session that is over: no command on it is one to type
        _command("-q", "report", str(job.pid), "--html", str(page))
        if recipe.exists():
            _say(f"\n$ cat {recipe.name}\n{recipe.read_text().rstrip()}")
            step_ns = float(STEP.findall(recipe.read_text())[0])
            _before_and_after(recipe, args.steps or round(RUN_NS / step_ns))
        else:
            _say("# no remedy is proven faster on this machine, or others used it: no recipe is written")
        NARRATOR.next_step(f"open {page} in a browser   (what the session found)")
        return 0


def _before_and_after(recipe: Path, steps: int) -> None:
    """Run the unedited script from its start, without and with the recipe, in turn."""
    train = [sys.executable, str(TRAIN), "--steps", str(steps)]
    _say(f"\n# the same script, unedited, {steps} steps from its start; in turn, by its own clock")
    before, after = list[float](), list[float]()
    for _ in range(2):
        before.append(_speed(train))
        after.append(_speed(own_modules.command("autobrrr", "run", "--recipe", str(recipe), "--", *train)))
        _say(f"before {before[-1]:7.1f} steps/s   after {after[-1]:7.1f} steps/s")
    _say(f"\n{compared(before, after)}")


def compared(before: Sequence[float], after: Sequence[float]) -> str:
    """What pairs of single runs show: no more than they can, since nothing says what else the machine did."""
    apart = max(before) / min(before)
    if apart > COMPARABLE:
        told = f"the runs without the recipe differ by {apart:.2f}x"
        return f"not comparable: {told}; see tune's interval above"
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    return f"speed-up by recipe: {min(ratios):.2f}x to {max(ratios):.2f}x in {len(ratios)} pairs of runs"


def _command(verb: str, *words: str) -> None:
    _say(f"\n$ autobrrr {shlex.join((verb, *words))}")
    code = _run(own_modules.command("autobrrr", verb, *words)).returncode
    if code:
        raise AutobrrrError(f"autobrrr {verb} ended with {code}", "autobrrr doctor says what is in the way")


def _speed(command: list[str]) -> float:
    done = _run(command, stdout=subprocess.PIPE)
    found = SPEED.search(done.stdout)
    if done.returncode or found is None:
        raise AutobrrrError(f"the training script ended with {done.returncode}")
    return float(found.group(1))


def _run(command: list[str], stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    env = own_modules.environment()
    return subprocess.run(command, env=env, cwd="/", stdout=stdout, text=True, check=False)
