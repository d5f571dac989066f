"""What follows from the measurements, and what the report makes of them."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import msgspec
import pytest

from autobrrr import paths
from autobrrr.cli.verbs import roofline as verb
from autobrrr.report.html.page_template import page_html
from autobrrr.report.page_model import LogScale, around
from autobrrr.report.page_text import page_text
from autobrrr.report.pages import roofline_page as figures
from autobrrr.report.pages.roofline_page import roofline_page
from autobrrr.roofline import machine_identity, roofline_measure
from autobrrr.roofline.calibration_cache import cached_file, keep
from autobrrr.roofline.roofline_records import Roofline, with_peaks
from support.machines import roofline
from support.pages import read_page


def both() -> Roofline:
    many = with_peaks(roofline.measured(2, flame=roofline.flame()))
    return msgspec.structs.replace(many, single_thread=with_peaks(roofline.measured(1)))


def test_the_ridge_is_where_both_limits_cost_the_same() -> None:
    found = with_peaks(roofline.measured(1))
    assert found.peak_bytes_per_s == pytest.approx(24e9)
    assert found.peak_flops == pytest.approx({"float32": 100e9, "bfloat16": 200e9})
    # 60 GFLOP/s of pointwise work against 8 bytes an element at 24 GB/s
    assert found.ridge_ops_per_element == pytest.approx(20.0)
    assert found.flops_per_python_add == pytest.approx(200e9 / 50e6)


def test_without_a_compiler_there_is_no_ridge_and_the_rest_stays() -> None:
    found = with_peaks(roofline.measured(1, sweep=[], multiply_add=None, fusion=None))
    assert found.ridge_ops_per_element is None
    assert found.peak_bytes_per_s == pytest.approx(22e9)
    text = page_text(
        roofline_page(msgspec.structs.replace(found, left_out={"repeat_sweep": "not compiled: no g++"}))
    )
    assert "Left out, repeat sweep: not compiled: no g++." in text
    assert "ridge" not in text


def test_the_report_keeps_to_80_columns_and_says_every_figure() -> None:
    text = page_text(roofline_page(both()))
    assert max(len(line) for line in text.splitlines()) <= 80
    for part in (
        "1 thread",
        "2 threads",
        "100 GFLOP/s",
        "200 GFLOP/s",
        "44.0 GB/s",
        "20.0",
        "2.00x",
        "1.50x",
    ):
        assert part in text
    assert re.search(r"a \+ b +2\.00 us +100 %", text)
    assert re.search(r"the addition +0\.10 ns", text)


def test_the_page_is_whole_draws_all_plots_and_fetches_nothing() -> None:
    page = read_page(page_html(roofline_page(both())))
    assert page.seen.count("figure") == 5  # the roofline, runtime, FLOP/s, bandwidth and matmuls
    # Roofs: two dtypes and the vector units, at two numbers of threads.
    assert page.seen.count("polyline") == 2 * 3 + 3 * 2 + 2
    assert json.loads(page.data["data"])["single_thread"]["threads"] == 1
    for part in ("a + b", "└ Python", "└ below", "└─ the addition"):  # the flame
        assert page.text.count(part) == 1


def test_a_measured_kernel_lies_where_its_bytes_and_operations_put_it() -> None:
    points = {each.words.partition(", 2 threads")[0]: each for _, each in figures.under_roof(both())}
    assert points["x * 2, 64 times"].x == pytest.approx(8.0)
    assert points["matmul of 256, float32"].x == pytest.approx(2 * 256**3 / (3 * 256**2 * 4))
    roofs = figures.roofs(both())
    best = max(roof.flops for roof in roofs)
    assert all(point.y <= best for point in points.values())


def test_logarithmic_marks_are_round_and_within() -> None:
    assert LogScale(low=1.0, high=5e4).marks() == [1.0, 10.0, 100.0, 1000.0, 10000.0]
    assert LogScale(low=1.5, high=30.0).marks() == [2.0, 5.0, 10.0, 20.0]
    assert LogScale(low=1.0, high=100.0).share(10.0) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="above nothing"):
        around([1.0, 0.0])


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    verb.prepare_parser(parser)
    return verb.run(parser.parse_args(words))


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which both numbers of threads are known, and a process that must not be started."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_identity, "read_machine", lambda: roofline.MACHINE)
    monkeypatch.setattr(roofline_measure, "torch_version", lambda: "2.9.1")
    for threads in (1, 2):
        device = roofline.MACHINE.title
        file = cached_file(paths.cache_dir(), "full", device=device, torch="2.9.1", threads=threads)
        keep(file, with_peaks(roofline.measured(threads)))
    monkeypatch.setattr(roofline_measure.subprocess, "Popen", None)
    return tmp_path


def test_json_is_the_contracts_object_on_one_line(cached: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--device", "cpu", "--json") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    promised = {"schema", "device", "python_adds_per_s", "torch_ops_per_s", "sweep", "peak_flops"}
    promised |= {"peak_bytes_per_s", "ridge_ops_per_element", "matmul", "fusion"}
    assert promised <= found.keys()
    assert found["sweep"][0].keys() == {"repeat", "runtime_ns", "flops", "bytes_per_s"}
    assert {"n", "flops"} <= found["matmul"][0].keys()
    assert {"unfused_ns", "fused_ns", "ratio"} <= found["fusion"].keys()
    assert (found["threads"], found["single_thread"]["threads"]) == (2, 1)


def test_a_calibration_of_an_earlier_version_without_a_flame_is_made_anew_where_one_is_wanted(
    cached: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = with_peaks(roofline.measured(2, flame=roofline.flame()))
    monkeypatch.setattr(roofline_measure, "_ask", lambda *_: anew)
    assert run("--device", "cpu", "--json", "--flame") == 0
    assert json.loads(capsys.readouterr().out)["flame"] is not None
