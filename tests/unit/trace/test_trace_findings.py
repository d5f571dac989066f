"""What stands out in a trace: gaps that are alike, time slices, a collective that waits."""

from __future__ import annotations

from support.trace import Scene, busy_scene
from support.trace_scenes import BLOCK, GRID, HEAD, MATMUL, NCCL, shared_device, verdict


def two_places(stacks: bool = True) -> Scene:
    """Twenty short gaps before a product, five long ones before a copy that the loop's own line launches."""
    scene = Scene(head=HEAD)
    at = 0
    scene.python(-1_000, 40_000_000, "train.py(10): main")
    for index in range(25):
        copies = index % 5 == 0
        late = 1_500_000 if copies else 100_000
        scene.annotation(at, late + 24_000, f"ProfilerStep#{index}")
        if stacks:
            scene.python(at, late + 23_000, "train.py(31): fetch" if copies else "model.py(7): forward")
        scene.annotation(at, late + 22_000, "fetching" if copies else "forward")
        scene.operator(at + late - 50_000, 60_000, "aten::some")
        name = "Memcpy HtoD (Pageable -> Device)" if copies else MATMUL
        scene.kernel(
            at + late + 5_000,
            20_000,
            name,
            cat="gpu_memcpy" if copies else "kernel",
            launch=(at + late, 4_000),
            grid=GRID,
            block=BLOCK,
        )
        at += late + 25_000
    return scene


def collectives(longest: int) -> Scene:
    scene = Scene(head=HEAD)
    at = 0
    for index in range(40):
        length = longest if index % 2 else 20_000
        called = -50_000_000 + index * 10_000
        scene.operator(called, 900, "c10d::allreduce_")
        scene.kernel(at, length, NCCL, launch=(called, 300), grid=[24, 1, 1], block=BLOCK)
        at += length + 100
    return scene


def test_gaps_are_grouped_by_what_ends_them_the_annotation_and_the_line() -> None:
    groups = verdict(two_places()).devices[0].gap_groups
    first, second = groups[:2]
    assert (first.ended_by, first.annotation) == ("Memcpy HtoD (Pageable -> Device)", "fetching")
    assert (first.python, first.count) == ("train.py:31 fetch", 4)  # the first of all ends no gap
    assert 1_480_000 <= first.median_ns <= 1_520_000
    assert (second.ended_by, second.python, second.count) == (MATMUL, "model.py:7 forward", 20)
    assert sum(each.share for each in groups) == 1


def test_groups_hold_all_idle_time_without_stacks_and_steps_do_not_split_them() -> None:
    device = verdict(two_places(stacks=False)).devices[0]
    assert sum(each.idle_ns for each in device.gap_groups) == device.idle_ns
    assert {each.python for each in device.gap_groups} == {"train.py:10 main"}
    assert len(device.gap_groups) == 2


def test_half_of_the_idle_time_in_one_place_is_a_finding_and_stands_in_the_advice() -> None:
    found = verdict(two_places())
    assert any("train.py:31 fetch, fetching, before Memcpy HtoD" in each for each in found.findings)
    assert "(4 gaps, 6" in found.findings[0]
    busy = verdict(busy_scene(4, 40))
    launching = next(each for each in busy.advice if each.kind == "launch_bound")
    assert launching.where.startswith("before vectorized_elementwise_kernel")


def test_time_slices_are_a_finding() -> None:
    (found,) = (each for each in verdict(shared_device()).findings if "another process" in each)
    assert "26 equal gaps of 2.4" in found


def test_a_collective_that_varies_a_thousandfold_waits_and_names_communication_alone() -> None:
    waiting = verdict(collectives(longest=30_000_000))
    assert (waiting.regime, waiting.limit) == ("communication", "communication")
    assert any("waits for a peer" in each for each in waiting.findings)
    even = verdict(collectives(longest=40_000))
    assert even.regime == "unknown"
    assert not any("peer" in each for each in even.findings)
