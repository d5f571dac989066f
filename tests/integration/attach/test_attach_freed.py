"""A job that has switched collection off is left without an object of ours, whatever Python runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.attach import eventually, interpreters
from support.training import autobrrr, environment

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "autobrrr" / "attach" / "bundle"

# Loads the agent as an injection does; torch is not needed for that.
LOAD = """
import collections, ctypes, gc, marshal, sys, weakref
sys.path.insert(0, BUNDLE)
import bundle_loader
with open(SOURCE, "rb") as file:
    entries = marshal.loads(file.read())[1:]
free, package = None, "_autobrrr_0"

def session(keep=None):
    global free
    made = {}
    bundle_loader.load(package, "source", entries, lambda seconds: None, made)
    kept = keep(made) if keep else None
    bundle_loader._free(package, made, {"boot": [object()]})
    return kept

def ours():
    return [each for each in gc.get_objects() if "_autobrrr_0" in str(getattr(each, "__module__", ""))]

def counted():
    return len(gc.get_objects())
"""

FREED = """
session()  # what the standard library keeps from its first use
gc.collect()
gc.disable()
session()
before = counted()
for _ in range(3):
    session()
print(counted() - before, len(ours()), gc.collect())
"""

HELD = """
gc.collect()
gc.disable()
cls, hook, module = session(lambda made: (
    made[package + ".injected.wire.ring_writer"].StepRing,
    made[package + ".injected.wire.framing"].encode,
    made[package + ".injected.loop.step_hook"],
))
assert hook({"v": 1})[4:] == b'{"v":1}', hook({"v": 1})
assert cls.__mro__[-1] is object and callable(cls.write_plain)
assert module.Hot(7).start == 7
print("works", 0 < len(ours()) < 1000)
"""

COLLECTED = """
session()
print("waits for the job's own collection", len(ours()) > 100)
gc.collect()
print(len(ours()))
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str, str], str]:
    from autobrrr.attach.bundle import code_bundle

    source = tmp_path / "source"
    source.write_bytes(code_bundle.source(code_bundle.entries()))

    def go(python: str, text: str) -> str:
        script = f"BUNDLE, SOURCE = {str(BUNDLE)!r}, {str(source)!r}\n{LOAD}{text}"
        done = subprocess.run(
            [python, "-I", "-B", "-c", script], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Exception ignored" not in done.stderr, done.stderr
        return done.stdout

    return go


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_with_collection_off_no_object_of_ours_stays(version: str, run: Callable[[str, str], str]) -> None:
    more, ours, garbage = map(int, run(interpreters()[version], FREED).split())
    assert (more, ours) == (0, 0)
    assert garbage < 20, "of the interpreter's own"


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_what_the_job_still_holds_of_us_goes_on_working(version: str, run: Callable[[str, str], str]) -> None:
    assert run(interpreters()[version], HELD) == "works True\n"


def test_where_the_job_collects_its_own_collection_ends_ours(run: Callable[[str, str], str]) -> None:
    assert run(sys.executable, COLLECTED) == "waits for the job's own collection True\n0\n"


TRAINS = """
import gc, select, sys, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
x = torch.ones(16, 32)
gc.collect(); gc.disable()
print("training", flush=True)
while True:
    for _ in range(50):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if select.select([sys.stdin], [], [], 0)[0]:
        sys.stdin.readline()
        kinds = [repr(type(each)) + str(getattr(each, "__module__", "")) for each in gc.get_objects()]
        print(sum("_autobrrr_" in kind for kind in kinds), flush=True)
"""


def test_a_real_session_leaves_no_object_where_collection_is_off(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(TRAINS)
    words = [sys.executable, str(script)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ours() -> int:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return int(process.stdout.readline())  # type: ignore[union-attr]

        try:
            assert process.stdout.readline() == "training\n"
            threads = len(os.listdir(f"/proc/{process.pid}/task"))
            for _ in range(2):
                attached = autobrrr(tmp_path, "attach", str(process.pid), "--for", "2s", "--json")
                assert attached.code == 0, attached.stderr
                assert ours() > 100
                assert autobrrr(tmp_path, "detach", str(process.pid)).code == 0
                # Who looks at all objects holds them: what looks must wait until the agent's thread is gone.
                eventually(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == threads)
                assert ours() == 0
        finally:
            process.kill()
