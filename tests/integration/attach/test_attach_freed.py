"""A job is left without an object of ours, whatever Python runs it, and whether it collects or not."""

from __future__ import annotations

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
COLLECTION
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

FORKED = """
import os
made, ends = {}, []
bundle_loader.load(package, "source", entries, lambda seconds: None, made)

def pause(seconds):
    if sys.getswitchinterval() > usual_s:
        child = os.fork()
        if not child:
            os._exit(sys.getswitchinterval() != usual_s)
        ends.append(os.waitpid(child, 0)[1])

usual_s = sys.getswitchinterval()
made[package + ".injected.unreachable"].free([], package, pause)
print(ends, sys.getswitchinterval() == usual_s)
"""

BRIEF = """
made, seen_s = {}, []
bundle_loader.load(package, "source", entries, lambda seconds: None, made)
made[package + ".injected.unreachable"].free([], package, lambda _: seen_s.append(sys.getswitchinterval()))
print(max(seen_s))
"""

ENDING = """
import atexit, json, threading, time
begun, ends = threading.Event(), threading.Event()

def freed(*words):
    print("begun")
    begun.set()
    time.sleep(0.5)
    print("freed")

def tensors(*words):  # each gives the GIL back as it goes
    begun.set()
    held.clear()

bundle_loader._free = FREED
bundle_loader.load = lambda *words, into: lambda boot: WHEN
with open(FOLDER + "/boot.json", "w") as file:
    json.dump({"deadline": time.monotonic() + 60, "method": "preload", "token": "0"}, file)
threading.Thread(target=bundle_loader.enter, args=(FOLDER, "source", [], None), daemon=True).start()
begun.wait()
"""

SAVING = """
import atexit, json, time
class Saves:
    __hash__ = object.__hash__
    def __eq__(self, other): return True
    def __call__(self): print("saved")

atexit.register(Saves())
bundle_loader._free = lambda *words: None
bundle_loader.load = lambda *words, into: lambda boot: None
with open(FOLDER + "/boot.json", "w") as file:
    json.dump({"deadline": time.monotonic() + 60, "method": "preload", "token": "0"}, file)
bundle_loader.enter(FOLDER, "source", [], None)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str, str], str]:
    from autobrrr.attach.bundle import code_bundle

    source = tmp_path / "source"
    source.write_bytes(code_bundle.source(code_bundle.entries()))

    def go(python: str, text: str) -> str:
        places = f"BUNDLE, SOURCE, FOLDER = {str(BUNDLE)!r}, {str(source)!r}, {str(tmp_path)!r}"
        script = f"{places}\n{LOAD}{text}"
        done = subprocess.run(
            [python, "-I", "-B", "-c", script], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Exception ignored" not in done.stderr, done.stderr
        return done.stdout

    return go


@pytest.mark.parametrize("version", sorted(interpreters()))
@pytest.mark.parametrize("collection", ["gc.disable()", "gc.set_threshold(700, 10, 1_000_000)"])
def test_no_object_of_ours_waits_for_a_collection(
    collection: str, version: str, run: Callable[[str, str], str]
) -> None:
    freed = FREED.replace("COLLECTION", collection)
    more, ours, garbage = map(int, run(interpreters()[version], freed).split())
    assert (more, ours) == (0, 0)
    assert garbage < 20, "of the interpreter's own"


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_what_the_job_still_holds_of_us_goes_on_working(version: str, run: Callable[[str, str], str]) -> None:
    assert run(interpreters()[version], HELD) == "works True\n"


def test_other_threads_of_the_job_wait_no_longer_for_each_other_than_a_pause_takes(
    run: Callable[[str, str], str],
) -> None:
    assert float(run(sys.executable, BRIEF)) <= 0.1


def test_a_child_forked_meanwhile_has_the_jobs_own_switch_interval(run: Callable[[str, str], str]) -> None:
    assert run(sys.executable, FORKED) == "[0] True\n"


@pytest.mark.parametrize(
    ("first", "when", "said"),
    [
        ("", "None", "begun\nfreed\n"),
        ("atexit.register(lambda: (ends.set(), time.sleep(0.5)))", "begun.set() or ends.wait()", ""),
    ],
    ids=["under-way", "late"],
)
def test_a_job_that_ends_waits_for_what_is_being_freed_and_lets_no_more_begin(
    first: str, when: str, said: str, run: Callable[[str, str], str]
) -> None:
    script = f"import atexit, time\n{first}\n{ENDING}"  # what the job registers first runs after ours
    assert run(sys.executable, script.replace("WHEN", when).replace("FREED", "freed")) == said


def test_what_a_job_does_at_its_end_stays_whatever_it_says_it_equals(run: Callable[[str, str], str]) -> None:
    assert run(sys.executable, SAVING) == "saved\n"


def test_a_job_that_ends_while_its_tensors_are_freed_is_not_aborted(run: Callable[[str, str], str]) -> None:
    held = "import torch\nheld = [torch.ones(3) for _ in range(200_000)]\n"
    assert run(sys.executable, held + ENDING.replace("WHEN", "None").replace("FREED", "tensors")) == ""


TRAINS = """
import gc, select, sys, types, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
x = torch.ones(16, 32)
gc.collect()
if sys.argv[1] == "off":
    gc.disable()
print("training", flush=True)
while True:
    for _ in range(50):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if select.select([sys.stdin], [], [], 0)[0]:
        if sys.stdin.readline() == "threads\\n":
            print(len(sys._current_frames()), flush=True)
            continue
        homes = [
            str((each if issubclass(type(each), (type, types.FunctionType)) else type(each)).__module__)
            for each in gc.get_objects()
        ]
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = int(bool(dynamo and dynamo.counters["stats"]))
        print(sum("_autobrrr_" in home for home in homes), compiled, flush=True)
"""
COMPILES = 'schema = 1\n[remedies]\n"compile.default" = true\n'


@pytest.mark.parametrize(("collection", "compiles"), [("off", False), ("off", True), ("on", False)])
def test_a_real_session_leaves_no_object(tmp_path: Path, collection: str, compiles: bool) -> None:
    script = tmp_path / "job.py"
    script.write_text(TRAINS)
    words = [sys.executable, str(script), collection]
    (tmp_path / "recipe.toml").write_text(COMPILES)
    recipe = ("--recipe", str(tmp_path / "recipe.toml")) if compiles else ()
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(tmp_path),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def says(question: str) -> list[str]:
            process.stdin.write(question + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return process.stdout.readline().split()  # type: ignore[union-attr]

        def ours() -> tuple[int, bool]:
            count, compiled = says("objects")
            return int(count), compiled == "1"

        try:
            assert process.stdout.readline() == "training\n"
            assert ours() == (0, False)
            for _ in range(1 if compiles else 2):
                attached = autobrrr(tmp_path, "attach", str(process.pid), "--for", "2s", "--json", *recipe)
                assert attached.code == 0, attached.stderr
                assert ours()[0] > 100
                eventually(lambda: ours()[1] == compiles)
                assert autobrrr(tmp_path, "detach", str(process.pid)).code == 0
                # Who looks at all objects holds them: what looks must wait until the agent's thread is gone.
                # Python's threads, not the kernel's: torch's profiler keeps one of its own.
                eventually(lambda: says("threads") == ["1"])
                assert ours()[0] == 0
        finally:
            process.kill()
