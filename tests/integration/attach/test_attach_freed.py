"""After a session, one collection by the job frees every object of ours."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.attach import eventually
from support.day_cases import by_day
from support.training import autobrrr, environment

pytestmark = pytest.mark.integration

TRAINS = """
import gc, select, sys, traceback, types, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
x = torch.ones(16, 32)
print("training", flush=True)
while True:
    for _ in range(50):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if select.select([sys.stdin], [], [], 0)[0]:
        if sys.stdin.readline() == "threads\\n":
            stacks = ["".join(traceback.format_stack(frame)) for frame in sys._current_frames().values()]
            print(sum("importlib._bootstrap autobrrr" in stack for stack in stacks), flush=True)
            continue
        gc.collect()
        homes = [
            str((each if issubclass(type(each), (type, types.FunctionType)) else type(each)).__module__)
            for each in gc.get_objects()
        ]
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = int(bool(dynamo and dynamo.counters["stats"]))
        print(sum("_autobrrr_" in home for home in homes), compiled, flush=True)
"""
COMPILES = 'schema = 1\n[remedies]\n"compile.default" = true\n'


@pytest.mark.parametrize("compiles", by_day([False, True], lambda compiles: not compiles))
def test_after_a_session_one_collection_by_the_job_frees_the_agent(tmp_path: Path, compiles: bool) -> None:
    script = tmp_path / "job.py"
    script.write_text(TRAINS)
    words = [sys.executable, str(script)]
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
            attached = autobrrr(tmp_path, "attach", str(process.pid), "--for", "2s", "--json", *recipe)
            assert attached.code == 0, attached.stderr
            assert ours()[0] > 100
            assert says("threads") == ["1"]
            eventually(lambda: ours()[1] == compiles)
            assert autobrrr(tmp_path, "detach", str(process.pid)).code == 0
            # Who looks at all objects holds them: what looks must wait until the agent's thread is gone.
            # torch's compiler and profiler, and what they import, keep threads of their own.
            eventually(lambda: says("threads") == ["0"])
            assert ours()[0] == 0
        finally:
            process.kill()
