"""Quick peaks: measured once in a process of its own, kept, and never made up."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.roofline.calibration_cache import cached_file, keep
from autobrrr.roofline.quick_peaks import MeasuredPeaks, quick_peaks
from autobrrr.roofline.roofline_records import MatmulPoint
from support.machines import roofline

CURVE = [MatmulPoint(n=64, flops=1e9), MatmulPoint(n=256, flops=16e9), MatmulPoint(n=1024, flops=20e9)]
CURVED = MeasuredPeaks(
    threads=1,
    torch="2",
    matmul_n=512,
    matmul_flops=7e9,
    triad_bytes_per_s=1e9,
    measured_at_unix_s=0.0,
    curve=CURVE,
)


def answer(flops: float = 90e9, waited: float | None = 0.0, threads: int = 2) -> str:
    rates = {"matmul_flops": flops, "triad_bytes_per_s": 20e9, "waited_share": waited}
    return json.dumps({"torch": "2.9.1", "threads": threads, **rates})


def peaks(
    folder: Path, python: str, *, now_s: float = 100.0, measure: bool = True, threads: int = 2
) -> MeasuredPeaks | None:
    return quick_peaks(
        threads,
        folder / "cache",
        python,
        measure,
        version="2.9.1",
        machine=roofline.MACHINE,
        now_s=lambda: now_s,
    )


def test_the_first_call_measures_and_the_second_remembers(tmp_path: Path) -> None:
    python = roofline.interpreter(tmp_path, answer())
    first = peaks(tmp_path, python)
    assert (first.threads, first.torch, first.matmul_n) == (2, "2.9.1", 512)
    assert (first.matmul_flops, first.triad_bytes_per_s, first.measured_at_unix_s) == (90e9, 20e9, 100.0)
    assert peaks(tmp_path, python, now_s=1e9) == first
    assert roofline.calls(tmp_path) == 1


@pytest.mark.parametrize(
    "python",
    [
        lambda folder: roofline.interpreter(folder, answer(), status=3),
        lambda folder: roofline.interpreter(folder, "Killed"),
        lambda folder: roofline.interpreter(folder, answer(threads=1)),
        lambda folder: str(folder / "nowhere"),
    ],
    ids=["it failed", "it said nonsense", "it had other threads", "there is no such program"],
)
def test_what_could_not_be_measured_is_none(tmp_path: Path, python: object) -> None:
    assert peaks(tmp_path, python(tmp_path)) is None  # type: ignore[operator]
    assert not list(tmp_path.glob("cache/roofline/*"))


def test_a_disturbed_measurement_is_made_again_and_only_rises(tmp_path: Path) -> None:
    found = [
        peaks(tmp_path, roofline.interpreter(tmp_path, answer(flops, waited=waited)))
        for flops, waited in ((40e9, 0.6), (90e9, 0.5), (30e9, 0.7), (20e9, 0.0), (99e9, 0.0))
    ]
    assert [(each.matmul_flops, each.waited_share) for each in found if each] == [
        (40e9, 0.6), (90e9, 0.5), (90e9, 0.5), (90e9, 0.0), (90e9, 0.0),
    ]  # fmt: skip


def test_a_cache_that_is_broken_or_forbidden_is_measured_anew(tmp_path: Path) -> None:
    python = roofline.interpreter(tmp_path, answer())
    first = peaks(tmp_path, python)
    (kept,) = (tmp_path / "cache/roofline").iterdir()
    for spoilt in (b"", b'{"threads": 2', b"\0" * 300, b'{"schema": 9}', b"\xff\xfe", b"[" * 9_000):
        kept.write_bytes(spoilt)
        assert peaks(tmp_path, python) == first
    blocked = tmp_path / "file"
    blocked.touch()
    again = quick_peaks(2, blocked, python, version="2.9.1", machine=roofline.MACHINE, now_s=lambda: 100.0)
    assert again == first


def test_the_whole_roofline_lends_its_curve(tmp_path: Path) -> None:
    python = roofline.interpreter(tmp_path, answer())
    file = cached_file(tmp_path / "cache", "full", device=roofline.MACHINE.title, torch="2.9.1", threads=2)
    keep(file, roofline.measured(2))
    found = peaks(tmp_path, python)
    assert roofline.calls(tmp_path) == 0
    assert [point.n for point in found.curve] == [64, 256, 1024]
    assert (found.matmul_n, found.matmul_flops, found.triad_bytes_per_s) == (1024, 200e9, 44e9)
    keep(file, roofline.measured(2, waited_share=0.4))
    again = peaks(tmp_path, python)
    assert again.curve == []


def test_the_curve_is_met_at_its_points_and_flat_beyond_its_ends() -> None:
    for point in CURVE:
        assert CURVED.matmul_flops_at(point.n, point.n, point.n) == pytest.approx(point.flops)
    assert CURVED.matmul_flops_at(2, 2, 2) == 1e9
    assert CURVED.matmul_flops_at(9000, 9000, 9000) == 20e9
    assert CURVED.matmul_flops_at(128, 128, 128) == pytest.approx(4e9)  # half-way on both logarithms


@given(sizes=st.tuples(*[st.integers(1, 5000)] * 3))
def test_the_curve_never_leaves_its_range_and_knows_no_order_of_sizes(sizes: tuple[int, int, int]) -> None:
    found = CURVED.matmul_flops_at(*sizes)
    assert 1e9 * (1 - 1e-9) <= found <= 20e9 * (1 + 1e-9)
    assert math.isclose(found, CURVED.matmul_flops_at(*reversed(sizes)) or 0.0, rel_tol=1e-9)
