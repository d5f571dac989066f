"""How long does training stand still when we attach?

    python -m benchmarks.attach.attach_gap [--attaches 50]

The job is a torch loop of about a millisecond a step that records the duration of every step. Two runs:
untouched, and attached to over and over. The gap of one attach is the longest step that overlaps it, less
the run's median step.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.ptrace.injector import inject
from benchmarks.attach.attach_stress import figures
from support.attach import leaves

JOB = """
import sys, time, torch
from array import array
torch.set_num_threads(1)
layers = [layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.ones(32, 64)
ends = array("q", [time.monotonic_ns()])
print("ready", flush=True)
stop = sys.argv[1] + "/stop"
import os
while len(ends) % 200 or not os.path.exists(stop):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    ends.append(time.monotonic_ns())
with open(sys.argv[1] + "/ends", "wb") as out: ends.tofile(out)
"""
WARM_S, BETWEEN_S = 1.0, 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Step ends of one run of the job, and when each attach began and ended."""

    ends_ns: list[int]
    spans_ns: list[tuple[int, int]]

    @property
    def steps_ns(self) -> list[int]:
        return [end - start for start, end in zip(self.ends_ns, self.ends_ns[1:], strict=False)]

    def gaps_ns(self) -> list[int]:
        """For each attach: the longest step that overlaps it, less the median step."""
        usual = int(statistics.median(self.steps_ns))
        steps = list(zip(self.ends_ns, self.ends_ns[1:], strict=False))
        return [
            max((end - start for start, end in steps if start < last and end > first), default=usual) - usual
            for first, last in self.spans_ns
        ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attaches", type=int, default=50)
    args = parser.parse_args()
    stops_ms: list[float] = []

    def ours(pid: int, folder: Path) -> None:
        answer = folder / "answer"
        stops_ms.append(inject(pid, leaves(answer)).pause_ns / 1e6)
        _until(answer)

    nothing = measure(lambda pid, folder: None, args.attaches)
    attached = measure(ours, args.attaches)
    result: dict[str, object] = {
        "step_ms_median": _ms(statistics.median(nothing.steps_ns)),
        "longest_step_ms": {"untouched": _ms(max(nothing.steps_ns)), "attached": _ms(max(attached.steps_ns))},
        "stop_ms": figures(stops_ms),
        "gap_ms": {"untouched": _figures_ns(nothing.gaps_ns()), "ours": _figures_ns(attached.gaps_ns())},
    }
    for name, value in result.items():
        print(f"{name:<18} {value}", file=sys.stderr)
    print(json.dumps(result))
    return 0


def measure(attach: Callable[[int, Path], object], count: int) -> Run:
    """Run the job and attach so many times, evenly."""
    with tempfile.TemporaryDirectory(prefix="autobrrr-gap-") as name:
        folder = Path(name)
        job = subprocess.Popen([sys.executable, "-c", JOB, name], stdout=subprocess.PIPE, text=True)
        try:
            assert job.stdout is not None
            job.stdout.readline()
            time.sleep(WARM_S)
            spans = []
            for _ in range(count):
                began_ns = time.monotonic_ns()
                attach(job.pid, folder)
                spans.append((began_ns, time.monotonic_ns()))
                time.sleep(BETWEEN_S)
            (folder / "stop").touch()
            job.wait(60)
        finally:
            job.kill()
            job.communicate()
        ends = array("q")
        ends.frombytes((folder / "ends").read_bytes())
    first = spans[0][0] - int(BETWEEN_S * 1e9)
    return Run(ends_ns=[end for end in ends if end > first], spans_ns=spans)


def _until(answer: Path) -> None:
    end_s = time.monotonic() + 30
    while not answer.exists():
        if time.monotonic() > end_s:
            raise SystemExit("the injected code did not run")
        time.sleep(0.0005)
    answer.unlink()


def _ms(value_ns: float) -> float:
    return round(value_ns / 1e6, 3)


def _figures_ns(values_ns: list[int]) -> dict[str, float]:
    return figures([value / 1e6 for value in values_ns])


if __name__ == "__main__":
    sys.exit(main())
