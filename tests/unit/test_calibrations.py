"""What the machine can do: looked up for the judge, measured only by whoever is about to attach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autobrrr.cli import job_peaks
from autobrrr.cli.job_peaks import likely_threads, make_sure_of_peaks
from autobrrr.roofline import quick_peaks
from autobrrr.roofline.quick_peaks import MeasuredPeaks
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.session.calibrations import Calibrations
from autobrrr.sidecar.session.collected import Collected
from support import diagnosis


def test_the_cache_is_asked_until_it_has_the_jobs_own_number_of_threads(tmp_path: Path) -> None:
    asked: list[int] = []
    cached: dict[int, MeasuredPeaks] = {}

    def peaks_of(threads: int, cache: Path) -> MeasuredPeaks | None:
        asked.append(threads)
        return cached.get(threads)

    looked_up = Calibrations(tmp_path, peaks_of, lambda: 800.0, proc=tmp_path)
    assert looked_up.peaks(2) is None
    cached[2] = diagnosis.peaks_of_machine(threads=2)
    assert looked_up.peaks(2) is cached[2]
    assert looked_up.peaks(2) is cached[2]
    assert asked == [2, 2]
    assert looked_up.peaks(4) is None
    assert looked_up.peaks(None) is None


def test_the_judge_is_handed_what_was_looked_up(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu amx_bf16\n")
    findings = Collected(42, SessionOptions())
    assert findings.measurements(0).peaks is None
    findings.facts = diagnosis.facts(threads=3)
    findings.calibrations = Calibrations(
        tmp_path, lambda threads, _: diagnosis.peaks_of_machine(threads), lambda: 800.0, proc=tmp_path
    )
    measured = findings.measurements(0)
    assert measured.peaks is not None
    assert (measured.peaks.threads, measured.fault_ns, measured.bf16) == (3, 800.0, True)


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        (b"A=1\0OMP_NUM_THREADS=3\0", 3),
        (b"MKL_NUM_THREADS=5\0", 5),
        (b"OMP_NUM_THREADS=3\0MKL_NUM_THREADS=5\0", 3),
    ],
)
def test_a_job_starts_with_the_threads_of_its_environment(
    tmp_path: Path, environ: bytes, threads: int
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(environ)
    assert likely_threads(7, tmp_path) == threads


def test_nothing_is_guessed_of_a_process_that_cannot_be_read(tmp_path: Path) -> None:
    assert likely_threads(7, tmp_path) is None


def test_peaks_are_measured_once_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[bool] = []

    def fake(
        threads: int, cache: Path, measure: bool = True, say: Callable[[str], None] | None = None
    ) -> MeasuredPeaks | None:
        calls.append(measure)
        return diagnosis.peaks_of_machine(threads) if True in calls else None

    monkeypatch.setattr(quick_peaks, "quick_peaks", fake)
    make_sure_of_peaks(2, tmp_path)
    make_sure_of_peaks(2, tmp_path)
    make_sure_of_peaks(None, tmp_path)
    assert calls == [False, True, False]
    assert capsys.readouterr().err.count("with 2 threads, once") == 1
    assert Path("/proc") == job_peaks.PROC


def test_peaks_that_could_not_be_kept_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(
        threads: int, cache: Path, measure: bool = True, say: Callable[[str], None] | None = None
    ) -> MeasuredPeaks | None:
        assert not measure
        return None

    monkeypatch.setattr(quick_peaks, "quick_peaks", fake)
    (tmp_path / "file").write_text("")
    make_sure_of_peaks(2, tmp_path / "file")
    said = capsys.readouterr().err
    assert "is not measured, since it can't be kept" in said
    assert "XDG_CACHE_HOME" in said
