"""`python -m benchmarks.gpu SHARD…`: what only a GPU can say, each shard within nine minutes.

facts: constants of the machine. truth: what `tune` claims against a stopwatch. end-to-end: verdict, tuning
and recipe of four scripts, and fresh starts with it. harmless: bits with and without the product. remedies:
those for a GPU, by their tests. planted-confirm, planted: what is true of planted jobs, and what `diagnose`
says of them. limits: jobs on the emulated device (`tests/emulated`), whose kernels take a planted time.
A shard that is cut off goes on where it stood.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.planted.results import RESULTS, ROOT

WITHIN_S = 500.0
OWN = ("facts", "truth", "end-to-end", "harmless")
SHARDS = (*OWN, "remedies", "planted-confirm", "planted", "limits")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("shards", nargs="+", metavar="SHARD", choices=SHARDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--within", type=float, default=WITHIN_S, metavar="S", help="begin nothing later")
    args = parser.parse_args()
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
    from benchmarks.gpu.findings import Findings, Measure
    from benchmarks.gpu.harmless import HARMS

    shards: dict[str, Mapping[str, Measure]] = {
        "facts": FACTS,
        "truth": COMPARISONS,
        "end-to-end": RUNS,
        "harmless": HARMS,
        "limits": LIMITS,
    }
    measures = shards[name]
    findings = Findings(out / f"gpu-{name}.json", within_s)
    left = findings.measure(measures)
    if name == "limits":
        (out / f"gpu-{name}-emulated.md").write_text(table(findings.found), encoding="utf-8")
    if left:
        print(f"{left} not measured: out of time; the same command goes on", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
