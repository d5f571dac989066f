"""How near do predicted gains come to achieved ones?

    python benchmarks/verdict/predicted_gain.py [--for 70] [--case NAME]… [--only REMEDY]… [--keep FILE]

Planted jobs are tuned while they run, as a user would: the prediction of each remedy comes from the diagnosis
before anything is tried, the achieved gain from its interleaved trial. Error: |log(achieved / predicted)|.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import msgspec  # noqa: E402

from autobrrr.injected.remedies.families import REGISTRY  # noqa: E402
from autobrrr.records import Trial, Tuning  # noqa: E402
from benchmarks.planted.case import Case  # noqa: E402
from benchmarks.planted.diagnosed import SETTLE_S  # noqa: E402
from benchmarks.planted.job_process import (  # noqa: E402
    JobFailed,
    PlantedJob,
    adopt_orphans,
    end_descendants,
    own_folders,
)
from benchmarks.planted.tables.cases import CASES  # noqa: E402

REMEDIES = ("optimizer.fused", "optimizer.foreach", "compile.default", "host.malloc", "gc.freeze")
USUAL = (
    "deep-tiny-mlp",
    "tiny-transformer",
    "many-small-adamw",
    "few-huge-adamw",
    "small-pointwise",
    "pointwise-8-mib",
    "layer-norms",
    "above-mmap-threshold",
    "garbage",
)


def tune(case: Case, for_s: float, only: Sequence[str], environment: Mapping[str, str]) -> Tuning:
    """Tune one job that runs.

    Raises:
        JobFailed: it did not train, or could not be tuned.
    """
    over = {"seconds": int(2 * for_s + 60)}
    with PlantedJob(case, environment=environment, over=over) as job:
        job.wait_for_training()
        time.sleep(SETTLE_S)
        words = [sys.executable, "-m", "autobrrr", "tune", str(job.pid), "--json", "--for", f"{for_s:g}s"]
        words += ["--horizon", "4h", "--only", ",".join(only)]
        done = subprocess.run(words, capture_output=True, text=True, env=dict(environment), check=False)
        if not done.stdout.strip():
            raise JobFailed(done.stderr.strip()[-300:])
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Tuning)


def line(case: str, trial: Trial) -> str:
    """One row of the table."""
    achieved = "-" if trial.achieved is None else f"{trial.achieved:.2f}x"
    bounds = "" if trial.interval is None else f"{trial.interval[0]:.2f} to {trial.interval[1]:.2f}"
    predicted = "-" if trial.predicted is None else f"{trial.predicted:.2f}x"
    off = error(trial)
    said = "" if off is None else f"{math.expm1(off):.0%}"
    return (
        f"{case:<22}{trial.remedy:<20}{predicted:>10}{achieved:>10}  {bounds:<16}{said:>6}  "
        f"{trial.outcome}{'' if trial.achieved is not None else ': ' + trial.why[:60]}"
    )


def error(trial: Trial) -> float | None:
    """|log(achieved / predicted)|; None where one of them is missing."""
    if trial.predicted is None or trial.achieved is None:
        return None
    return abs(math.log(trial.achieved / trial.predicted))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="for_s", type=float, default=70.0)
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--only", action="append", choices=list(REGISTRY))
    parser.add_argument("--keep", type=Path, help="append each trial as a line of JSON")
    args = parser.parse_args()
    wanted = args.case or USUAL
    adopt_orphans()
    found: dict[str, list[float]] = {}
    print(f"{'job':<22}{'remedy':<20}{'predicted':>10}{'achieved':>10}  {'interval':<16}{'off':>6}")
    for case in [each for each in CASES if each.name in wanted]:
        with own_folders() as environment:
            try:
                tuning = tune(case, args.for_s, args.only or REMEDIES, environment)
            except JobFailed as failed:
                print(f"{case.name:<22}failed: {failed}")
                continue
            finally:
                end_descendants()
        for trial in tuning.trials:
            print(line(case.name, trial), flush=True)
            off = error(trial)
            if off is not None:
                found.setdefault(trial.remedy, []).append(off)
            if args.keep is not None:
                with args.keep.open("a") as lines:
                    lines.write(json.dumps({"case": case.name, **msgspec.to_builtins(trial)}) + "\n")
    print("\nmedian error by remedy")
    for remedy, errors in found.items():
        print(f"{remedy:<22}{math.expm1(statistics.median(errors)):>6.0%} of {len(errors)}")
    every = [each for errors in found.values() for each in errors]
    if every:
        print(f"{'all':<22}{math.expm1(statistics.median(every)):>6.0%} of {len(every)}")


if __name__ == "__main__":
    main()
