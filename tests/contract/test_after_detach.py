"""What can be counted in a job after `detach`, without a clock: as before, for every live remedy.

Compiled code has its own tests (`integration/remedies/test_remedies_compile.py`); how long steps take is a
benchmark (`benchmarks/attach/after_detach.py`).
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from autobrrr.agent.remedies.families import REGISTRY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
LIVE = [
    name
    for name, remedy in REGISTRY.items()
    if remedy.reach == "live" and not remedy.needs and not name.startswith("compile.")
]
KIND_FOR = {
    "layout.channels_last": "cnn",
    "attention.sdpa": "transformer",
    "recompute.checkpoint": "transformer",
}
OPTIONS: dict[str, dict[str, object]] = {
    "threads.intra_op": {"threads": 2},
    "attention.sdpa": {"kernel": "math"},
}
COUNTED = ("python_threads", "hooks", "own_names", "descriptors")
SETTLE = 6  # steps after each switching


Ask = Callable[..., list[object]]


@pytest.fixture(scope="module")
def told() -> Iterator[Ask]:
    """What a job of a kind answers, one for each thing that it is asked; it trains on for the next remedy."""
    with ExitStack() as jobs:

        @functools.cache
        def job(kind: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.detached.job", kind, "1"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            jobs.callback(process.wait)
            jobs.enter_context(process.stdin)  # closed first: the job ends
            return process

        def ask(kind: str, *asked: dict[str, object]) -> list[object]:
            process = job(kind)
            process.stdin.write("".join(json.dumps(each) + "\n" for each in asked))
            process.stdin.flush()
            return [json.loads(process.stdout.readline()) for _ in asked]

        yield ask


def switched(remedy: str, times: int, steps: int = SETTLE) -> list[dict[str, object]]:
    """On and off again, with steps between."""
    on: dict[str, object] = {"apply": remedy, "options": OPTIONS.get(remedy, {})}
    return [on, {"steps": steps}, {"undo": True}, {"steps": steps}] * times


@pytest.mark.parametrize("remedy", LIVE)
def test_hooks_threads_names_and_files_are_as_many_as_before(told: Ask, remedy: str) -> None:
    state: dict[str, object] = {"state": True}
    asked = [{"steps": 10}, state, *switched(remedy, 1), state, *switched(remedy, 2), state]
    _, before, refused, _, _, _, once, *_, after = told(KIND_FOR.get(remedy, "tiny-mlp"), *asked)
    if isinstance(refused, str):
        pytest.skip(f"does not fit here: {refused}")
    assert isinstance(before, dict)
    assert isinstance(once, dict)
    assert isinstance(after, dict)
    assert {name: after[name] for name in COUNTED} == {name: before[name] for name in COUNTED}
    assert after["os_threads"] == once["os_threads"]  # a pool that torch has started once sleeps on
