"""Speed and memory of `analyze`, whole processes.

    python -m benchmarks.verdict.analyze_speed --traces FOLDER [--rounds 3]

Prints a table: MB of JSON per second and peak resident memory of each process, imports included;
`inside` is the analysis alone, without starting Python and importing.
"""

import gzip
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ROOT, parser

PROGRAM = """
import sys, time
begin = time.perf_counter()
from autobrrr.records import to_json
from autobrrr.trace.trace_analysis import analyse
from autobrrr.trace.reading.trace_source import named_traces
started = time.perf_counter()
found = analyse(named_traces(sys.argv[1:]))
print(time.perf_counter() - started, found.traces[0].json_bytes, found.traces[0].regime)
to_json(found)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process, from its start to its end."""

    wall_s: float
    peak_mb: float
    output: str
    failed: bool


def run(path: Path) -> Run:
    """Analyse a file; wall time and peak memory of the process alone."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Run(
        wall_s=time.perf_counter() - begin,
        peak_mb=used.ru_maxrss / 1024,
        output=output,
        failed=child.returncode != 0,
    )


def quickest(path: Path, rounds: int) -> Run:
    """The quickest of several runs: the one that was least disturbed."""
    return min((run(path) for _ in range(rounds)), key=lambda each: (each.failed, each.wall_s))


def json_bytes(path: Path) -> int:
    with gzip.open(path, "rb") as stream:
        return sum(len(block) for block in iter(lambda: stream.read(1 << 20), b""))


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--traces", type=Path, required=True)
    flags.add_argument("--smallest-mb", type=float, default=20)
    flags.add_argument("--rounds", type=int, default=3)
    args = flags.parse_args()
    print(f"{'trace':<46} {'MB':>6} {'whole s':>8} {'MB/s':>6} {'inside':>7} {'peak MB':>8}")
    for path in sorted(args.traces.rglob("*.json.gz")):
        if (megabytes := json_bytes(path) / 1e6) < args.smallest_mb:
            continue
        found = quickest(path, args.rounds)
        inside = float("nan") if found.failed else megabytes / float(found.output.split()[0])
        print(
            f"{path.relative_to(args.traces)!s:<46} {megabytes:6.1f} {found.wall_s:8.3f}"
            f" {megabytes / found.wall_s:6.0f} {inside:7.0f} {found.peak_mb:8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
