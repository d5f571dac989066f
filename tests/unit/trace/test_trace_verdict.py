"""The verdict on a trace: a regime is named where two signals agree, and only there."""

from __future__ import annotations

import pytest

from support.trace import Scene, busy_scene
from support.trace_scenes import BLOCK, GRID, HEAD, MATMUL, STREAMING, back_to_back, loading, verdict


def test_a_device_that_waits_for_dispatch_is_overhead_and_graphs_are_advised() -> None:
    found = verdict(busy_scene(steps=4, kernels=40))
    assert (found.regime, found.confidence) == ("overhead", "high")
    assert found.advice[0].kind == "launch_bound"
    assert found.advice[0].gain > 3


def test_matmuls_near_the_peak_are_compute_and_fp32_ones_are_told_of_tensor_cores() -> None:
    flops = 2 * 1024**3
    found = verdict(back_to_back(MATMUL, int(flops / 19.5e12 * 1e9 / 0.8), [[1024, 1024], [1024, 1024]]))
    assert found.regime == "compute"
    assert "tensor_cores" in {each.kind for each in found.advice}


def test_matmuls_far_from_the_peak_are_not_called_compute() -> None:
    found = verdict(back_to_back(MATMUL, 2_000_000, [[1024, 1024], [1024, 1024]]))
    assert found.regime == "mixed"
    assert "excludes it" in found.reason


def test_matmuls_without_shapes_stay_unknown_and_shapes_would_decide() -> None:
    found = verdict(back_to_back(MATMUL, 100_000))
    assert found.regime == "unknown"
    assert "record_shapes" in found.decide_with


def test_streaming_kernels_at_the_speed_of_memory_are_memory_and_fusion_is_advised() -> None:
    moved = 4096 * 512 * 12
    found = verdict(back_to_back(STREAMING, int(moved / 2.039e12 * 1e9 / 0.8)))
    assert found.regime == "memory"
    assert "fusion" in {each.kind for each in found.advice}


def test_short_kernels_back_to_back_are_underfilled() -> None:
    found = verdict(back_to_back(STREAMING, 3_000, count=400))
    assert found.regime == "underfilled"


def test_waiting_for_the_loader_and_then_for_its_copy_is_input() -> None:
    found = verdict(loading(copy_ends_the_gap=True))
    assert found.regime == "input"
    assert found.advice[0].kind == "data_loader"


def test_exposed_collectives_of_one_rank_alone_stay_unknown_and_all_ranks_would_decide() -> None:
    scene = Scene(head=HEAD)
    for index in range(50):
        at = index * 100_000
        scene.operator(at, 900, "c10d::allreduce_")
        scene.kernel(at + 5_000, 95_000, "ncclDevKernel_AllReduce_Sum_f16_RING_LL()", launch=(at, 300))
    found = verdict(scene)
    assert found.regime == "unknown"
    assert "all ranks" in found.decide_with
    assert found.devices[0].exposed_communication_ns == 50 * 95_000


def test_python_that_holds_the_host_for_milliseconds_is_host_where_a_frame_names_it() -> None:
    scene = Scene(head=HEAD)
    scene.python(-1_000, 130_000_000, "train.py(10): main")
    for index in range(120):
        at = index * 1_050_000
        scene.python(at, 1_000_000, "env.py(77): simulate")
        scene.operator(at + 1_020_000, 1_000, "aten::add")
        scene.kernel(at + 1_021_500, 20_000, STREAMING, launch=(at + 1_020_100, 500), grid=GRID, block=BLOCK)
    found = verdict(scene)
    assert found.regime == "host"
    assert found.devices[0].host_code[0].python == "env.py:77 simulate"


