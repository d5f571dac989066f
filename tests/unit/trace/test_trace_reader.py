"""Reading: any cutting into blocks gives the same columns; odd files are read as far as they go."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.errors import UsageError
from autobrrr.trace.reading.trace_columns import CALL, KERNEL, MEMCPY, OPERATOR, Trace
from autobrrr.trace.reading.trace_reader import WORKED_OUT_BYTES, read_blocks
from autobrrr.trace.reading.trace_source import Blocks, TraceFile, named_traces, open_blocks
from support.trace import Scene, busy_scene, in_blocks, read


def figures(trace: Trace) -> list[object]:
    columns = [
        getattr(each, name).tolist() for each in (trace.gpu, trace.host) for name in each.__struct_fields__
    ]
    return [columns, trace.names, trace.threads, trace.devices, trace.events]


@given(st.integers(40, 4000))
def test_the_columns_do_not_depend_on_how_the_file_is_cut_into_blocks(size: int) -> None:
    text = busy_scene(steps=2, kernels=6).text()
    assert figures(in_blocks(text, size)) == figures(in_blocks(text, len(text)))


def test_members_of_a_compressed_trace_are_read_on_behind_padding(tmp_path: Path) -> None:
    text = busy_scene(1, 3).text()
    target = tmp_path / "trace.json.gz"
    target.write_bytes(gzip.compress(text[:100]) + bytes(20_000) + gzip.compress(text[100:]))
    trace = read(target)
    assert (len(trace.gpu), trace.damage) == (3, None)
    target.write_bytes(gzip.compress(text) + b"more")
    trace = read(target)
    assert len(trace.gpu) == 3
    assert "behind the compressed stream stands something else" in (trace.damage or "")


def test_a_cut_file_gives_what_stands_before_the_cut_and_says_so(tmp_path: Path) -> None:
    text = busy_scene(2, 10).text()
    target = tmp_path / "cut.json"
    target.write_bytes(text[: len(text) // 2])
    trace = read(target)
    assert 0 < trace.events < 62
    assert "ends at byte" in trace.damage


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"   ",
        b"hello",
        b'{"a": 1}',
        b"[1, 2, 3]",
        b'{"traceEvents": [',
        b"\x00\x01\x02",
        b'"traceEvents": [',
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "not.json"
    target.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(target)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message


def test_every_schema_s_words_for_the_same_thing_are_known() -> None:
    scene = Scene()
    for cat in (
        "kernel",
        "Kernel",
        "gpu_memcpy",
        "Memcpy",
        "cuda_runtime",
        "Runtime",
        "hip_runtime",
        "Operator",
    ):
        scene.event(0, 5, cat, "name", args={"device": 9, "stream": 1})
    for cat in ("gpu_user_annotation", "cuda_sync", "Trace", "ac2g"):
        scene.event(0, 5, cat, "name", args={"device": 9})
    trace = in_blocks(scene.text(), 100_000)
    assert trace.gpu.kind.tolist() == [KERNEL, KERNEL, MEMCPY, MEMCPY]
    assert trace.host.kind.tolist() == [CALL, CALL, CALL, OPERATOR]
    assert trace.devices == ["9"]


def test_missing_negative_and_zero_durations_are_counted_and_last_nothing() -> None:
    scene = Scene()
    scene.kernel(0, None)
    scene.kernel(10, -5)
    scene.kernel(20, 0)
    scene.kernel(30, 5)
    trace = in_blocks(scene.text(), 1000)
    assert trace.gpu.bad.tolist() == [1, 2, 3, 0]
    assert (trace.gpu.end - trace.gpu.start).tolist() == [0, 0, 0, 5]


def test_folders_hold_traces_and_files_named_twice_are_read_once(tmp_path: Path) -> None:
    inner = tmp_path / "ranks"
    inner.mkdir()
    for name in ("b.json", "a.json.gz", "notes.txt", ".hidden.json"):
        (inner / name).write_text(json.dumps([]))
    found = named_traces([str(tmp_path), str(inner / "b.json")])
    assert [Path(each.name).name for each in found] == ["b.json", "a.json.gz"] or [
        Path(each.name).name for each in found
    ] == ["a.json.gz", "b.json"]
    with pytest.raises(UsageError, match="there is no trace"):
        named_traces([str(tmp_path / "none.json")])


def opened(folder: Path, text: bytes) -> Blocks:
    target = folder / "trace.json"
    target.write_bytes(text)
    return open_blocks(TraceFile(name="trace.json", path=target))[1]


def test_a_trace_that_the_memory_can_t_take_is_refused_before_it_is_worked_out(tmp_path: Path) -> None:
    text = busy_scene(steps=2, kernels=6).text()
    whole = read_blocks("trace.json", opened(tmp_path, text))
    events = len(whole.gpu) + len(whole.host)
    enough = events * WORKED_OUT_BYTES
    assert figures(read_blocks("trace.json", opened(tmp_path, text), lambda: enough, 1)) == figures(whole)
    with pytest.raises(UsageError, match=rf"its first {events} need .* GB are free") as caught:
        read_blocks("trace.json", opened(tmp_path, text), lambda: enough - 1, 1)
    assert "fewer steps" in caught.value.hint
