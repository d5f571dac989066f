"""FLOPs share against runtime share: only what was counted, and only where it tells something."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from autobrrr.report.pages.trace_page import kernels_table
from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.trace_analysis import analyse
from autobrrr.trace.trace_records import Analysis, DeviceAnalysis, KernelClass
from support.trace import Scene, busy_scene

STREAMING = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char*, 1ul> >(int, float)"
)


def kernels(ns: int, flops: int | None, counted_ns: int | None, share: float) -> KernelClass:
    return KernelClass(ns=ns, count=1, share=share, flops=flops, counted_ns=counted_ns)


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return analyse([TraceFile(name="scene.json", path=busy_scene(1, 4).write(tmp_path))])


def with_kernels(analysis: Analysis, **classes: KernelClass) -> Analysis:
    trace = analysis.traces[0]
    device = msgspec.structs.replace(trace.devices[0], kernels=classes)
    return msgspec.structs.replace(analysis, traces=[msgspec.structs.replace(trace, devices=[device])])


def device_of(analysis: Analysis) -> DeviceAnalysis:
    return analysis.traces[0].devices[0]


@pytest.fixture
def bert(analysis: Analysis) -> Analysis:
    return with_kernels(
        analysis,
        matmul=kernels(600_000, 60_000_000_000, 600_000, 0.6),
        pointwise=kernels(250_000, 20_000_000, 125_000, 0.25),
        normalisation=kernels(150_000, None, None, 0.15),
    )


def test_shares_are_of_what_was_counted_and_time_is_of_all(bert: Analysis) -> None:
    table = kernels_table(device_of(bert))
    matmul, pointwise, norms = (dict(zip(table.heads, row, strict=True)) for row in table.rows)
    assert [each["class"].text for each in (matmul, pointwise, norms)] == list(device_of(bert).kernels)
    assert matmul["#FLOPs"].sort == pytest.approx(60_000 / 60_020)
    assert (matmul["#share"].sort, pointwise["#share"].sort) == (0.6, 0.25)
    assert matmul["#TFLOP/s"].text == "100"
    assert pointwise["#slower"].sort == pytest.approx(100e12 / 0.16e12)
    assert [norms[head].sort for head in ("#FLOPs", "#TFLOP/s", "#slower")] == [None, None, None]


def test_a_streaming_kernel_makes_one_operation_an_element_at_least(tmp_path: Path) -> None:
    scene = Scene()
    scene.kernel(10, 5, STREAMING, grid=[100, 1, 1], block=[128, 1, 1])
    scene.kernel(20, 7, "some_other_elementwise_kernel", grid=[100, 1, 1], block=[128, 1, 1])
    found = device_of(analyse([TraceFile(name="s", path=scene.write(tmp_path))])).kernels["pointwise"]
    assert found.flops == 100 * 128 * 4
    assert found.counted_ns == 5
