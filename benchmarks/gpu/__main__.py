"""`python -m benchmarks.gpu SHARD…`: what only a GPU can say, each shard within nine minutes.

facts: constants of the machine. truth: what `tune` claims against a stopwatch. end-to-end: verdict, tuning
and recipe of four scripts, and fresh starts with it. harmless: bits with and without the product. remedies:
those for a GPU, by their tests. planted-confirm, planted: what is true of planted jobs, and what `diagnose`
says of them. limits: jobs on the emulated device (`tests/emulated`), whose kernels take a planted time.
A shard that is cut off goes on where it stood.
"""

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import ROOT, parser
from benchmarks.planted import results

WITHIN_S = 500.0
OWN = ("facts", "truth", "end-to-end", "harmless", "batches")
SHARDS = (*OWN, "remedies", "planted-confirm", "planted", "limits")


def main() -> int:
    flags = parser(__doc__)
    flags.add_argument("shards", nargs="+", metavar="SHARD", choices=SHARDS)
    flags.add_argument("--out", type=Path, default=results.RESULTS)
    flags.add_argument("--within", type=float, default=WITHIN_S, metavar="S", help="begin nothing later")
    args = flags.parse_args()
    return max(shard(name, args.out.resolve(), args.within) for name in args.shards)


def shard(name: str, out: Path, within_s: float) -> int:
    out.mkdir(parents=True, exist_ok=True)
    if name in (*OWN, "limits"):
        return own(name, out, within_s)
    if name == "remedies":
        words = ["-m", "pytest", "tests/gpu/test_remedies_gpu.py", f"--junitxml={out / 'gpu-remedies.xml'}"]
    else:
        verb = "confirm" if name == "planted-confirm" else "run"
        words = ["-m", "benchmarks.planted", verb, "--table", "cuda", "--for", "10"]
        words += ["--within", f"{within_s:g}", "--out", str(out)]
    return subprocess.run([sys.executable, *words], cwd=ROOT, check=False).returncode


def own(name: str, out: Path, within_s: float) -> int:
    """A shard of this folder; imported when it runs, for the first of them touches the device."""
    import torch

    if not torch.cuda.is_available():
        print("skipped: torch sees no CUDA device here", file=sys.stderr)
        return 0
    from benchmarks.gpu.ab_truth import COMPARISONS
    from benchmarks.gpu.emulated_limits import LIMITS, table
    from benchmarks.gpu.end_to_end import RUNS
    from benchmarks.gpu.facts import FACTS
    from benchmarks.gpu.harmless import HARMS
    from benchmarks.gpu.live_session import Measure
    from benchmarks.gpu.replayed_batches import TABLE

    shards: dict[str, Mapping[str, Measure]] = {
        "facts": FACTS,
        "truth": COMPARISONS,
        "end-to-end": RUNS,
        "harmless": HARMS,
        "limits": LIMITS,
        "batches": TABLE,
    }
    path = out / f"gpu-{name}.jsonl"
    left = measured(path, shards[name], within_s)
    if name == "limits":
        found = {row["case"]: row for row in results.latest(results.read(path), results.revision())}
        (out / f"gpu-{name}-emulated.md").write_text(table(found), encoding="utf-8")
    if left:
        print(f"{left} not measured: out of time; the same command goes on", file=sys.stderr)
    return 0


def measured(path: Path, wanted: Mapping[str, Callable[[], object]], within_s: float) -> int:
    """Measure what has no row of this revision, or one that says why it failed; how many had no time left."""
    until, left = time.monotonic() + within_s, 0
    about = {**results.machine(), "revision": results.revision()}
    known = {row["case"] for row in results.latest(results.read(path), about["revision"]) if "is" in row}
    for name in (each for each in wanted if each not in known):
        if time.monotonic() > until:
            left += 1
            continue
        began = time.monotonic()
        try:
            row: dict[str, object] = {"case": name, "is": wanted[name]()}
        except Exception as error:  # noqa: BLE001 - one figure less
            why = f"{type(error).__name__}: {error}"
            row = {"case": name, "failed": why, "where": traceback.format_exc()[-600:]}
        row |= {"took_s": round(time.monotonic() - began, 2), **about}
        results.append(path, row)
        print(json.dumps(row, default=str)[:400], flush=True)
    return left


if __name__ == "__main__":
    sys.exit(main())
