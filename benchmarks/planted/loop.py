"""The loop of a planted job: knobs, pace, and the job's own stopwatch.

Runs inside the job. Without `--clock` it only counts steps; with it, it notes the time at every mark
of the script and writes what the sections of a step took, how many pages faulted and how much
work (by formula) a step does. That is the independent measurement of the truth.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import mmap
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")
Main = Callable[..., None]
Knobs = argparse.Namespace

WARM_S = 0.6
WARM_STEPS = 8
LEAST_STEPS = 12
PR_SET_PDEATHSIG = 1


def planted_job(**knobs: int | float | str) -> Callable[[Callable[[Loop, Knobs], None]], Main]:
    """A script's `main`: called with its loop and its knobs, which the command line may change.

    It stands last in its script, and runs at once where the script is what Python was started with.
    """
    parser = argparse.ArgumentParser()
    for name, value in knobs.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hollow", action="store_true", help="the same operators on next to no data")
    parser.add_argument("--clock", metavar="FILE", help="time the sections, write them there, end")
    parser.add_argument("--counted", metavar="FILE", help="keep the number of steps there: one int64")
    parser.add_argument("--seconds", type=float, default=180.0, help="life of the job; measured time")
    parser.add_argument("--steps", type=int, default=0, help="end after so many (0: only by time)")

    def taken(train: Callable[[Loop, Knobs], None]) -> Main:
        def main(argv: Sequence[str] | None = None) -> None:
            args = parser.parse_args(argv)
            train(Loop(args), args)

        main.knobs = knobs  # type: ignore[attr-defined]
        if train.__module__ == "__main__":
            main()
        return main

    return taken


class Loop:
    """Yields steps until the time is up; `mark` closes a section of the step."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(args.threads)
        self.args = args
        self.device = torch.device(args.device)
        self.flops = 0.0
        self.traffic_bytes = 0.0
        self.settled: dict[str, float] = {}
        self._marks: list[tuple[str, int]] = []
        self.mark: Callable[[str], None] = self._note if args.clock else _nothing
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # no job outlives who started it

    def size(self, full: Value, hollow: Value) -> Value:
        """A size of the data: the full one, or next to nothing with `--hollow`."""
        return hollow if self.args.hollow else full

    def works(self, *, flops: float = 0.0, traffic_bytes: float = 0.0) -> None:
        """Add to the work of a step, by formula: matmul FLOPs; bytes that eager operators must move."""
        self.flops += flops
        self.traffic_bytes += traffic_bytes

    def learn(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        """What most steps end with: backward and update, each a section; a later mark of one adds to it."""
        self.mark("forward")
        loss.backward()
        self.mark("backward")
        optimizer.step()
        self.mark("optimizer")

    def train(self, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> None:
        """All steps of a job that does nothing else."""
        for _ in self:
            optimizer.zero_grad()
            self.learn(loss(), optimizer)

    def __iter__(self) -> Iterator[int]:
        began = time.perf_counter()
        warm_until = began + WARM_S if self.args.clock else began
        steps: list[list[tuple[str, int]]] = []
        warm = 0
        counted = _count_in(self.args.counted)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for step in range(sys.maxsize):
            if step == 3:
                print("training", flush=True)
            self._marks.clear()
            self.mark("")
            yield step
            counted[0] = step + 1
            self.mark("rest")
            now = time.perf_counter()
            if now < warm_until or (self.args.clock and step < WARM_STEPS):
                warm, began = step + 1, now
                faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                continue
            if self.args.clock:
                steps.append(self._marks.copy())
            if self.args.steps and step + 1 >= self.args.steps:
                break
            if now - began >= self.args.seconds and (not self.args.clock or len(steps) >= LEAST_STEPS):
                break
        if self.args.clock:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
            self._write(steps, warm, faults)

    def _note(self, section: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self._marks.append((section, time.perf_counter_ns()))

    def _write(self, steps: list[list[tuple[str, int]]], warm: int, faults: int) -> None:
        took = [marks[-1][1] - marks[0][1] for marks in steps]
        sections: dict[str, float] = {}
        for marks in steps:
            for (_, began), (name, ended) in itertools.pairwise(marks):
                sections[name] = sections.get(name, 0.0) + (ended - began) / len(steps)
        found: dict[str, Any] = {
            "steps": len(steps),
            "warm_steps": warm,
            "step_ns": statistics.mean(took),
            "median_step_ns": statistics.median(took),
            "sections_ns": sections,
            "minor_faults": faults / len(steps),
            "flops": self.flops,
            "traffic_bytes": self.traffic_bytes,
            "settled": self.settled,
        }
        with open(self.args.clock, "w", encoding="utf-8") as file:
            json.dump(found, file)


def best_ns(work: Callable[[], object], times: int = 7) -> float:
    """The median time of a piece of work, warmed up; jobs balance their parts by it."""
    for _ in range(3):
        work()
    took = []
    for _ in range(times):
        began = time.perf_counter_ns()
        work()
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took)


def _count_in(path: str | None) -> list[int] | memoryview:
    """Keeps the number of steps: in a file that other processes can read, or just in memory."""
    if path is None:
        return [0]
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8)).cast("q")


def _nothing(_section: str) -> None:
    return None
