"""Damaged and hostile traces: what is read of them, and what is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.trace.reading.trace_columns import Trace
from autobrrr.trace.reading.trace_source import BLOCK_BYTES
from autobrrr.trace.timeline.launches import find_calls
from autobrrr.trace.verdict.trace_warnings import trace_warnings
from benchmarks.fuzzing.trace_documents import case
from benchmarks.fuzzing.trace_target import problems
from support.trace import Scene, busy_scene, read

LONG = 3 * BLOCK_BYTES  # so that blocks follow the odd place, whatever the block size


def long_scene(odd: str | None = None) -> tuple[Scene, int]:
    """A scene of several blocks with something odd near its start; and how many sound events it holds."""
    scene = Scene()
    size = 0
    while size < LONG:
        scene.operator(1_000 * len(scene.events), 500, "aten::add")
        size += len(scene.events[-1]) + 2
    sound = len(scene.events)
    if odd is not None:
        scene.events.insert(700, odd)
    return scene, sound


def warned(trace: Trace) -> str:
    return "\n".join(trace_warnings(trace, find_calls(trace), [], []))


ODD = {
    "arguments that are a list": '{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":5,"args":[]}',
    "no phase": '{"cat":"cpu_op","name":"a","ts":1,"dur":5}',
    "a brace too few": '{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":5',
    "a comment": "/* the profiler was here */ null",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_one_odd_entry_costs_itself_and_is_counted_and_said(tmp_path: Path, odd: str) -> None:
    scene, sound = long_scene(odd)
    trace = scene.read(tmp_path)
    assert len(trace.host) >= sound - 1  # an entry that never closes may take the one behind it along
    assert len(trace.host) == sound or "brace" in odd or odd.endswith("5")
    assert trace.damage is None
    assert 1 <= trace.unread <= 3
    at = scene.text().index(b",\n" + odd.encode())
    first = int(trace.first_unread.split()[2].rstrip(":"))
    assert at < first <= at + 2 + len(odd)
    assert f"at byte {first}" in warned(trace)


def test_a_byte_that_is_no_utf_8_costs_nothing_and_is_said(tmp_path: Path) -> None:
    scene, sound = long_scene()
    text = bytearray(scene.text())
    at = text.index(b"aten::add", 5_000) + 2
    text[at] = 0xFF
    path = tmp_path / "byte.json"
    path.write_bytes(text)
    trace = read(path)
    assert (len(trace.host), trace.unread, trace.damage) == (sound, 0, None)
    assert f"at byte {at}: a byte that is no UTF-8" in warned(trace)


def test_what_stands_behind_the_end_of_the_list_is_said_and_the_metadata_are_kept(tmp_path: Path) -> None:
    scene, sound = long_scene("null")
    text = scene.text()[:-1] + b', "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}]}'
    path = tmp_path / "tail.json"
    path.write_bytes(text)
    assert [each.name for each in read(path).metadata.devices] == ["A", "B"]
    assert len(read(path).host) == sound


def _zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("trace.json", data)
    return out.getvalue()


FOREIGN: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "zstd": ("t.json.zst", lambda data: b"\x28\xb5\x2f\xfd" + data, "zstd -d"),
    "bzip2": ("t.json.bz2", bz2.compress, "bunzip2"),
    "xz": ("t.json.xz", lzma.compress, "unxz"),
    "zip": ("t.zip", _zipped, "unzip"),
    "binary": ("t.pftrace", lambda data: b"\n\x1a\x08\x01\x10\x02" * 40, "torch.profiler"),
    "UTF-16": ("t.json", lambda data: data.decode().encode("utf-16"), "iconv"),
    "web page": ("t.json", lambda data: b"<!DOCTYPE html><html>{}", "download"),
    "pickle": ("t.pickle", lambda data: pickle.dumps({"segments": []}), "memory_viz"),
    "no list traceEvents": ("t.json", lambda data: b'{"nodes": [], "schema": "1.1"}', "export"),
    "MTIA": (
        "mtia.json",
        lambda data: b'{"traceEvents":[{"ph":"X","cat":"mtia_ccp_events","name":"a","ts":1,"dur":2}]}',
        "",
    ),
    "categories: toplevel": (
        "chrome.json",
        lambda data: b'{"traceEvents":[{"ph":"X","cat":"toplevel","name":"a","ts":1,"dur":2}]}',
        "torch.profiler",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path: Path, kind: str) -> None:
    name, made, hint = FOREIGN[kind]
    path = tmp_path / name
    path.write_bytes(made(busy_scene(1, 3).text()))
    with pytest.raises(UsageError) as caught:
        read(path)
    assert kind in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message


def test_a_stream_that_can_t_be_inflated_is_called_damaged_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(gzip.compress(busy_scene(1, 3).text())[:5] + b"\xff" * 5_000)
    with pytest.raises(UsageError, match="compressed stream"):
        read(path)


def wrong(first: int, count: int) -> list[str]:
    return [f"{seed}: {each}" for seed in range(first, first + count) for each in problems(case(seed))]


@pytest.mark.integration
@pytest.mark.parametrize("share", range(8))
def test_mutated_traces_lose_nothing_in_silence(share: int) -> None:
    assert wrong(150 * share, 150) == []


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.parametrize("share", range(10))
def test_ten_thousand_mutated_traces_lose_nothing_in_silence(share: int) -> None:
    assert wrong(10_000 + 1_000 * share, 1_000) == []
