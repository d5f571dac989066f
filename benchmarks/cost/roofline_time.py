"""How long `autobrrr roofline` takes: with an empty compile cache, then with a warm one, and from its own.

    python -m benchmarks.cost.roofline_time [--flame] [--quick-only]

Prints a table of whole processes, imports included, and the share of the time in which the measuring
threads wanted a core and had none: on a machine that others use, the times say little. Quick peaks
(what `diagnose` measures first) are timed for one thread and for all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import ROOT

QUICK = """
import sys, time
from pathlib import Path
from autobrrr.roofline.quick_peaks import quick_peaks
began = time.perf_counter()
found = quick_peaks(int(sys.argv[2]), Path(sys.argv[1]))
print(time.perf_counter() - began, found.waited_share, found.matmul_flops, found.triad_bytes_per_s)
"""


def roofline(cache: Path, *words: str) -> tuple[float, dict[str, object]]:
    """Seconds of one run, and what it found."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "autobrrr", "roofline", "--device", "cpu", "--json", *words],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "compiled")},
    )
    return time.perf_counter() - began, json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flame", action="store_true")
    parser.add_argument("--quick-only", action="store_true")
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    words = ["--flame"] if args.flame else []
    with tempfile.TemporaryDirectory(prefix="autobrrr-roofline-") as folder:
        cache = Path(folder)
        print(f"{'quick peaks, threads':<34} {'s':>7} {'waited':>7}   matmul, triad")
        for threads in sorted({1, cores}):
            done = subprocess.run(
                [sys.executable, "-c", QUICK, str(cache), str(threads)],
                capture_output=True,
                check=True,
                text=True,
                cwd=ROOT,
            )
            took, waited, flops, bytes_per_s = (float(each) for each in done.stdout.split())
            figures = f"{flops / 1e9:.0f} GFLOP/s, {bytes_per_s / 1e9:.1f} GB/s"
            print(f"{threads:<34} {took:7.2f} {waited:7.0%}   {figures}", flush=True)
        if args.quick_only:
            return
        print(f"\n{'roofline':<34} {'s':>7} {'waited':>7}")
        for name, more in (
            ("empty compile cache", []),
            ("warm compile cache", ["--again"]),
            ("cached figures", []),
        ):
            took, found = roofline(cache, *words, *more)
            print(f"{name:<34} {took:7.1f} {found['waited_share']:7.0%}", flush=True)


if __name__ == "__main__":
    main()
