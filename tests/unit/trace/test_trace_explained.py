"""What a damaged stream, long operators and a waiting rank look like in the report."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.trace_page import trace_page
from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.trace_analysis import analyse
from support.trace import Scene, busy_scene, read


def report(path: Path) -> str:
    return page_text(trace_page(analyse([TraceFile(name=str(path), path=path)]), {}))


def test_a_stream_that_can_t_be_inflated_is_called_damaged_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(gzip.compress(busy_scene(1, 3).text())[:5] + b"\xff" * 5_000)
    with pytest.raises(UsageError, match="compressed stream"):
        read(path)


def test_idle_inside_long_operators_is_explained(tmp_path: Path) -> None:
    scene = Scene()
    for at in range(0, 40_000_000, 4_000_000):
        scene.operator(at, 3_000_000, "aten::sort")
        scene.kernel(at + 2_950_000, 40_000, launch=(at + 2_900_000, 10_000))
    found = analyse([TraceFile(name="held", path=scene.write(tmp_path))]).traces[0]
    held_ns = found.devices[0].long_operators_ns
    assert held_ns > 20_000_000
    said = f"{held_ns / 1e6:.1f} ms of idle: operators that compute on the CPU"
    assert any(said in line for line in found.warnings)


def test_a_wait_is_shown_with_the_operator_that_waits_and_ranks_come_first(tmp_path: Path) -> None:
    paths = []
    for rank in (0, 1):
        scene = busy_scene(2, 5)
        scene.head["distributedInfo"] = {"rank": rank, "world_size": 2}
        scene.operator(250_000, 90_000, "aten::_local_scalar_dense")
        scene.call(260_000, 70_000, "cudaStreamSynchronize")
        scene.kernel(360_000, 5_000, launch=(350_000, 4_000))
        paths.append(scene.write(tmp_path, f"rank{rank}.json"))
    text = page_text(trace_page(analyse([TraceFile(name=path.name, path=path) for path in paths]), {}))
    assert text.index("Every rank") < text.index("Verdict")
    assert re.search(r"cudaStreamSynchronize +aten::_local_scalar_dense +1 ", text)
