"""One relaunched trial: every way in which a script can end, and nothing of it is left."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autobrrr.relaunch.search.argparse_flags import declared_flags
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.search_space import make_space
from autobrrr.relaunch.trial import live_trial
from autobrrr.relaunch.trial.live_trial import Limits, LiveTrial, TrialLaunch
from autobrrr.relaunch.trial.trial_factory import sweep
from support import relaunch, training

pytestmark = pytest.mark.integration
Start = Callable[..., LiveTrial]
LIMITS = Limits(first_step_s=20, settle_s=5, silence_s=1.0, grace_s=0.5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts trials; at the end of the test they are closed and every trace is looked for."""
    started: list[LiveTrial] = []

    def begin(launch: TrialLaunch, limits: Limits = LIMITS) -> LiveTrial:
        folder = tmp_path / "run" / f"t{len(started)}"
        started.append(live_trial.start(launch, folder, limits, None))
        return started[-1]

    shared_memory = set(os.listdir("/dev/shm"))
    yield begin
    for each in started:
        each.close()
    assert relaunch.alive(tmp_path / "run") == []
    for each in started:
        assert not each.folder.exists()
    left = {name for name in set(os.listdir("/dev/shm")) - shared_memory if "autobrrr" in name}
    assert {name for name in left if not name.startswith("autobrrr-test-")} == set()  # of a test beside this


def inline(tmp_path: Path, text: str, *flags: str) -> TrialLaunch:
    return relaunch.launch(relaunch.script(tmp_path / "user", text), *flags)


def test_a_script_that_trains_settles_and_is_paused_and_resumed(tmp_path: Path, start: Start) -> None:
    trial = start(relaunch.launch(relaunch.script(tmp_path / "user")))
    assert trial.warm_up(), trial.ending
    assert trial.settled
    assert trial.start_ns is not None
    trial.pause()
    trial.look()
    stood = trial.steps.count
    time.sleep(0.2)
    trial.look()
    assert trial.steps.count == stood
    resumed_ns = trial.resume()
    while len(trial.steps.block(resumed_ns).steps) < 5:
        trial.look()
        assert trial.ending is None
        time.sleep(0.005)
    assert min(trial.steps.block(resumed_ns).steps) >= 4_000_000


