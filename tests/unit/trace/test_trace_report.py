"""What `analyze` gives out: text of 80 columns, JSON, a page without network, a lane for Perfetto."""

from __future__ import annotations

import argparse
import json
import os
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from autobrrr.cli.verbs import analyze
from autobrrr.errors import UsageError
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.trace_page import rank_sentence, trace_page
from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.step_view import LONGEST_GAPS, StepView, step_view
from autobrrr.trace.trace_analysis import analyse
from autobrrr.trace.trace_records import Analysis, RankComparison, Straggler
from support.pages import read_page
from support.trace import Scene, busy_scene

GOLDEN = Path(__file__).parents[2] / "golden" / "trace_report.txt"


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    analyze.prepare_parser(parser)
    return analyze.run(parser.parse_args(words))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return busy_scene(3, 20).write(tmp_path)


def test_the_report_is_the_golden_one(tmp_path: Path, trace: Path) -> None:
    text = page_text(trace_page(analyse([TraceFile(name="scene.json", path=trace)]), {})) + "\n"
    if os.environ.get("REMAKE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_no_line_of_the_report_is_wider_than_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = busy_scene(3, 20)
    scene.kernel(10, 5, "k" * 300, device="GPU with a long name indeed")
    assert run(str(scene.write(tmp_path))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert max(len(line) for line in lines if "scene.json" not in line) <= 80


def test_json_is_one_object_on_one_line_with_the_promised_fields(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(trace), "--json") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert found["schema"] == 1
    one = found["traces"][0]
    assert {"file", "devices", "steps", "regime", "reason", "warnings"} <= set(one)
    assert (one["limit"], one["limit_confidence"], one["devices"][0]["limit"]) == ("host", "low", "host")
    device = one["devices"][0]
    assert {
        "device",
        "span_ns",
        "busy_ns",
        "idle_ns",
        "idle",
        "host_late_by_cause_ns",
        "kernels",
        "launches",
        "communication_ns",
        "exposed_communication_ns",
    } <= set(device)
    assert set(device["idle"]) == {"host_late_ns", "in_launch_ns", "after_launch_ns", "unmatched_ns"}
    assert {"ns", "count"} <= set(device["kernels"]["pointwise"])


def test_a_page_is_one_file_that_asks_the_network_for_nothing(tmp_path: Path, trace: Path) -> None:
    target = tmp_path / "page.html"
    assert run(str(trace), "--html", str(target)) == 0
    page = read_page(target.read_text())
    assert page.seen.count("canvas") == 2  # the timeline and its map
    assert "operator dispatch" in page.text
    order = [
        "limited by host",
        "low confidence",
        "regime: overhead",
        "Advice",
        "Timeline: ",
        "Why the device was idle",
    ]
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)


def test_the_data_of_the_page_s_timeline_is_readable_json(tmp_path: Path, trace: Path) -> None:
    target = tmp_path / "page.html"
    run(str(trace), "--html", str(target))
    page = read_page(target.read_text())
    view = msgspec.json.decode(page.data["view-0-0-data"], type=StepView)
    assert view.operations
    assert view.gaps
    assert all(0 <= each.name < len(view.names) for each in view.operations)
    assert msgspec.json.decode(page.data["data"], type=Analysis).traces[0].file == str(trace)


def test_what_is_drawn_lies_in_its_stretches_and_the_longest_gaps_are_among_it(tmp_path: Path) -> None:
    scene = busy_scene(3, 20)
    for i in range(8000):
        scene.kernel(1_000_000 + 10 * i, 5, "small", launch=(999_000 + 10 * i, 1))
    seen: list[StepView] = []
    found = analyse(
        [TraceFile(name="t", path=scene.write(tmp_path))],
        lambda trace, devices, _: seen.extend(step_view(device, []) for device in devices),
    )
    (view,), (device,) = seen, found.traces[0].devices
    assert view.span == device.span_ns
    assert len(view.stretches) > 1
    ordered = sorted((each.start, each.end) for each in view.stretches)
    assert all(end <= start for (_, end), (start, _) in pairwise(ordered))  # each moment once
    for stall in device.stalls[:LONGEST_GAPS]:
        middle = stall.start_ns + stall.ns // 2
        assert any(each.start <= middle <= each.end for each in view.stretches)
        assert any(each.start <= middle <= each.end for each in view.gaps)
    for event in view.operations:
        assert any(event.start < each.end and event.end > each.start for each in view.stretches)
    busy = sum(view.busy_percent) / len(view.busy_percent) / 100
    assert busy == pytest.approx(device.busy_ns / device.span_ns, abs=0.01)


def rank(number: int, late_ns: int | None, last_in: int | None) -> Straggler:
    return Straggler(
        rank=number,
        file=f"rank{number}.json",
        device=number,
        step_median_ns=10,
        busy_ns=10,
        communication_ns=5,
        waiting_ns=3,
        late_ns=late_ns,
        last_in=last_in,
    )


@pytest.mark.parametrize(
    ("late", "said"),
    [
        ((900, 10, 20, 880), "Ranks 0 and 3 hold up the others: 14 of 28 collectives wait for them, 98 % of"),
        ((5, 900, 10, 10), "Rank 1 holds up the others: 7 of 28 collectives wait for it, 97 % of"),
        ((100, 90, 110, 100), "No rank holds up the others"),
        ((0, 0, 0, 0), None),
        ((None, None, None, None), None),
    ],
)
def test_one_sentence_says_who_holds_up_the_ranks_or_none_does(
    late: tuple[int | None, ...], said: str | None
) -> None:
    ranks = RankComparison(
        matched_collectives=28,
        note="",
        ranks=[rank(i, ns, None if ns is None else 7) for i, ns in enumerate(late)],
    )
    told = rank_sentence(ranks)
    assert (told is None) if said is None else (told or "").startswith(said)


@pytest.mark.parametrize("name", ["lanes.json", "lanes.json.gz"])
def test_the_perfetto_file_is_the_trace_with_a_lane_more_and_analyses_to_the_same(
    tmp_path: Path, trace: Path, name: str
) -> None:
    target = tmp_path / name
    assert run(str(trace), "--perfetto", str(target)) == 0
    before = analyse([TraceFile(name="t", path=trace)]).traces[0]
    after = analyse([TraceFile(name="t", path=target)]).traces[0]
    assert after.devices == before.devices
    assert after.events > before.events


def test_the_lane_s_times_keep_their_nanoseconds_and_cover_the_idle_time(tmp_path: Path) -> None:
    scene = Scene(base_ns=1733767137045419368)
    scene.kernel(0, 2_001, launch=(-100, 10))
    scene.kernel(9_003, 10, launch=(7_002, 1_001))
    target = tmp_path / "lanes.json"
    run(str(scene.write(tmp_path)), "--perfetto", str(target))
    gaps = [each for each in json.loads(target.read_text())["traceEvents"] if each.get("cat") == "gap"]
    text = target.read_text()
    assert '"ts": 1733767137045421.369' in text
    assert [(each["name"].split(":")[0], each["dur"]) for each in gaps] == [
        ("host late", 5.001),
        ("in the launch call", 1.001),
        ("after the launch", 1.0),
    ]


def test_wrong_words_end_with_one_line_and_exit_2(tmp_path: Path, trace: Path) -> None:
    for words in (
        [
            str(trace),
            str(busy_scene(1, 2).write(tmp_path, "two.json")),
            "--perfetto",
            str(tmp_path / "x.json"),
        ],
        [str(tmp_path / "none.json")],
        [str(trace), "--html", str(tmp_path / "none" / "x.html")],
        ["-", "--perfetto", str(tmp_path / "x.json")],
    ):
        with pytest.raises(UsageError) as caught:
            run(*words)
        assert caught.value.exit_code == 2


def test_a_folder_s_other_files_are_passed_over_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy_scene(1, 5).write(tmp_path, "rank0.json")
    (tmp_path / "notes.json").write_text('{"a": 1}')
    assert run(str(tmp_path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["traces"]) == 1
    assert "notes.json" in found["skipped"][0]


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
