"""What the machine can do: looked up for the judge, measured only by whoever is about to attach."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autobrrr.attach import job_roles
from autobrrr.client import diagnosing, job_peaks
from autobrrr.client.job_peaks import (
    MeasuringPython,
    likely_threads,
    make_sure_of_peaks,
    may_use_a_device,
    measuring_python,
)
from autobrrr.readable import Foreign
from autobrrr.roofline import machine_identity, quick_peaks
from autobrrr.roofline.quick_peaks import MeasuredPeaks
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.session.calibrations import Calibrations
from autobrrr.sidecar.session.collected import Collected
from support.judged import diagnosis
from support.screens import tui


def test_the_cache_is_asked_until_it_has_the_jobs_own_number_of_threads(tmp_path: Path) -> None:
    asked: list[int] = []
    cached: dict[int, MeasuredPeaks] = {}

    def peaks_of(threads: int, torch: str | None, cache: Path) -> MeasuredPeaks | None:
        assert torch == "2.9.1"
        asked.append(threads)
        return cached.get(threads)

    looked_up = Calibrations(tmp_path, peaks_of, lambda: 800.0, proc=tmp_path)
    assert looked_up.peaks(2, "2.9.1") is None
    cached[2] = diagnosis.peaks_of_machine(threads=2)
    assert looked_up.peaks(2, "2.9.1") is cached[2]
    assert looked_up.peaks(2, "2.9.1") is cached[2]
    assert asked == [2, 2]
    assert looked_up.peaks(4, "2.9.1") is None
    cached[4] = diagnosis.peaks_of_machine(threads=4, waited_share=0.5)
    assert looked_up.peaks(4, "2.9.1") is cached[4]
    cached[4] = diagnosis.peaks_of_machine(threads=4)  # measured again meanwhile
    assert looked_up.peaks(4, "2.9.1") is cached[4]
    assert looked_up.peaks(None, "2.9.1") is None


def test_the_judge_is_handed_what_was_looked_up(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu amx_bf16\n")
    findings = Collected(42, SessionOptions())
    assert findings.measurements(0).peaks is None
    findings.facts = diagnosis.facts(threads=3)
    findings.calibrations = Calibrations(
        tmp_path, lambda threads, *_: diagnosis.peaks_of_machine(threads), lambda: 800.0, proc=tmp_path
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
    ("waited", "now", "again"),
    [(0.05, 0.0, 0), (0.4, 0.05, 1), (0.4, 0.3, 0), (0.7, 0.3, 1), (0.7, 0.7, 0)],
)
def test_peaks_of_a_busy_machine_are_measured_again_once_it_is_quieter(
    waited: float, now: float, again: int, tmp_path: Path, children: Children
) -> None:
    children.waited_share = waited
    make_sure_of_peaks(2, JOB, print, tmp_path)
    children.waited_share = now
    said: list[str] = []
    make_sure_of_peaks(2, JOB, said.append, tmp_path, waits_now=lambda: now)
    assert len(children) == 1 + again
    assert said == again * ["measuring this machine's peaks with 2 threads, again: it was busy"]


def test_our_own_torch_stands_in_where_the_jobs_cannot_measure(
    tmp_path: Path, children: list[tuple[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (quick_peaks, machine_identity):
        monkeypatch.setattr(module, "torch_version", lambda python=sys.executable: "2.8.0")
    make_sure_of_peaks(2, replace(JOB, program="/old/python"), lambda line: None, tmp_path)
    assert children == [("/old/python", JOB.site), (sys.executable, None)]
    kept = Calibrations(tmp_path, fault_ns=lambda: 1.0, proc=tmp_path)
    assert kept.peaks(2, "2.9.1") is not None


def test_both_ways_share_the_time_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (quick_peaks, machine_identity):
        monkeypatch.setattr(module, "torch_version", lambda python=sys.executable: "2.8.0")
    now_s = 100.0
    given: list[float] = []

    def run_child(words: Sequence[str], threads: int, patience_s: float) -> bytes:
        nonlocal now_s
        given.append(patience_s)
        now_s += 3.0  # importing torch from a cold disk
        return b""

    monkeypatch.setattr(quick_peaks, "run_child", run_child)
    monkeypatch.setattr(job_peaks, "time", SimpleNamespace(monotonic=lambda: now_s))
    said: list[str] = []
    make_sure_of_peaks(2, JOB, said.append, tmp_path, patience_s=4.0)
    assert given == [4.0, 1.0]
    assert "could not be measured in time" in said[-1]


def test_without_any_torch_nothing_is_measured_and_nothing_said(
    tmp_path: Path, children: list[tuple[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (quick_peaks, machine_identity):
        monkeypatch.setattr(module, "torch_version", lambda python=sys.executable: None)
    said: list[str] = []
    make_sure_of_peaks(2, None, said.append, tmp_path)
    assert (children, said) == ([], [])


def test_a_process_that_is_not_ours_to_run_gives_no_interpreter(tmp_path: Path) -> None:
    assert measuring_python(7, tmp_path) is None
    assert Path("/proc") == job_peaks.PROC


@pytest.mark.parametrize(("program", "runs"), [("python3.12", True), ("trainer", False), ("pythonic", False)])
def test_a_program_that_has_python_within_is_not_started_anew_to_measure(
    program: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "exe").symlink_to(f"/theirs/{program}")
    torch = job_roles.TorchFiles(folder=Foreign("/theirs/torch"), version=Foreign("2.8.0"))
    monkeypatch.setattr(job_peaks.procfs, "owner", lambda pid, proc: (os.geteuid(), 0))
    monkeypatch.setattr(job_peaks.job_roles, "torch_of", lambda pid, proc: torch)
    monkeypatch.setattr(job_peaks.own_place, "has_our_walls", lambda pid, proc: True)
    assert (measuring_python(7, tmp_path) is not None) is runs


def test_peaks_that_could_not_be_kept_are_not_measured(
    tmp_path: Path, children: list[tuple[str, str | None]]
) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    make_sure_of_peaks(2, JOB, said.append, tmp_path / "file")
    assert children == []
    assert "are not measured, since they can't be kept" in said[0]
    assert "XDG_CACHE_HOME" in said[0]


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


@pytest.mark.parametrize(("sets", "measured"), [(2, [2]), (1, [2, 1])])
def test_peaks_that_could_not_be_measured_before_attaching_are_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch, sets: int, measured: list[int]
) -> None:
    """`diagnose --for 9s` with a torch that takes five to import waited 4 s twice, and saw nine steps."""
    asked: list[int | None] = []
    monkeypatch.setattr(diagnosing, "make_sure_of_peaks", lambda threads, *_, **__: asked.append(threads))
    monkeypatch.setattr(diagnosing, "threads_at_once", lambda pid, threads: threads)
    peaks = diagnosing._PeaksOfJob(7, print, print, wanted=True, patience_s=4.0)
    peaks.measure(2)
    peaks.look(tui.snapshot(job=diagnosis.facts(threads=sets, cuda=False)))
    assert asked == measured
