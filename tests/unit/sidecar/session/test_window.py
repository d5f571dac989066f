"""A profiler window on its way: from the agent's file to a verdict, and every way that can fail."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from autobrrr.agent.measure.profiler_window import _written
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.signals.dispatch import profiler_window
from autobrrr.diagnosis.verdict.gpu_verdict import unprofiled
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.errors import UsageError
from autobrrr.records import LIMIT_OF_REGIME, ProfilerWindow, Shares, Verdict
from autobrrr.records.record_base import as_record
from autobrrr.report.page_text import parts_text
from autobrrr.report.pages.diagnosis_parts import window_parts
from autobrrr.sidecar.session.window_reader import read_window
from autobrrr.trace.causes.host_thread_time import host_time
from support.judged import diagnosis
from support.trace import Scene, busy_scene

MS = 1_000_000
TOLD = ProfilerWindow(status="ok", plain_step_ns=[4 * MS] * 4, profiled_step_ns=[5 * MS] * 4, stall_ns=MS)


def cpu_scene() -> Scene:
    """10 ms on one thread: 2 ms loading, 3 ms in nested operators, 2 ms in a compiled graph."""
    scene = Scene()
    scene.annotation(0, 2 * MS, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    scene.operator(2 * MS, 2 * MS, "aten::linear")
    scene.operator(2 * MS + 1000, MS, "aten::addmm")
    scene.operator(5 * MS, MS, "autograd::engine::evaluate_function: MulBackward0")
    scene.operator(5 * MS, MS // 2, "aten::mul")
    scene.operator(6 * MS, 3 * MS, "Torch-Compiled Region: 0/0")
    scene.operator(6 * MS + MS // 2, 2 * MS, "## Call CompiledFxGraph fgt32j5")
    scene.operator(7 * MS, MS, "aten::mm")
    scene.operator(9 * MS + MS // 2, MS // 2, "aten::add_")
    scene.operator(3 * MS, MS // 4, "aten::other_thread", tid=7)
    return scene


def opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY)


def test_time_inside_operators_counts_nothing_twice_and_no_frames_around_them(tmp_path: Path) -> None:
    seen = host_time(cpu_scene().read(tmp_path))
    assert seen is not None
    assert seen.inside_share == pytest.approx((2 + 0.5 + 2 + 0.5) / 10)
    assert seen.compiled_share == pytest.approx(0.2)
    assert seen.loader_share == pytest.approx(0.2)
    assert seen.calls == 4
    own = {each.op: each.self_ns for each in seen.operators}
    assert own["aten::linear"] == MS
    assert own["CompiledFxGraph"] == MS
    assert own["aten::mm"] == MS
    assert "aten::other_thread" not in own
    assert not any(name.startswith(("autograd", "Torch-Compiled")) for name in own)


def test_a_cpu_window_is_read_and_its_file_closed(tmp_path: Path) -> None:
    fd = opened(cpu_scene().write(tmp_path))
    window = read_window(TOLD, fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert window.inside_share == pytest.approx(0.5)
    assert window.operators == pytest.approx(4 / 5)
    assert window.gaps == []
    assert window.verdict is None
    assert window.by_op[0].self_ns > 0
    assert "thread  in operators 50 %" in parts_text(*window_parts(window))


def test_a_gpu_window_brings_idle_time_by_cause_and_a_verdict(tmp_path: Path) -> None:
    window = read_window(TOLD, opened(busy_scene().write(tmp_path)))
    (gaps,) = window.gaps
    assert gaps.busy_ns + sum(gaps.idle_by_cause_ns.values()) == gaps.span_ns
    assert window.verdict is not None
    assert window.verdict.regime == "overhead"
    said = parts_text(*window_parts(window))
    assert "0: idle" in said
    assert said.index("slowest operators") > said.index("0: idle")
    assert "busy throughout" not in said
    full = msgspec.structs.replace(window, gaps=[msgspec.structs.replace(gaps, busy_ns=gaps.span_ns)])
    assert "busy throughout" in parts_text(*window_parts(full))


def test_a_device_whose_kernels_are_not_in_the_trace_is_no_window_and_is_named(tmp_path: Path) -> None:
    """A second profiler in one process may record none: the host's rules must not speak for the device."""
    on_device = msgspec.structs.replace(TOLD, device=True)
    found = read_window(on_device, opened(cpu_scene().write(tmp_path)))
    assert found.status == "abstained"
    assert "no kernel of the device" in (found.why or "")
    assert read_window(on_device, opened(busy_scene().write(tmp_path))).status == "ok"


def test_writing_the_trace_counts_as_a_stall_since_torch_holds_the_interpreter() -> None:
    class Slow:
        def save(self, path: str) -> None:
            time.sleep(0.01)
            Path(path).write_text("{}")

    event, fd = _written(Slow(), {"status": "ok", "stall_ns": 7})
    assert fd is not None
    os.close(fd)
    told = as_record(event["window"], ProfilerWindow)
    assert told.write_ns is not None
    assert told.write_ns >= 10 * MS
    assert told.stall_ns == 7 + told.write_ns


