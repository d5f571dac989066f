"""A planted job that takes steps when it is told to: a JSON object a line, in and out.

    python -m benchmarks.planted.stepped MODULE [--knob VALUE]…

In: {"steps": N} · {"apply": REMEDY, "options": {…}} · {"undo": true}. Out: times of the steps · why it was
refused, or null · null. `SteppedJob` is the other end.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import ROOT
from benchmarks.planted.case import Case, Knob
from benchmarks.planted.job_process import NOTHING, JobFailed

if TYPE_CHECKING:
    from autobrrr.agent.live_torch.live_job import Job
    from benchmarks.planted.loop import Loop

ANSWER = "answer "  # begins a line that is ours: a job may print, too
Steps = dict[str, list[int]]  # of each step: `wall_ns`; `cpu_ns` of the process; `waited_ns` for a CPU


class SteppedJob:
    """A case's script in a process of its own, which waits to be told; `with` ends it."""

    def __init__(
        self, case: Case, environment: Mapping[str, str] = os.environ, over: Mapping[str, Knob] = NOTHING
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.planted.stepped", case.module, *case.words(over)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**environment, **case.environment()},
            cwd=ROOT,
        )

    def ask(self, **what: object) -> Any:
        """Its answer.

        Raises:
            JobFailed: it has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(what), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise JobFailed("the script does not run like this")

    def steps(self, count: int) -> Steps:
        """Take so many."""
        found: Steps = self.ask(steps=count)
        return found

    def __enter__(self) -> SteppedJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def as_told(_loop: Loop) -> Iterator[int]:
    """The steps of a loop that does what standard input says, until that ends."""
    from autobrrr.agent.remedies.active_remedies import ActiveRemedies
    from autobrrr.agent.remedies.families import REGISTRY
    from autobrrr.agent.remedies.registry import Refused

    active, number = ActiveRemedies(REGISTRY), 0
    for line in sys.stdin:
        asked, answer = json.loads(line), None
        if "steps" in asked:
            times = []
            for _ in range(asked["steps"]):
                before = _clocks()
                yield number
                times.append([now - then for now, then in zip(_clocks(), before, strict=True)])
                number += 1
            answer = dict(zip(("wall_ns", "cpu_ns", "waited_ns"), zip(*times, strict=True), strict=True))
        elif "apply" in asked:
            options = REGISTRY[asked["apply"]].option_values(asked["options"])
            try:
                active.apply(_seen(), asked["apply"], options)
            except Refused as refused:
                answer = str(refused)
        elif losses := active.undo_all():  # as at the end of a session
            raise SystemExit(f"not undone: {losses}")
        print(f"\n{ANSWER}{json.dumps(answer)}", flush=True)


def _clocks() -> tuple[int, int, int]:
    waited = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]
    return time.perf_counter_ns(), time.process_time_ns(), int(waited)


def _seen() -> Job:
    """What the agent would know of the job, found among the objects of the process."""
    import torch

    from autobrrr.agent.live_torch.live_job import Job

    def all_of(kind: type) -> list[Any]:
        return [each for each in gc.get_objects() if issubclass(type(each), kind)]

    job, modules = Job(torch), all_of(torch.nn.Module)
    inner = {id(child) for module in modules for child in module.children()}
    for root in modules:
        if id(root) not in inner:
            job.saw_root(root)
    for optimizer in all_of(torch.optim.Optimizer):
        job.saw_optimizer(optimizer)
    for loader in all_of(torch.utils.data.DataLoader):
        job.saw_loader(loader)
    return job


def main(module: str, *words: str) -> None:
    """Run the script."""
    from benchmarks.planted.loop import Loop

    Loop.__iter__ = as_told  # type: ignore[method-assign]
    importlib.import_module(module).main(words)


if __name__ == "__main__":
    main(*sys.argv[1:])
