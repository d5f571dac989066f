"""Why the host was late: each cause is told from what the launching thread did in the gap."""

from __future__ import annotations

import pytest

from autobrrr.trace.causes.host_causes import CAUSES
from autobrrr.trace.trace_analysis import analyse_trace
from autobrrr.trace.trace_records import DeviceAnalysis
from support.trace import Scene, as_trace


def late(scene: Scene) -> dict[str, int]:
    """Causes that hold some time."""
    found = analyse_trace(as_trace(scene)).devices[0].host_late_by_cause_ns
    assert tuple(found) == CAUSES
    return {cause: ns for cause, ns in found.items() if ns}


def gap(scene: Scene, length: int = 10_000) -> None:
    """A gap from 0 to `length`, host late all along."""
    scene.kernel(-1_000, 1_000, launch=(-2_000, 500))
    scene.kernel(length, 500, launch=(length, 100))


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        ("cpu_op", "aten::add", "op_dispatch"),
        ("cpu_op", "aten::item", "synchronisation"),
        ("cpu_op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data_loader"),
        ("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data_loader"),
        ("user_annotation", "Optimizer.step#AdamW.step", "optimizer"),
        ("user_annotation", "## forward ##", "python"),
        ("python_function", "train.py(12): loop", "python"),
        ("python_function", "torch/utils/data/dataloader.py(600): __next__", "data_loader"),
        ("python_function", "torch/profiler/profiler.py(700): step", "profiler"),
        ("python_function", "triton/compiler/compiler.py(226): compile", "initialisation"),
        ("python_function", "torch/_inductor/codecache.py(100): __call__", "python"),
        ("cuda_runtime", "cudaMalloc", "allocation"),
        ("cuda_runtime", "hipFree", "allocation"),
        ("cuda_runtime", "cudaStreamSynchronize", "synchronisation"),
        ("cuda_runtime", "hipDeviceSynchronize", "synchronisation"),
        ("cuda_runtime", "hipMemcpyWithStream", "synchronisation"),
        ("cuda_runtime", "cudaMemcpyAsync", "op_dispatch"),
        ("cuda_driver", "cuModuleLoadData", "initialisation"),
    ],
)
def test_what_ran_in_the_gap_is_its_cause(kind: str, name: str, cause: str) -> None:
    scene = Scene()
    scene.operator(-5_000, 100, "aten::first")
    gap(scene)
    scene.event(0, 10_000, kind, name, args={})
    assert late(scene) == {cause: 10_000}


def test_a_gap_is_divided_among_all_that_ran_in_it() -> None:
    scene = Scene()
    gap(scene)
    scene.operator(-3_000, 5_000, "aten::mul")  # 2 us of it
    scene.call(4_000, 1_000, "cudaMalloc")
    scene.annotation(6_000, 3_000, "Optimizer.step#SGD.step")
    scene.operator(7_000, 1_000, "aten::add_")
    assert late(scene) == {"op_dispatch": 2_000, "allocation": 1_000, "optimizer": 3_000, "python": 4_000}


def test_operators_inside_a_loader_are_loading_and_waits_inside_an_optimizer_are_waits() -> None:
    scene = Scene()
    gap(scene)
    scene.operator(0, 5_000, "enumerate(DataLoader)#_Iter.__next__")
    scene.operator(1_000, 1_000, "aten::stack")
    scene.call(2_000, 1_000, "cudaHostAlloc")
    scene.annotation(5_000, 5_000, "Optimizer.step#Adam.step")
    scene.operator(6_000, 2_000, "aten::item")
    scene.call(6_500, 1_000, "cudaStreamSynchronize")
    assert late(scene) == {"data_loader": 5_000, "optimizer": 3_000, "synchronisation": 2_000}


def test_without_any_host_operators_the_cause_stays_untraced() -> None:
    scene = Scene()
    gap(scene)
    assert late(scene) == {"untraced": 10_000}


def test_the_profiler_s_own_overhead_counts_against_the_profiler_and_module_loading_as_initialisation() -> (
    None
):
    scene = Scene()
    scene.operator(-5_000, 20_000, "aten::conv2d")
    gap(scene)
    scene.event(1_000, 2_000, "overhead", "Activity Buffer Request", pid=-1, tid=0)
    scene.event(5_000, 1_000, "overhead", "Lazy Function Loading", pid=-1, tid=0)
    assert late(scene) == {"op_dispatch": 7_000, "profiler": 2_000, "initialisation": 1_000}


def in_operators(*lengths: int, name: str = "aten::add") -> DeviceAnalysis:
    """The device waits in each of these operators until it launches, at its end."""
    scene, at = Scene(), 0
    for length in lengths:
        scene.operator(at, length, name)
        scene.kernel(at + length + 2_000, 5_000, launch=(at + length - 3_000, 2_000))
        at += length + 20_000
    return analyse_trace(as_trace(scene)).devices[0]


def test_the_host_computes_in_operators_that_always_last() -> None:
    device = in_operators(*[2_000_000] * 8)
    assert device.long_operators_ns > 7 * 1_900_000
    assert device.held_up_ns == 0


def test_a_short_time_in_a_loader_is_not_said_to_be_none() -> None:
    scene = Scene()
    scene.operator(0, 4_000, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    scene.operator(5_000, 900_000, "aten::add")
    for at in (10_000, 990_000):
        scene.kernel(at, 10_000, launch=(at - 3_000, 500))
    notes = {each.signal: each.note for each in analyse_trace(as_trace(scene)).devices[0].evidence}
    assert notes["host_in_loader"] == "no data loader was seen"  # it lies before the device's span
    scene.operator(20_000 + 900_000, 4_000, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    notes = {each.signal: each.note for each in analyse_trace(as_trace(scene)).devices[0].evidence}
    assert notes["host_in_loader"] == "main thread under 1 % of the span inside a data loader"


def test_a_wait_is_named_by_call_operator_and_line_and_is_the_price_of_the_gap_that_began_in_it() -> None:
    scene = Scene()
    scene.python(-9_000, 40_000, "train.py(40): loop")
    scene.python(-8_000, 30_000, "torch/_tensor.py(90): item")
    scene.operator(-7_000, 12_000, "aten::_local_scalar_dense")
    scene.call(-6_000, 8_000, "cudaStreamSynchronize")
    gap(scene)
    device = analyse_trace(as_trace(scene)).devices[0]
    place = device.synchronisations[0]
    assert (place.call, place.operator) == ("cudaStreamSynchronize", "aten::_local_scalar_dense")
    assert place.python == "train.py:40 loop"
    assert (place.count, place.blocked_ns) == (1, 3_000)  # within the device's span
    assert device.host_late_after_synchronisation_ns == place.idle_ns == 10_000