def test_a_file_that_did_not_come_or_is_no_trace_is_said(tmp_path: Path) -> None:
    assert read_window(TOLD, None).status == "abstained"
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\x01 no trace")
    fd = opened(garbage)
    with pytest.raises(UsageError):
        read_window(TOLD, fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def measured(window: ProfilerWindow | None, kind=diagnosis.tiny_mlp) -> Measurements:
    import dataclasses

    return dataclasses.replace(kind(), profile=window)


def test_operators_that_fill_the_step_exclude_overhead_only_if_they_are_long() -> None:
    told = msgspec.structs.replace(TOLD, inside_share=0.9, operators=40.0)
    ops = [{"op": "aten::addmm", "count": 40.0, "self_ns": 100_000.0}]
    long = msgspec.convert({**msgspec.to_builtins(told), "by_op": ops}, ProfilerWindow)
    assert profiler_window(measured(long)).against == ("overhead",)
    ops[0]["count"] = 4000.0
    short = msgspec.convert({**msgspec.to_builtins(told), "by_op": ops}, ProfilerWindow)
    assert profiler_window(measured(short)).against == ()


def test_time_between_operators_speaks_for_overhead_where_the_phases_are_known() -> None:
    told = msgspec.structs.replace(TOLD, inside_share=0.2, operators=400.0)
    reading = profiler_window(measured(told))
    assert reading.says == "overhead"
    assert "1.25x as long" in reading.note
    unphased = Measurements(pid=1, profile=told)
    assert profiler_window(unphased).says is None


def device_window(longer: float, **shares: float) -> ProfilerWindow:
    largest = max(shares, key=lambda name: shares[name])
    return ProfilerWindow(
        status="ok",
        plain_step_ns=[4 * MS] * 4,
        profiled_step_ns=[int(4 * MS * longer)] * 4,
        verdict=Verdict(
            regime=largest,  # type: ignore[arg-type]
            confidence="high",
            reason="two signals agree",
            shares=Shares(**shares),
            evidence=[],
            limit=LIMIT_OF_REGIME[largest],
            limit_confidence="high",
            limit_reason="by the timeline",
        ),
    )


def test_the_verdict_of_the_devices_timeline_is_that_of_the_job() -> None:
    window = device_window(1.0, compute=0.8, overhead=0.2)
    verdict = judge(Measurements(pid=1, profile=window)).verdict
    assert (verdict.regime, verdict.confidence) == ("compute", "high")


def test_what_the_profiler_adds_is_taken_off_the_waiting() -> None:
    window = device_window(1.25, overhead=0.6, compute=0.4)
    shares = unprofiled(window, 1.25)
    assert shares.overhead == pytest.approx((0.6 - 0.2) / 0.8)
    assert shares.compute == pytest.approx(0.4 / 0.8)
    assert sum(msgspec.to_builtins(shares)[name] or 0 for name in ("overhead", "compute")) == pytest.approx(1)


def test_overhead_that_the_profiler_may_have_made_is_not_named() -> None:
    verdict = judge(Measurements(pid=7, profile=device_window(1.5, overhead=0.55, compute=0.45))).verdict
    assert verdict.regime == "unknown"
    assert "1.50x as long" in verdict.reason
    assert verdict.decide_with == "autobrrr tune 7"
    assert (verdict.limit, verdict.limit_confidence) == ("unknown", "low")
    assert "1.50x as long" in verdict.limit_reason


def test_who_limits_stays_where_the_profiler_can_t_have_made_it() -> None:
    held = judge(Measurements(pid=7, profile=device_window(1.2, overhead=0.8, compute=0.2))).verdict
    full = judge(Measurements(pid=7, profile=device_window(1.5, compute=0.7, overhead=0.3))).verdict
    assert (held.limit, held.limit_confidence) == ("host", "high")
    assert (full.limit, full.limit_confidence) == ("kernels", "high")


@pytest.mark.parametrize(
    ("delay", "limit", "sure"), [(0.05, "host", "high"), (0.3, "host", "low"), (0.9, "unknown", "low")]
)
def test_a_host_that_others_hold_up_is_not_called_the_limit(delay: float, limit: str, sure: str) -> None:
    window = device_window(1.0, overhead=0.8, compute=0.2)
    found = judge(Measurements(pid=7, profile=window, host=diagnosis.machine(delay))).verdict
    assert (found.limit, found.limit_confidence) == (limit, sure)
    assert found.confidence == sure
    assert ("too busy" in found.reason) == (limit == "unknown")


def test_full_kernels_are_the_limit_on_a_busy_machine_too() -> None:
    window = device_window(1.0, overhead=0.2, compute=0.8)
    found = judge(Measurements(pid=7, profile=window, host=diagnosis.machine(0.9))).verdict
    assert (found.limit, found.limit_confidence, found.regime) == ("kernels", "low", "compute")
