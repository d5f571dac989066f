"""Does `tune` find a loader's settings: on a running job with short epochs, by new starts with long ones?

    python -m benchmarks.tuning.loader_kept [--for 60] [--long] [--kind KIND]…

Ten jobs of `benchmarks/jobs/loaders.py` whose loader is the bottleneck, one of them with too few workers.
`--long`: epochs of an hour, tuned by `tune -- CMD` with the flag of the script.
"""

import argparse
import subprocess
import sys
import time
from typing import Any

from benchmarks import ROOT
from benchmarks.planted.job_process import JobFailed, adopt_orphans, end_descendants, own_folders, product

JOB = ROOT / "benchmarks/jobs/loaders.py"
LOADERS = ["waits", "parses", "augments", "transforms", "unpacks", "noises", "records", "files", "spells"]
FEW = "one-worker"
KINDS = [*LOADERS, FEW]
LONG, SHORT = 1_000_000, 256


def command(kind: str, items: int, *words: str) -> list[str]:
    few = ["parses", "--num-workers", "1"] if kind == FEW else [kind]
    return [sys.executable, str(JOB), *few, "--items", str(items), *words]


def live(kind: str, for_s: float, environment: dict[str, str]) -> dict[str, Any]:
    """The tuning of a job that runs.

    Raises:
        JobFailed: it did not train, or could not be tuned.
    """
    with subprocess.Popen(
        command(kind, SHORT, "--seconds", str(2 * for_s + 120)),
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as job:
        try:
            if job.stdout is None or job.stdout.readline() != "training\n":
                raise JobFailed("it does not train")
            time.sleep(2)
            words = ["--for", f"{for_s:g}s", "--horizon", "4h", "--allow", "stream"]
            return product(environment, "tune", str(job.pid), *words)
        finally:
            job.kill()


def relaunched(kind: str, for_s: float, environment: dict[str, str]) -> dict[str, Any]:
    """The tuning by new starts; raises JobFailed."""
    words = ["--param", "--num-workers=choice:0,1,2", "--for", f"{for_s:g}s", "--"]
    return product(environment, "tune", *words, *command(kind, LONG))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="for_s", type=float, default=60.0)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--kind", action="append", choices=KINDS)
    args = parser.parse_args()
    adopt_orphans()
    for kind in args.kind or KINDS:
        with own_folders() as environment:
            try:
                found = (relaunched if args.long else live)(kind, args.for_s, environment)
            except JobFailed as failed:
                print(f"{kind:<12}failed: {failed}", flush=True)
                continue
            finally:
                end_descendants()
        for trial in found["trials"]:
            print(
                f"{kind:<12}"
                + " ".join(
                    str(trial.get(k))
                    for k in ("remedy", "options", "outcome", "why", "predicted", "achieved", "interval")
                )[:300],
                flush=True,
            )


if __name__ == "__main__":
    main()