def test_an_operator_that_computes_on_the_cpu_is_no_dispatch_overhead() -> None:
    scene = Scene(head=HEAD)
    for index in range(120):
        at = index * 1_050_000
        scene.operator(at, 1_000_000, "aten::randn")
        scene.operator(at + 1_020_000, 1_000, "aten::add")
        scene.kernel(at + 1_021_500, 20_000, STREAMING, launch=(at + 1_020_100, 500), grid=GRID, block=BLOCK)
    found = verdict(scene)
    assert found.regime == "unknown"
    assert "compute on the CPU" in found.reason
    assert found.devices[0].host_late_by_cause_ns["op_dispatch"] > 100_000_000


def test_first_launches_are_left_out_of_the_verdict_and_of_step_statistics_but_not_of_totals() -> None:
    scene = Scene(head=HEAD)
    scene.annotation(0, 90_000_000, "ProfilerStep#0")
    scene.operator(0, 90_000_000, "aten::conv2d")
    scene.kernel(0, 100, launch=(-500, 100))
    at = 90_000_000
    for step in range(1, 5):
        scene.annotation(at, 800_000, f"ProfilerStep#{step}")
        for _ in range(40):
            scene.operator(at, 18_000, "aten::mul")
            scene.kernel(at + 14_000, 2_000, launch=(at + 8_000, 5_000), grid=GRID, block=BLOCK)
            at += 20_000
    found = verdict(scene)
    assert [step.early for step in found.steps] == [True, False, False, False, False]
    assert (found.step_ns.count, found.step_ns.median) == (4, 800_000)
    assert found.regime == "overhead"
    assert found.devices[0].span_ns > 90_000_000
    assert any("early steps left out" in line for line in found.warnings)


def test_without_a_gpu_operation_there_are_no_devices_and_a_warning_says_why() -> None:
    scene = Scene(head=HEAD)
    scene.operator(0, 100, "aten::add")
    scene.call(10, 5, "cudaLaunchKernel", correlation=4)
    found = verdict(scene)
    assert found.devices == []
    assert found.regime == "unknown"
    assert any("no GPU operation" in line and "1 launch calls" in line for line in found.warnings)


def test_launch_calls_without_a_kernel_are_said_to_be_dropped() -> None:
    scene = busy_scene(2, 20)
    for index in range(10):
        scene.call(index * 30_000, 10, "cudaLaunchKernel", correlation=5_000 + index)
    found = verdict(scene)
    assert any("dropped" in line for line in found.warnings)


def test_several_devices_in_one_file_have_verdicts_of_their_own() -> None:
    scene = busy_scene(2, 60)
    for index in range(60):
        scene.kernel(index * 13_000, 12_900, STREAMING, device=5, launch=(-1_000, 10), grid=GRID, block=BLOCK)
    found = verdict(scene)
    assert [device.device for device in found.devices] == [0, 5]
    assert found.devices[0].regime == "overhead"
    assert found.devices[1].regime != "overhead"


def test_steps_are_taken_from_optimizer_steps_where_none_are_marked() -> None:
    scene = busy_scene(1, 40)
    for index in range(4):
        scene.annotation(100_000 + index * 200_000, 10_000, "Optimizer.step#SGD.step")
    found = verdict(Scene(events=[each for each in scene.events if "ProfilerStep" not in each]))
    assert [(step.source, step.duration_ns) for step in found.steps] == [("optimizer", 200_000)] * 3


def test_the_parts_of_a_step_sum_to_its_share_of_the_device_s_span() -> None:
    found = verdict(busy_scene(3, 10))
    for step in found.steps[1:-1]:
        on = step.devices[0]
        idle = on.idle.host_late_ns + on.idle.in_launch_ns + on.idle.after_launch_ns + on.idle.unmatched_ns
        assert on.busy_ns + idle == step.duration_ns
        assert on.kernels == 10


