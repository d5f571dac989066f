"""A trial as the study holds it, against a keeper that is played: what is waited for, and for how long."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.attach.preload.preload_outcome import PreloadOutcome
from autobrrr.relaunch.trial import live_trial
from autobrrr.relaunch.trial.live_trial import Limits, LiveTrial, TrialLaunch
from autobrrr.relaunch.trial.trial_agents import Witnesses
from autobrrr.relaunch.trial.trial_steps import TrialSteps
from autobrrr.tuner.job_under_test import STEP


class Keeper:
    """Answers the order to stop after a while, with these lines; ends when the study lets go or kills it."""

    def __init__(self, *lines: dict[str, object], after_s: float = 0.0) -> None:
        self.ours, self._its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lines, self._after_s = lines, after_s
        self._over = threading.Event()
        threading.Thread(target=self._play, daemon=True).start()

    def _play(self) -> None:
        with self._its:
            for _ in ("stop", "keep"):
                self._its.recv(1 << 16)
            if not self._over.wait(self._after_s):
                for line in self._lines:
                    self._its.send(json.dumps(line).encode())
        self._over.set()

    def poll(self) -> int | None:
        return 0 if self._over.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._over.wait(timeout):
            raise subprocess.TimeoutExpired("keeper", timeout or 0.0)
        return 0

    def kill(self) -> None:
        self._over.set()


def trial(folder: Path, keeper: Keeper, *remedies: str) -> LiveTrial:
    return LiveTrial(
        launch=TrialLaunch(command=("train",), environment={}, folder=folder, remedies=remedies),
        folder=folder / "t0",
        limits=Limits(grace_s=0.0),
        witnesses=Witnesses(folder),
        keeper=keeper,  # type: ignore[arg-type]
        link=keeper.ours,
        prepared=SimpleNamespace(remove=lambda: None),  # type: ignore[arg-type]
        told=PreloadOutcome(folder, 0, remedies),
    )


def test_output_that_is_kept_may_take_longer_than_any_other_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_trial, "ANSWER_S", 0.01)
    said: tuple[dict[str, object], ...] = ({"kept": 3},)
    patient = trial(tmp_path, Keeper(*said, after_s=0.5))
    patient.close(tmp_path / "kept")
    assert patient.kept == 3


def test_output_whose_copy_was_cut_off_is_not_said_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_trial, "ANSWER_S", 0.01)
    monkeypatch.setattr(live_trial, "KEEP_S", 0.01)
    cut = trial(tmp_path, Keeper(after_s=30))
    cut.close(tmp_path / "kept")
    assert cut.kept == "the copy was not finished"


@pytest.fixture
def up_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has just started has no 400 s to look back on."""
    real = time.perf_counter_ns
    monkeypatch.setattr(time, "perf_counter_ns", lambda: real() + 3600 * 10**9)


def trained(trial: LiveTrial, count: int, ended_s_ago: float = 0.0) -> TrialSteps:
    """So many steps of 100 ms, the last of which ended a while ago."""
    steps = TrialSteps()
    records = np.zeros(count, dtype=STEP)
    last_ns = time.perf_counter_ns() - int(ended_s_ago * 1e9)
    records["end_ns"] = last_ns - 100_000_000 * np.arange(count)[::-1]
    records["start_ns"] = records["end_ns"] - 100_000_000
    steps.add(records)
    trial.witnesses = SimpleNamespace(look=lambda: None, steps=steps)  # type: ignore[assignment]
    return steps


def say(folder: Path, name: str) -> None:
    """The agent reports that a remedy is on."""
    line = {"remedy": name, "status": "applied", "why": "", "class": "rounding"}
    (folder / "outcome-0-1").write_text(json.dumps(line) + "\n")


@pytest.mark.usefixtures("up_for_an_hour")
@pytest.mark.parametrize(
    ("remedy", "silent_s", "ending"),
    [("compile.default", 200, None), ("compile.default", 400, "hang"), ("optimizer.foreach", 200, "hang")],
)
def test_a_step_that_compiles_may_take_long_and_no_other(
    remedy: str, silent_s: float, ending: str | None, tmp_path: Path
) -> None:
    waits = trial(tmp_path, Keeper(), remedy)
    trained(waits, 1, silent_s)
    say(tmp_path, remedy)
    waits.look()
    assert (waits.ending and waits.ending.kind) == ending


@pytest.mark.usefixtures("up_for_an_hour")
def test_where_compilation_has_had_its_steps_a_silence_is_a_hang(tmp_path: Path) -> None:
    compiled = trial(tmp_path, Keeper(), "compile.default")
    trained(compiled, 1)
    say(tmp_path, "compile.default")
    compiled.look()
    trained(compiled, 1 + REGISTRY["compile.default"].warm_up_steps, 150)
    compiled.look()
    assert compiled.ending is not None
    assert compiled.ending.kind == "hang"


def stood_still(folder: Path, lost: str | None = None) -> LiveTrial:
    """A trial with a remedy that has had its turn."""
    found = trial(folder, Keeper(), "optimizer.fused")
    found.witnesses = SimpleNamespace(  # type: ignore[assignment]
        look=lambda: None, steps=TrialSteps(), drain=lambda patience_s: None, lost=lost
    )
    found.pause()
    return found


def test_a_trial_whose_remedy_goes_off_by_itself_is_measured_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveTrial, "_ask", lambda self, command, answer: None)
    say(tmp_path, "optimizer.fused")
    line = {"remedy": "optimizer.fused", "status": "refused", "why": "in another order"}
    (tmp_path / "outcome-0-2").write_text(json.dumps(line) + "\n")  # of a process in which it was never on
    assert stood_still(tmp_path).ending is None
    why = "optimizer.fused went off by itself: in another order"
    heard = stood_still(tmp_path, why)
    with open(tmp_path / "outcome-0-1", "a") as file:
        file.write(json.dumps(line) + "\n")
    for each in (heard, stood_still(tmp_path)):
        assert each.ending is not None
        assert (each.ending.kind, each.ending.why) == ("not_applied", why)


def test_step_times_from_before_compilation_do_not_pass_for_settled(tmp_path: Path) -> None:
    compiles = trial(tmp_path, Keeper(), "compile.default")
    trained(compiles, 20)
    say(tmp_path, "compile.default")
    looks = 0

    def on_look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            trained(compiles, 20 + REGISTRY["compile.default"].warm_up_steps)

    assert compiles.warm_up(on_look)
    assert looks == 3
