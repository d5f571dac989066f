"""What the machine can do: looked up for the judge, measured only by whoever is about to attach."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from autobrrr.client import diagnosing
from autobrrr.client.job_peaks import MeasuringPython, likely_threads, make_sure_of_peaks, may_use_a_device
from autobrrr.machine.processors import multiplies_bf16
from autobrrr.roofline import quick_peaks
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.session import collected
from autobrrr.sidecar.session.collected import Collected
from support.judged import diagnosis
from support.screens import tui


def test_the_judge_is_handed_what_was_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected, "quick_peaks", lambda cpus, *_, **__: diagnosis.peaks_of_machine(cpus))
    findings = Collected(42, SessionOptions())
    assert findings.measurements(0).peaks is None
    findings.facts = diagnosis.facts(threads=3)
    (tmp_path / "cpuinfo").write_text("flags : fpu amx_bf16\n")
    findings.peaks_folder, findings.fault_ns, findings.bf16 = tmp_path, 800.0, multiplies_bf16(tmp_path)
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
def test_a_job_has_the_threads_of_its_environment(tmp_path: Path, environ: bytes, threads: int) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(environ)
    assert likely_threads(7, tmp_path) == threads


class Children(list[tuple[str, str | None]]):
    """Interpreters that were asked to measure, each with the folder of its torch."""

    waited_share = 0.0


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    """An old one fails."""
    started = Children()

    def run_child(words: Sequence[str], threads: int, patience_s: float) -> bytes:
        asked = json.loads(words[-1])
        started.append((words[0], asked["site"]))
        if "old" in words[0]:
            return b""
        found = {"torch": "2.9.1", "threads": threads, "matmul_flops": 9e9, "triad_bytes_per_s": 9e9}
        return json.dumps({**found, "waited_share": started.waited_share}).encode()

    monkeypatch.setattr(quick_peaks, "run_child", run_child)
    return started


JOB = MeasuringPython(program="/job/python", version="2.9.1", site="/job/site-packages")


def test_peaks_are_measured_once_with_the_jobs_own_torch_and_said(
    tmp_path: Path, children: list[tuple[str, str | None]]
) -> None:
    said: list[str] = []
    make_sure_of_peaks(2, JOB, said.append, tmp_path)
    make_sure_of_peaks(2, JOB, said.append, tmp_path)
    make_sure_of_peaks(None, JOB, said.append, tmp_path)
    assert children == [("/job/python", "/job/site-packages")]
    assert said == ["measuring this machine's peaks with 2 threads, once"]
    assert quick_peaks.quick_peaks(2, tmp_path, measure=False, version="2.9.1") is not None


@pytest.mark.parametrize(
    ("waited", "now", "again"), [(0.05, 0.0, 0), (0.4, 0.05, 1), (0.4, 0.3, 0), (0.7, 0.3, 1), (0.7, 0.7, 0)]
)
def test_peaks_of_a_busy_machine_are_measured_again_once_it_is_quieter(
    waited: float, now: float, again: int, tmp_path: Path, children: Children
) -> None:
    children.waited_share = waited
    make_sure_of_peaks(2, JOB, print, tmp_path)
    children.waited_share = now
    said: list[str] = []
    make_sure_of_peaks(2, JOB, said.append, tmp_path, waits_now=lambda threads: now)
    assert len(children) == 1 + again
    assert said == again * ["measuring this machine's peaks with 2 threads, again: it was busy"]


@pytest.mark.parametrize(
    ("path", "may"), [("/usr/lib/libcuda.so.550.54", True), ("/dev/kfd", True), ("/usr/lib/libc.so.6", False)]
)
def test_a_job_that_has_mapped_a_driver_may_train_on_its_device(tmp_path: Path, path: str, may: bool) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "maps").write_text(f"7f00-7f10 r--p 00000000 fe:00 12  {path}\n")
    assert may_use_a_device(7, tmp_path) is may


@pytest.mark.parametrize(("on_device", "measured"), [(True, []), (False, [2])])
def test_peaks_of_the_cpu_are_measured_only_where_parameters_lie_there(
    monkeypatch: pytest.MonkeyPatch, on_device: bool, measured: list[int]
) -> None:
    asked: list[int | None] = []
    monkeypatch.setattr(diagnosing, "make_sure_of_peaks", lambda threads, *_, **__: asked.append(threads))
    monkeypatch.setattr(diagnosing, "threads_at_once", lambda pid, threads: threads)
    peaks = diagnosing._PeaksOfJob(7, print, print, wanted=True, patience_s=None)
    for _ in range(2):
        peaks.look(tui.snapshot(job=diagnosis.facts(threads=2, cuda=on_device)))
    assert asked == measured
