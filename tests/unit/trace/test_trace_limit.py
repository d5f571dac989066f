"""Who limits the step by a trace: an identity of the timeline, named where one part clearly leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autobrrr.diagnosis import thresholds
from autobrrr.records import Limit
from autobrrr.trace.device.time_parts import OTHER
from autobrrr.trace.verdict.trace_verdict import leading_limit
from support.trace import Scene, busy_scene
from support.trace_scenes import (
    BLOCK,
    GRID,
    HEAD,
    MATMUL,
    NCCL,
    STREAMING,
    back_to_back,
    beside_a_queue,
    copying,
    loading,
    queued,
    shared_device,
    verdict,
)


def stall() -> Scene:
    """One launch call that loads a module, then a short loop."""
    scene = Scene(head=HEAD)
    scene.kernel(0, 1_000, STREAMING, launch=(-2_000, 1_000), grid=GRID, block=BLOCK)
    scene.kernel(90_000_000, 1_000, MATMUL, launch=(10_000, 89_000_000), grid=GRID, block=BLOCK)
    for index in range(100):
        at = 90_100_000 + index * 10_000
        scene.operator(at - 50_000, 900, "aten::some")
        scene.kernel(at, 9_000, STREAMING, launch=(at - 50_000, 300), grid=GRID, block=BLOCK)
    return scene


@pytest.mark.parametrize(
    ("scene", "limit"),
    [
        (lambda: busy_scene(4, 40), "host"),
        (lambda: loading(copy_ends_the_gap=True), "input"),
        (lambda: copying("HtoD (Pageable -> Device)"), "input"),
        (lambda: copying("DtoH (Device -> Pageable)"), "input"),
        (lambda: queued((STREAMING, 50_000), (MATMUL, 50_000)), "kernels"),
        (lambda: queued((NCCL, 90_000), (MATMUL, 20_000)), "communication"),
        (stall, "startup"),
        (shared_device, "shared"),
    ],
)  # fmt: skip
def test_each_limit_has_a_timeline_of_its_own(scene: Callable[[], Scene], limit: Limit) -> None:
    found = verdict(scene())
    assert found.limit == limit, found.limit_reason
    assert found.devices[0].limit == limit


@pytest.mark.parametrize(
    ("shares", "named"),
    [
        ({"host": 0.57, "kernels": 0.32}, "host"),
        ({"host": 0.57, "kernels": 0.35}, None),
        ({"host": 0.54, "kernels": 0.2}, None),
        ({"host": 0.56, "input": 0.42}, None),
        ({OTHER: 0.6, "host": 0.3}, None),
        ({"kernels": 0.61, "host": 0.3}, "kernels"),
        ({"kernels": 0.61, "host": 0.31}, None),
        ({"kernels": 0.59, "host": 0.1}, None),
        ({"host": 0.5, "shared": 0.41}, "shared"),
        ({}, None),
    ],
)
def test_a_part_is_named_that_holds_most_and_leads(shares: dict[str, float], named: Limit | None) -> None:
    assert leading_limit(shares) == named


def test_a_limit_below_the_threshold_of_confidence_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = queued((STREAMING, 50_000), (STREAMING, 40_000), (MATMUL, 90_000))
    monkeypatch.setattr(thresholds, "LIMIT_FIRM_AT", 1e9)
    assert verdict(scene).limit_confidence == "low"


def test_a_limit_is_high_over_a_mixed_regime_and_says_what_it_consists_of() -> None:
    found = verdict(queued((STREAMING, 50_000), (STREAMING, 40_000), (MATMUL, 90_000)))
    assert (found.regime, found.limit, found.limit_confidence) == ("mixed", "kernels", "high")
    assert "50 % kernels that move tensors" in found.limit_reason
    assert "50 % matrix products" in found.limit_reason


def test_the_ledger_of_a_device_sums_to_the_judged_time_and_names_the_user_s_line() -> None:
    scene = loading(copy_ends_the_gap=True)
    scene.python(-1_000, 13_000_000, "train.py(31): main")
    (device,) = verdict(scene).devices
    assert sum(row.ns for row in device.ledger) == device.span_ns - device.left_out_ns
    assert sum(row.share for row in device.ledger) == pytest.approx(1)
    assert (device.ledger[0].kind, device.ledger[0].where) == ("loader", "train.py:31 main")


def test_kernels_beside_a_rival_of_half_their_size_limit_nothing_alone() -> None:
    scene = queued((MATMUL, 60_000), (NCCL, 35_000))
    found = verdict(scene)
    assert (found.limit, found.limit_confidence) == ("mixed", "low")
    assert "kernels" in found.limit_reason
    assert "waiting for other ranks" in found.limit_reason


def test_long_waits_after_a_launch_that_nobody_can_explain_stay_unknown() -> None:
    found = verdict(shared_device(equal=False))
    assert found.limit == "unknown"


def test_equal_gaps_at_one_place_of_the_program_are_no_shared_device() -> None:
    found = verdict(shared_device(own_place=True))
    assert found.limit == "unknown"


def test_a_limit_is_low_where_few_kernels_were_seen() -> None:
    found = verdict(back_to_back(MATMUL, 100_000, count=thresholds.FEW_KERNELS - 1))
    assert (found.limit, found.limit_confidence) == ("kernels", "low")
    assert verdict(back_to_back(MATMUL, 100_000, count=thresholds.FEW_KERNELS)).limit_confidence == "high"


def test_a_limit_is_low_where_the_clocks_disagree() -> None:
    scene = Scene(head=HEAD)
    for at in range(0, 120 * 10_000, 10_000):
        scene.operator(at + 2_000, 2_000, "aten::mm")
        scene.kernel(at, 9_900, MATMUL, launch=(at + 3_000, 300), grid=GRID, block=BLOCK)  # before its call
    found = verdict(scene)
    assert found.devices[0].idle_clock_corrected is not None
    assert (found.limit, found.limit_confidence) == ("kernels", "low")


def test_a_launch_call_that_lasts_long_later_on_is_no_first_use() -> None:
    scene = Scene(head=HEAD)
    for index in range(120):
        at = index * 2_100_000
        scene.operator(at, 2_050_000, "aten::add")
        scene.kernel(
            at + 2_060_000, 20_000, STREAMING, launch=(at + 40_000, 2_000_000), grid=GRID, block=BLOCK
        )
    found = verdict(scene)
    assert (found.limit, found.limit_confidence) == ("host", "high"), found.limit_reason
    assert found.devices[0].first_use_ns == 0  # the first of all kernels ends no gap


def test_what_was_queued_before_the_recording_is_no_idle_time_of_a_device_whose_other_stream_runs_ahead() -> (
    None
):
    found = verdict(beside_a_queue())
    assert (found.limit, found.limit_confidence) == ("kernels", "high"), found.limit_reason
    assert found.devices[0].idle_ns > 0.5 * found.devices[0].span_ns  # totals keep everything
    assert "(after the first 20.0 ms)" in found.limit_reason


def test_what_is_left_of_the_span_is_not_taken_for_the_job_where_it_is_next_to_nothing() -> None:
    found = verdict(beside_a_queue(rounds=15))
    assert found.limit != "kernels", found.limit_reason


def capturing(*, calls: bool) -> Scene:
    """A warm-up, the same captured into a graph, and a few replays; `calls`: as the driver tells it."""
    scene = Scene(head=HEAD)
    for index in range(200):
        at = index * 20_000
        scene.operator(at, 18_000, "aten::mul")
        scene.kernel(at + 14_000, 2_000, launch=(at + 8_000, 5_000), grid=GRID, block=BLOCK)
    if calls:
        scene.call(4_000_000, 1_000, "cudaStreamBeginCapture")
    for index in range(200):
        at = 4_001_000 + index * 20_000
        scene.operator(at, 18_000, "aten::mul")
        scene.call(at + 8_000, 5_000, "cudaLaunchKernel", correlation=9_000 + index)
    if calls:
        scene.call(8_001_000, 1_000, "cudaStreamEndCapture")
    for index in range(5):
        scene.call(8_010_000 + index * 20_000, 10_000, "cudaGraphLaunch", correlation=8_000 + index)
        scene.kernel(8_019_000 + index * 20_000, 18_000, correlation=8_000 + index, grid=GRID, block=BLOCK)
    return scene


@pytest.mark.parametrize("calls", [True, False])
def test_a_graph_that_is_captured_is_a_start_up(calls: bool) -> None:
    found = verdict(capturing(calls=calls))
    assert (found.limit, found.limit_confidence) == ("startup", "high"), found.limit_reason
    assert found.regime == "unknown"
    assert found.advice == []
    assert "steady steps" in (found.decide_with or "")


def test_a_capture_after_steps_without_one_is_a_start_up_alone() -> None:
    scene = capturing(calls=True)
    kept = [each for each in scene.events if "cudaLaunchKernel" not in each or '"correlation": 9' not in each]
    scene.events = kept
    found = verdict(scene)
    parts = found.devices[0].host_late_by_cause_ns
    assert parts["initialisation"] == pytest.approx(4_000_000, rel=0.05)
    assert parts["op_dispatch"] > 1_000_000


def test_time_slices_are_found_where_no_operations_follow_each_other_twice() -> None:
    scene = shared_device()
    kernels = iter(range(10_000))
    scene.events = [
        each.replace('"name": "', f'"name": "{next(kernels)} ', 1) if '"cat": "kernel"' in each else each
        for each in scene.events
    ]
    assert verdict(scene).limit == "shared"
