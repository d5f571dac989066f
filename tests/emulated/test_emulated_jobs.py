"""Whole sessions on jobs of the device: a verdict of its timeline, a remedy on and off, nothing stays."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autobrrr.agent.measure.profiler_window import GAVE_WAY
from support.training import TrainingJob, autobrrr

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.timeout(300)]
StartJob = Callable[..., TrainingJob]


def held(job: TrainingJob) -> tuple[str, str]:
    """What the job held before anybody came, and what when it ended."""
    lines = {
        line.split()[0]: line.split(maxsplit=1)[1] for line in job.lines if line.startswith(("bef", "aft"))
    }
    return lines["before"], lines["after"]


@pytest.mark.parametrize(
    ("kind", "never"),
    [
        ("launch", {"input", "sync", "compute", "memory"}),
        ("amp", {"input", "compute", "memory"}),  # a loss scale, two backwards a step
        ("loader", {"compute", "memory"}),  # one worker, pinned memory
    ],
)
def test_a_job_is_judged_by_its_devices_timeline_and_keeps_nothing(
    kind: str, never: set[str], job: StartJob, tmp_path: Path
) -> None:
    attached = job("on_device", kind)
    for _ in range(3):  # a window in which an epoch ends, and its worker with it, is given up
        found = autobrrr(tmp_path, "diagnose", str(attached.pid), "--json", "--window", "--for", "8s")
        assert found.code == 0, found.stderr
        said = found.json
        assert said["regime"] not in never, said["reason"]
        window = said["window"]
        if window["why"] != GAVE_WAY:
            break
    assert (window["status"], window["cupti"]) == ("ok", None), window["why"]
    assert window["gaps"][0]["busy_ns"] > 0
    assert window["stall_ns"] >= window["write_ns"]
    attached.finish()
    before, after = held(attached)
    assert after == before


def test_a_job_that_captures_its_step_anew_again_and_again_lives_through_a_diagnosis(
    job: StartJob, tmp_path: Path
) -> None:
    attached = job("on_device", "recapture")
    found = autobrrr(tmp_path, "diagnose", str(attached.pid), "--json", "--for", "6s")
    assert found.code == 0, found.stderr
    assert attached.alive(), attached.lines
    autobrrr(tmp_path, "detach", str(attached.pid))
    assert attached.finish().steps > 20


def test_a_remedy_that_was_tried_goes_with_its_memory(job: StartJob, tmp_path: Path) -> None:
    attached = job("on_device", "launch")
    pid = str(attached.pid)
    words = [
        "--only",
        "optimizer.fused",
        "--allow",
        "unproven",
        "--for",
        "8s",
        "--json",
    ]  # replays a step, too
    tuned = autobrrr(tmp_path, "tune", pid, *words)
    assert tuned.code == 0, tuned.stderr
    (trial,) = tuned.json["trials"]
    assert (trial["remedy"], trial["steps"] > 0) == ("optimizer.fused", True)
    autobrrr(tmp_path, "detach", pid)
    attached.finish()
    before, after = held(attached)
    assert after == before