ENDINGS = {
    "no_steps": "print('nothing to do')",
    "crash": "raise ValueError('odd')",
    "asks": "input('continue? ')",
    "refused_flag": "import argparse; argparse.ArgumentParser().parse_args(['--nope'])",
    "background": "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(100)",
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_every_way_to_end_has_its_name_and_reason(kind: str, tmp_path: Path, start: Start) -> None:
    trial = start(inline(tmp_path, ENDINGS[kind]))
    assert not trial.warm_up()
    assert trial.ending.kind == kind, trial.ending


def test_a_program_that_is_not_there_is_said(tmp_path: Path, start: Start) -> None:
    trial = start(TrialLaunch(command=("/no/such/program",), environment={}, folder=tmp_path))
    assert not trial.warm_up()
    assert (trial.ending.kind, trial.ending.why) == (
        "no_start",
        "/no/such/program: No such file or directory",
    )


def test_what_never_comes_on_is_not_measured(tmp_path: Path, start: Start) -> None:
    body = "import time, torch\nwhile True:\n    time.sleep(0.004)\n    torch.Tensor().backward()\n"
    name = "optimizer.foreach"  # and no optimizer ever steps
    plan: dict[str, object] = {"remedies": [{"name": name, "options": {}}]}
    planned = replace(inline(tmp_path, body), plan=plan, remedies=(name,))
    trial = start(planned, replace(LIMITS, settle_s=1))
    assert not trial.warm_up()
    assert (trial.ending.kind, trial.ending.why) == (
        "not_applied",
        f"{name}: it was not applied within 1 s of steps",
    )


def test_a_script_that_stops_training_hangs(tmp_path: Path, start: Start) -> None:
    trial = start(relaunch.launch(relaunch.script(tmp_path / "user"), "--hang-at", "1000"))
    assert trial.warm_up()
    while trial.ending is None:
        trial.look()
        time.sleep(0.01)
    assert trial.ending.kind == "hang"


def test_a_script_that_never_trains_is_given_up_and_one_that_ignores_term_is_killed(
    tmp_path: Path, start: Start
) -> None:
    text = (
        "import os, signal, time\nfor s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n"
        "    signal.signal(s, signal.SIG_IGN)\n"
        "if not os.fork():\n    os.setsid()\n    os.environ.clear()\n"
        "print('waiting', flush=True)\ntime.sleep(1000)\n"
    )
    trial = start(inline(tmp_path, text), Limits(first_step_s=1.0, grace_s=0.3))
    assert not trial.warm_up()
    assert trial.ending.kind == "no_steps"
    assert len(relaunch.alive(tmp_path / "run")) >= 1
    trial.close()  # which the sleep would outlast


def test_a_remedy_that_can_t_be_applied_is_an_ending(tmp_path: Path, start: Start) -> None:
    launch = relaunch.launch(relaunch.script(tmp_path / "user"))
    plan: dict[str, object] = {"remedies": [{"name": "optimizer.fused", "options": {}}]}
    trial = start(replace(launch, plan=plan, remedies=("optimizer.fused",)))
    assert not trial.warm_up()
    assert trial.ending.kind == "not_applied"
    assert trial.ending.why.startswith("optimizer.fused: ")


def test_when_the_study_is_killed_its_trials_end_and_the_next_one_sweeps(tmp_path: Path) -> None:
    file = relaunch.script(tmp_path / "user", "import time\nprint('up', flush=True)\ntime.sleep(100)")
    study = (
        "import time; from pathlib import Path; from support import relaunch\n"
        f"here, file = Path({str(tmp_path)!r}), Path({str(file)!r})\n"
        "with relaunch.factory(here, relaunch.launch(file), walled=False) as stable:\n"
        "    trial = stable.start()\n"
        "    while not trial.lines: trial.look(); time.sleep(0.01)\n"
        "    print('up', flush=True); time.sleep(100)\n"
    )
    root = Path(__file__).resolve().parents[3]
    read, write = os.pipe()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", study],
        {**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
    )
    os.close(write)
    with os.fdopen(read) as said:
        assert said.readline() == "up\n"
    assert relaunch.alive(tmp_path / "run")
    sweep(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()), "it is held by a living study"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + 5
    while relaunch.alive(tmp_path / "run") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert relaunch.alive(tmp_path / "run") == []
    assert list((tmp_path / "run").iterdir())
    sweep(tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_a_larger_batch_keeps_the_samples_of_an_update_through_the_script_s_own_flag(tmp_path: Path) -> None:
    text = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--grad-accum", type=int, default=6)
args = parser.parse_args()
model = torch.nn.Linear(32, 4)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
while True:
    for _ in range(args.grad_accum):
        (model(torch.randn(args.batch_size, 32)).square().mean() / args.grad_accum).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    file = relaunch.script(tmp_path / "user", text)
    command, env = [sys.executable, str(file)], training.environment(tmp_path)
    declared = declared_flags(command)
    sizes = parse_parameter("--batch-size=choice:4,5,8,12", command, env, declared)
    space = make_space([sizes], command, declared, ("bitwise", "rounding"))
    points = space.points()
    assert [space.label(point) for point in points] == ["--batch-size=8", "--batch-size=12"]
    assert space.cls(points[0]) == "rounding"
    launched = TrialLaunch(command=tuple(command), environment=env, folder=file.parent)
    with relaunch.factory(tmp_path, launched, space=space, walled=False) as stable:
        for point in (space.base, points[0]):
            trial = stable.start(point)
            assert trial.warm_up(), trial.ending
            assert trial.samples == 24
            trial.close()