def dispatching(early_wait: bool) -> Scene:
    """The device waits for dispatch and then, shortly, the host for it; before, maybe, a first long step."""
    scene, at = Scene(head=HEAD), 0
    if early_wait:
        at = 300_000_000
        scene.annotation(0, at, "ProfilerStep#0")
        scene.kernel(10_000, 280_000_000, STREAMING, launch=(2_000, 1_000), grid=GRID, block=BLOCK)
        scene.call(20_000, 270_000_000, "cudaStreamSynchronize")
    for number in range(1, 41):
        scene.annotation(at, 7_400_000, f"ProfilerStep#{number}")
        for begin in range(at, at + 7_400_000, 740_000):
            scene.operator(begin, 340_000, "aten::mul")
            scene.operator(begin + 345_000, 340_000, "aten::add")
            launch = (begin + 680_000, 5_000)
            scene.kernel(begin + 695_000, 40_000, STREAMING, launch=launch, grid=GRID, block=BLOCK)
            scene.call(begin + 706_000, 31_000, "cudaStreamSynchronize")
        at += 7_400_000
    return scene


@pytest.mark.parametrize("early_wait", [False, True])
def test_a_wait_in_a_step_that_is_left_out_makes_no_later_dispatch_one(early_wait: bool) -> None:
    found = verdict(dispatching(early_wait))
    assert (found.regime, found.limit) == ("overhead", "host")


def test_products_of_doubles_are_not_held_against_the_peak_of_16_bits() -> None:
    scene, length = Scene(head=HEAD), 7_800_000
    sizes = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["double", "double"]}
    for index in range(200):
        scene.operator(index * 1_000, 900, "aten::mm", **sizes)
        scene.kernel(
            500_000 + index * length,
            length - 100,
            "cutlass_80_tensorop_d884gemm_64x64_16x3_nn_align1",
            launch=(index * 1_000 + 100, 300),
            grid=GRID,
            block=BLOCK,
        )
    assert "of the spec-sheet peak" not in verdict(scene).reason


def on_the_host(loader: int, operator: int, rounds: int = 40) -> Scene:
    """A loop on a CPU: so many microseconds in the loader, then in an operator, then 100 in neither."""
    scene = Scene()
    at = 0
    for _ in range(rounds):
        scene.annotation(at, loader * 1_000, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
        scene.operator(at + loader * 1_000, operator * 1_000, "aten::mm")
        at += (loader + operator + 100) * 1_000
    return scene


@pytest.mark.parametrize(
    ("loader", "operator", "limit", "sure"),
    [
        (900, 200, "input", "high"),
        (10, 900, "kernels", "low"),
        (10, 20, "host", "low"),
        (90, 110, "mixed", "low"),
    ],
)
def test_a_trace_of_a_cpu_job_is_judged_by_its_main_thread(
    loader: int, operator: int, limit: str, sure: str
) -> None:
    found = verdict(on_the_host(loader, operator))
    assert (found.limit, found.limit_confidence, found.regime) == (limit, sure, "unknown")
    assert [each.kind for each in found.advice] == ["data_loader"] * (limit == "input")
    assert found.decide_with is None


def test_operators_of_a_job_whose_device_was_not_recorded_are_no_kernels() -> None:
    scene = on_the_host(10, 900)
    scene.head = HEAD
    found = verdict(scene)
    assert (found.limit, found.decide_with) == ("unknown", "profile with ProfilerActivity.CUDA")


def test_a_trace_of_an_ascend_npu_is_called_one() -> None:
    scene = on_the_host(10, 900)
    scene.event(0, 1_000, "enqueue", "Enqueue@Matmul")
    found = verdict(scene)
    assert "an Ascend NPU ran this job" in found.limit_reason
    assert not any("CUDA" in each for each in (*found.warnings, found.decide_with or ""))


def test_short_operators_of_a_cpu_job_are_no_kernels() -> None:
    scene = Scene()
    for index in range(400):
        scene.operator(index * 10_000, 9_000, "aten::mul")
    found = verdict(scene)
    assert found.limit == "mixed"
    assert found.limit_reason.startswith("No single bottleneck: operators too short to tell their kernels")
