"""Tuning a real job through the command line: bits, remedies, recipes and exit codes."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from autobrrr import recipe
from support.attach import eventually
from support.training import EVERY, Finished, TrainingJob, autobrrr

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

StartJob = Callable[..., TrainingJob]


@pytest.mark.quiet
def test_a_job_tuned_with_bitwise_remedies_trains_to_the_same_bits(
    job: StartJob, untouched: Callable[[int], Finished], tmp_path: Path
) -> None:
    tuned = job("plain", "--busy", *EVERY)
    found = autobrrr(tmp_path, "tune", str(tuned.pid), "--for", "12s", "--allow", "bitwise", "--json")
    assert found.code == 0, found.stderr
    assert found.json["class"] == "bitwise"
    tried = {trial["remedy"] for trial in found.json["trials"]}
    assert "optimizer.foreach" in tried
    assert any(trial["steps"] for trial in found.json["trials"])
    detached = autobrrr(tmp_path, "detach", str(tuned.pid))
    assert (detached.code == 0) == bool(found.json["kept"]), detached.stderr
    trained = tuned.finish()
    assert trained == untouched(trained.steps)


@pytest.mark.quiet
def test_what_is_kept_is_proven_and_written_and_what_is_not_is_off(job: StartJob, tmp_path: Path) -> None:
    tuned = job("plain", "--busy")
    file = tmp_path / "made.toml"
    found = autobrrr(
        tmp_path,
        "tune",
        str(tuned.pid),
        "--for",
        "20s",
        "--only",
        "optimizer.fused",
        "--recipe",
        str(file),
        "--json",
    )
    assert found.code == 0, found.stderr
    (trial,) = found.json["trials"]
    if found.json["kept"]:
        assert found.json["interval"][0] > 1
        assert recipe.load(file).remedies[0].remedy == "optimizer.fused"
        assert found.json["recipe"] == str(file)
    else:
        assert found.json["speedup"] == 1.0
        assert trial["outcome"] in ("undone", "skipped", "refused")
        assert not file.exists()
    detached = autobrrr(tmp_path, "detach", str(tuned.pid))
    assert (detached.code == 0) == bool(found.json["kept"])  # with nothing kept, the session has ended
    assert ("optimizer.fused" in detached.stderr) == bool(found.json["kept"])
    assert tuned.finish().steps > 0


@pytest.mark.nightly
@pytest.mark.quiet
def test_workers_of_a_loader_are_proven_by_alternating_epochs_and_leave_no_process(
    job: StartJob, tmp_path: Path
) -> None:
    tuned = job("short_epochs")
    words = ("--for", "120s", "--only", "loader.workers", "--allow", "stream", "--json")
    found = autobrrr(tmp_path, "tune", str(tuned.pid), *words, timeout_s=300)
    assert found.code == 0, found.stderr
    (trial,) = found.json["trials"]
    assert (trial["remedy"], trial["class"]) == ("loader.workers", "stream")
    assert trial["outcome"] == "kept", trial
    assert trial["steps"] == 24 * trial["blocks"]
    assert trial["interval"][0] > 1
    assert autobrrr(tmp_path, "detach", str(tuned.pid)).code == 0
    eventually(lambda: not psutil.Process(tuned.pid).children())
    assert tuned.finish().steps > 0
