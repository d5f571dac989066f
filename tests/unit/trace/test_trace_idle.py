"""Idle time: the parts sum to it, to the nanosecond, whatever the trace; and each part means what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.trace.timeline.intervals import joined, overlap_ns, union
from autobrrr.trace.trace_analysis import analyse_trace
from support.trace import Scene, as_trace

Intervals = list[tuple[int, int]]


intervals = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 30)).map(lambda p: (p[0], p[0] + p[1])), max_size=20
)


def covered(spans: Intervals) -> set[int]:
    return {time for start, end in spans for time in range(start, end)}


def of(spans: Intervals) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64)


@given(intervals, intervals)
def test_unions_and_overlaps_agree_with_counting_every_nanosecond(one: Intervals, other: Intervals) -> None:
    first, second = union(*of(one)), union(*of(other))
    assert first.length_ns() == len(covered(one))
    assert overlap_ns(first, second) == len(covered(one) & covered(other))
    assert joined(first, second).length_ns() == len(covered(one) | covered(other))
    assert bool(np.all(first.start[1:] > first.end[:-1]))


operation = st.tuples(
    st.integers(0, 5_000),  # start
    st.one_of(st.none(), st.integers(-5, 400)),  # length
    st.one_of(st.none(), st.tuples(st.integers(-500, 6_000), st.integers(0, 300))),  # launch call
    st.integers(0, 2),  # device
    st.integers(1, 3),  # stream
    st.integers(1, 2),  # launching thread
)
host_event = st.tuples(
    st.integers(-200, 6_000),
    st.integers(0, 2_000),
    st.sampled_from(
        [
            ("cpu_op", "aten::add"),
            ("cpu_op", "aten::item"),
            ("cuda_runtime", "cudaStreamSynchronize"),
            ("cuda_runtime", "cudaMalloc"),
            ("python_function", "train.py(3): step"),
            ("user_annotation", "Optimizer.step#Adam.step"),
            ("user_annotation", "enumerate(DataLoader)#_Iter.__next__"),
            ("overhead", "Buffer Flush"),
        ]
    ),
    st.integers(1, 3),
)


@given(st.lists(operation, min_size=1, max_size=25), st.lists(host_event, max_size=25))
def test_on_random_traces_all_parts_sum_to_the_nanosecond(
    operations: list[tuple[int, int | None, tuple[int, int] | None, int, int, int]],
    events: list[tuple[int, int, tuple[str, str], int]],
) -> None:
    scene = Scene()
    for start, length, launch, device, stream, thread in operations:
        scene.kernel(start, length, launch=launch, device=device, stream=stream, tid=thread)
    for start, length, (cat, name), thread in events:
        scene.event(start, length, cat, name, tid=thread)
    found = analyse_trace(as_trace(scene))
    assert sum(device.gpu_events for device in found.devices) == len(operations)
    for device in found.devices:
        mine = [each for each in operations if each[3] == device.device]
        spans = [(start, start + max(length or 0, 0)) for start, length, *_ in mine]
        assert device.span_ns == max(end for _, end in spans) - min(start for start, _ in spans)
        assert device.busy_ns == len(covered(spans))
        idle = device.idle
        parts = (idle.host_late_ns, idle.in_launch_ns, idle.after_launch_ns, idle.unmatched_ns)
        assert min(parts) >= 0
        assert sum(parts) == device.idle_ns == device.span_ns - device.busy_ns
        assert min(device.host_late_by_cause_ns.values()) >= 0
        assert sum(device.host_late_by_cause_ns.values()) == idle.host_late_ns
        corrected = device.idle_clock_corrected
        if corrected is not None:
            assert sum(corrected.host_late_by_cause_ns.values()) == corrected.idle.host_late_ns
        shares = [getattr(device.shares, name) for name in device.shares.__struct_fields__]
        assert device.span_ns == 0 or abs(sum(shares) - 1) < 1e-3


def test_a_gap_is_cut_where_its_launch_call_begins_and_ends() -> None:
    scene = Scene()
    scene.kernel(0, 100, launch=(-50, 10))
    scene.kernel(1_000, 10, launch=(400, 250))
    device = analyse_trace(as_trace(scene)).devices[0]
    assert (device.idle.host_late_ns, device.idle.in_launch_ns, device.idle.after_launch_ns) == (
        300,
        250,
        350,
    )


def test_an_operation_without_a_launch_call_keeps_its_gap_as_unmatched() -> None:
    scene = Scene()
    scene.kernel(0, 100)
    scene.kernel(500, 100)
    device = analyse_trace(as_trace(scene)).devices[0]
    assert device.idle.unmatched_ns == device.idle_ns == 400


def test_annotations_and_synchronisation_records_on_gpu_lanes_are_no_work() -> None:
    scene = Scene()
    scene.kernel(0, 100)
    scene.event(0, 900, "gpu_user_annotation", "step", pid=0, args={"device": 0})
    scene.event(0, 900, "cuda_sync", "Event Sync", pid=0, args={"device": 0})
    scene.kernel(500, 100)
    device = analyse_trace(as_trace(scene)).devices[0]
    assert (device.gpu_events, device.busy_ns) == (2, 200)


def test_a_device_clock_that_is_behind_is_said_and_corrected_beside_the_raw_figures(tmp_path: Path) -> None:
    scene = Scene()
    for index in range(20):
        at = index * 10_000
        scene.kernel(at + 1_000, 2_000, launch=(at + 4_000, 500))  # starts 3 us before its launch call
    found = analyse_trace(as_trace(scene))
    device = found.devices[0]
    assert device.idle.host_late_ns == device.idle_ns
    assert device.idle_clock_corrected.shift_ns == 3_000
    assert device.idle_clock_corrected.idle.in_launch_ns == 0  # at the shift's least, launch and start meet
    assert any("clocks disagree" in line for line in found.warnings)
