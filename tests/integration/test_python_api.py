"""The Python API on a real job: diagnose, tune, leave; the weights are those of a run never touched."""

from collections.abc import Callable
from pathlib import Path

import pytest

import autobrrr
from autobrrr.client.job_peaks import measuring_python
from autobrrr.client.session_client import join
from autobrrr.records.session_requests import TakeSnapshot
from autobrrr.roofline.quick_peaks import quick_peaks
from support.torchrun import Torchrun
from support.training import EVERY, Finished, TrainingJob, environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, as a client, looks where the sidecars of the test are."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)


def test_a_session_diagnoses_tunes_and_leaves_nothing(
    job: Callable[..., TrainingJob], untouched: Callable[[int], Finished]
) -> None:
    attached = job("plain", *EVERY)
    said: list[str] = []
    with autobrrr.attach(attached.pid, say=said.append) as session:
        assert session.started
        found = session.diagnose(for_s=5, say=said.append)
        assert found.pid == attached.pid
        assert found.step_ns.count > 0
        tuning = session.tune(for_s=8, only=["gc.freeze"], say=said.append)
        assert [trial.remedy for trial in tuning.trials] == ["gc.freeze"]
        assert "gc.freeze" in session._repr_html_()
    assert any("gc.freeze" in line for line in said)
    assert join(attached.pid) is None
    trained = attached.finish()
    assert trained == untouched(trained.steps)


@pytest.mark.nightly
def test_the_ranks_of_a_launcher_are_one_session(tmp_path: Path) -> None:
    job = Torchrun(tmp_path, "--until", str(tmp_path / "never"))
    try:
        ranks = job.wait_until_it_trains()
        said: list[str] = []
        with autobrrr.attach(int(job.pid), probe=False, say=said.append) as session:
            found = session.diagnose(for_s=8, say=said.append)
            assert [line.pid for line in found.ranks or []] == ranks
            assert found.straggler is not None, said
            tuning = session.tune(for_s=8, only=["optimizer.fused"], say=said.append)
            assert [trial.remedy for trial in tuning.trials] == ["optimizer.fused"], said
        assert [join(pid) for pid in ranks] == [None, None]
        assert job.process.poll() is None
    finally:
        job.kill()


def test_a_session_that_others_use_goes_on_without_its_program(job: Callable[..., TrainingJob]) -> None:
    attached = job("plain")
    with autobrrr.attach(attached.pid, probe=False) as session:
        other = join(attached.pid)
        next(other.events())
    assert session.started
    other.ask(TakeSnapshot())
    assert other.leave() is not None, "the last one ends it"
    assert join(attached.pid) is None
    attached.finish()


def test_peaks_are_measured_with_the_jobs_own_interpreter_and_torch(
    job: Callable[..., TrainingJob], tmp_path: Path
) -> None:
    attached = job("plain")
    way = measuring_python(attached.pid)
    assert way.site is not None
    assert (Path(way.site) / "torch").is_dir()
    found = quick_peaks(1, tmp_path / "peaks", way.program, version=way.version, site=way.site)
    assert found.torch == way.version
    assert quick_peaks(1, tmp_path / "peaks", measure=False, version=way.version) == found
    attached.finish()
