"""The whole loop on real jobs: attach, judge, leave; and the weights are those of a run never touched."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from autobrrr.cli import main
from support.attach import eventually
from support.day_cases import by_day
from support.training import EVERY, Finished, TrainingJob, autobrrr, environment, sidecars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

StartJob = Callable[..., TrainingJob]
KINDS = ("plain", "loader", "trainer", "gan", "accumulate")


@pytest.mark.parametrize("kind", by_day(KINDS, "plain".__eq__))
def test_a_diagnosed_job_trains_on_to_the_same_bits(
    kind: str, job: StartJob, untouched: Callable[[int], Finished], tmp_path: Path
) -> None:
    attached = job(kind, *(EVERY if kind == "plain" else ()))
    found = autobrrr(tmp_path, "diagnose", str(attached.pid), "--json")
    assert found.code == 0, found.stderr
    assert attached.alive()
    trained = attached.finish()
    assert found.json["steps"] is None or found.json["steps"] > 3
    assert found.json["step_ns"]["count"] > 0
    assert trained == (
        untouched(trained.steps) if kind == "plain" else job(kind, "--steps", str(trained.steps)).finish(120)
    )


@pytest.mark.parametrize("how", by_day(["join", "asyncio"], "join".__eq__))
def test_a_job_that_trains_in_a_thread_is_diagnosed_there_and_trains_on_to_the_same_bits(
    how: str, job: StartJob, untouched: Callable[[int], Finished], tmp_path: Path
) -> None:
    attached = job("threaded", "--main", how, *EVERY)
    found = autobrrr(tmp_path, "diagnose", str(attached.pid), "--json")
    assert found.code == 0, found.stderr
    trained = attached.finish()
    assert found.json["step_ns"]["count"] > 0
    assert found.json["anatomy"]["train_tid"] != attached.pid
    assert found.json["host"]["threads"] >= 2
    assert trained == untouched(trained.steps)


def test_a_users_global_hook_is_called_by_the_users_steps_alone(job: StartJob, tmp_path: Path) -> None:
    hooked = job("hooked")
    assert autobrrr(tmp_path, "diagnose", str(hooked.pid), "--json", "--for", "5s").code == 0
    hooked.finish()
    assert "foreign 0 []" in hooked.lines


def test_what_a_job_warns_and_logs_names_the_same_callers_while_it_is_diagnosed(
    job: StartJob, tmp_path: Path
) -> None:
    warns = job("warns")
    assert autobrrr(tmp_path, "diagnose", str(warns.pid), "--json", "--for", "5s").code == 0
    warns.finish()
    assert "first 24" in warns.lines
    assert "other {}" in warns.lines


def test_a_second_attach_joins_and_detach_leaves_nothing(job: StartJob, tmp_path: Path) -> None:
    target = job("plain")
    before = _footprint(target.pid)
    assert autobrrr(tmp_path, "attach", str(target.pid), "--for", "3s", "--json", "--no-probe").code == 0
    before_it = sidecars(tmp_path)
    again = autobrrr(tmp_path, "attach", str(target.pid), "--for", "2s", "--json")
    assert again.code == 0
    assert again.json["final"] is True
    assert len(before_it) == 1
    assert sidecars(tmp_path) == before_it
    listed = autobrrr(tmp_path, "ls", "--json").json["jobs"]
    assert any(line["pid"] == target.pid and line["attached"] for line in listed)
    assert autobrrr(tmp_path, "detach", str(target.pid)).code == 0
    eventually(lambda: _footprint(target.pid) == before and not sidecars(tmp_path))


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_fifty_cycles_leak_nothing(
    job: StartJob, untouched: Callable[[int], Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = job("plain", *EVERY)
    for name, value in environment(tmp_path).items():  # the commands run in this process
        monkeypatch.setenv(name, value)

    def cycle() -> None:
        assert main(["attach", str(target.pid), "--for", "200ms", "--json", "--no-probe"]) == 0
        assert main(["detach", str(target.pid)]) == 0

    def grown_bytes(cycles: int) -> int:
        before_bytes = _rss_bytes(target.pid)
        for _ in range(cycles):
            cycle()
        return _rss_bytes(target.pid) - before_bytes

    grown_bytes(15)
    before = _footprint(target.pid)
    # A leak grows in each round; the heap of a session that overlaps the last one's end, in one of them.
    assert any(grown_bytes(50) < 50 * 64 * 1024 for _ in range(3))
    eventually(lambda: _footprint(target.pid) == before)
    trained = target.finish()
    assert trained == untouched(trained.steps)


def test_a_sidecar_killed_at_any_moment_leaves_a_training_job_as_it_was(
    job: StartJob, untouched: Callable[[int], Finished], tmp_path: Path
) -> None:
    target = job("plain", *EVERY)
    before = _footprint(target.pid)
    for after_s in (0.0, 0.2, 1.0, 2.5, 6.0):
        assert autobrrr(tmp_path, "attach", str(target.pid), "--for", "1ms", "--json").code == 0
        time.sleep(after_s)
        for pid in sidecars(tmp_path):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: _footprint(target.pid) == before)
    trained = target.finish()
    assert trained == untouched(trained.steps)


def _footprint(pid: int) -> tuple[list[str], int]:
    """What an agent would add: threads (as a count) and open files, by what they are."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0])
        except OSError:
            continue
    return sorted(links), len(os.listdir(f"/proc/{pid}/task"))


def _rss_bytes(pid: int) -> int:
    """The least that is seen for some seconds, in which the last agent's thread ends."""
    looks = []
    for _ in range(30):
        looks.append(psutil.Process(pid).memory_info().rss)
        time.sleep(0.1)
    return min(looks)


def test_a_diagnosis_says_that_its_log_could_not_be_written(job: StartJob, tmp_path: Path) -> None:
    (tmp_path / "state" / "autobrrr").mkdir(parents=True, mode=0o700)
    (tmp_path / "state" / "autobrrr" / "sessions").touch()  # where the folder of logs should be
    found = autobrrr(tmp_path, "diagnose", str(job("plain").pid), "--for", "3s")
    assert "of the session's log could not be written" in found.stderr
