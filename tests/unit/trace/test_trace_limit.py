"""Who limits the step by a trace: an identity of the timeline, named where one part clearly leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autobrrr.records import Limit
from autobrrr.trace.verdict import trace_limit
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


def test_a_limit_is_high_over_a_mixed_regime_and_says_what_pays() -> None:
    found = verdict(queued((STREAMING, 50_000), (STREAMING, 40_000), (MATMUL, 90_000)))
    assert (found.regime, found.limit, found.limit_confidence) == ("mixed", "kernels", "high")
    assert "50 % moving tensors" in found.limit_reason
    assert "50 % products" in found.limit_reason
    assert "tensor cores and fusion both pay" in found.limit_reason


def test_kernels_beside_a_rival_of_half_their_size_limit_nothing_alone() -> None:
    scene = queued((MATMUL, 60_000), (NCCL, 35_000))
    found = verdict(scene)
    assert (found.limit, found.limit_confidence) == ("mixed", "low")
    assert "kernels" in found.limit_reason
    assert "collectives" in found.limit_reason


def test_long_waits_after_a_launch_that_nobody_can_explain_stay_unknown() -> None:
    found = verdict(shared_device(equal=False))
    assert found.limit == "unknown"


def test_equal_gaps_at_one_place_of_the_program_are_no_shared_device() -> None:
    found = verdict(shared_device(own_place=True))
    assert found.limit == "unknown"


def test_a_limit_is_low_where_few_kernels_were_seen() -> None:
    found = verdict(back_to_back(MATMUL, 100_000, count=trace_limit.FEW_KERNELS - 1))
    assert (found.limit, found.limit_confidence) == ("kernels", "low")
    assert verdict(back_to_back(MATMUL, 100_000, count=trace_limit.FEW_KERNELS)).limit_confidence == "high"


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
    assert "100 % of the device's time after the first 20.0 ms goes to kernels" in found.limit_reason


def test_what_is_left_of_the_span_is_not_taken_for_the_job_where_it_is_next_to_nothing() -> None:
    found = verdict(beside_a_queue(rounds=15))
    assert found.limit != "kernels", found.limit_reason


def test_a_stream_that_is_used_late_and_seldom_leaves_nothing_out() -> None:
    found = verdict(beside_a_queue(behind=1))
    assert found.limit != "kernels", found.limit_reason
