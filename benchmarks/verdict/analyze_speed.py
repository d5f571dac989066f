"""Speed and memory of `analyze`, beside HolisticTraceAnalysis on the same files, whole processes.

    python -m benchmarks.verdict.analyze_speed --traces ../shared/data/traces [--hta]
        [--rounds 3] [--large-mb 500]

Prints a table: MB of JSON per second and peak resident memory of each process, imports included;
`inside` is the analysis alone, without starting Python and importing. HTA 0.5.0 gets a virtual
environment of its own in a temporary folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ROOT

OURS = """
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
HTA = """
import logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
found.get_temporal_breakdown(visualize=False)
found.get_idle_time_breakdown(ranks=[0], visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
print("done")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process, from its start to its end."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str
    failed: bool


def run(python: str, program: str, path: Path) -> Run:
    """Run a program on a file; wall time, processor time and peak memory of the process alone."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [python, "-c", program, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"},
    )
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return Run(
        wall_s=time.perf_counter() - begin,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_mb=used.ru_maxrss / 1024,
        output=output,
        failed=child.returncode != 0,
    )


def quickest(python: str, program: str, path: Path, rounds: int) -> Run:
    """The quickest of several runs: the one that was least disturbed."""
    return min(
        (run(python, program, path) for _ in range(rounds)), key=lambda each: (each.failed, each.wall_s)
    )


def json_bytes(path: Path) -> int:
    with gzip.open(path, "rb") as stream:
        return sum(len(block) for block in iter(lambda: stream.read(1 << 20), b""))


def enlarged(path: Path, target: Path, megabytes: int) -> None:
    """A trace of the wanted size: the events of one, repeated, each time later and with ids of its own."""
    with gzip.open(path, "rb") as stream:
        text = stream.read()
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"]")
    head, events, tail = text[:begin], text[begin:end], text[end:]
    del text
    with target.open("wb") as out:
        out.write(head + events)
        written, copy = len(events), 0
        while written < megabytes * 1_000_000:
            copy += 1
            out.write(b",")
            for place in range(0, len(events), _PIECE):
                out.write(_shifted(events, place, copy))
            written += len(events)
        out.write(tail)


_PIECE = 1 << 24
_SHIFTED = re.compile(rb'("ts": |"correlation": )(\d+)')


def _shifted(events: bytes, place: int, copy: int) -> bytes:
    """One piece, cut at lines so that no number is torn."""
    begin = events.rfind(b"\n", 0, place) if place else 0
    last = place + _PIECE >= len(events)
    stop = len(events) if last else events.rfind(b"\n", 0, place + _PIECE)
    return _SHIFTED.sub(
        lambda found: found[1] + b"%d" % (int(found[2]) + copy * 10_000_000), events[begin:stop]
    )


def hta_python(folder: Path) -> str:
    """A virtual environment with HTA 0.5.0 in it."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "HolisticTraceAnalysis==0.5.0"]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    return python


def lines(folder: Path, smallest_mb: float, hta: str | None, rounds: int) -> Iterator[str]:
    yield (
        f"{'trace':<46} {'MB':>6} {'whole s':>8} {'MB/s':>6} {'inside':>7} {'peak MB':>8}"
        + (f" {'HTA s':>7} {'peak MB':>8} {'quicker':>8} {'memory':>7}" if hta else "")
    )
    for path in sorted(folder.rglob("*.json.gz")):
        megabytes = json_bytes(path) / 1e6
        if megabytes < smallest_mb:
            continue
        yield line(path, str(path.relative_to(folder)), megabytes, hta, rounds)


def line(path: Path, name: str, megabytes: float, hta: str | None, rounds: int) -> str:
    own = quickest(sys.executable, OURS, path, rounds)
    inside = megabytes / float(own.output.split()[0]) if not own.failed else float("nan")
    text = f"{name:<46} {megabytes:6.1f} {own.wall_s:8.3f} {megabytes / own.wall_s:6.0f}"
    text += f" {inside:7.0f} {own.peak_mb:8.0f}"
    if hta is None:
        return text
    other = quickest(hta, HTA, path, 1)
    if other.failed:
        return text + "   HTA fails"
    return (
        text + f" {other.wall_s:7.2f} {other.peak_mb:8.0f} {other.wall_s / own.wall_s:7.1f}x"
        f" {own.peak_mb / other.peak_mb:7.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--smallest-mb", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", action="store_true", help="install HTA 0.5.0 beside and compare")
    parser.add_argument("--hta-python", help="a Python that has HTA already")
    parser.add_argument(
        "--large-mb", type=int, default=0, help="also a trace of this size, made by repeating one"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autobrrr-analyze-") as scratch:
        hta = args.hta_python or (hta_python(Path(scratch) / "hta") if args.hta else None)
        for text in lines(args.traces, args.smallest_mb, hta, args.rounds):
            print(text, flush=True)
        if args.large_mb:
            largest = max(args.traces.rglob("*.json.gz"), key=lambda path: path.stat().st_size)
            target = Path(scratch) / "large.json"
            enlarged(largest, target, args.large_mb)
            print(
                line(target, f"{largest.name}, repeated", target.stat().st_size / 1e6, None, args.rounds),
                flush=True,
            )


if __name__ == "__main__":
    main()
