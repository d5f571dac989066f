"""Advice on a trace: what it says fits the numbers that run, and what was recorded."""

from __future__ import annotations

import pytest

from autobrrr.trace.kernels.kernel_classes import names_fp32
from autobrrr.trace.trace_records import TraceAdvice, TraceAnalysis
from support.trace import Scene, busy_scene
from support.trace_scenes import (
    BLOCK,
    GRID,
    HEAD,
    MATMUL,
    NCCL,
    back_to_back,
    copying,
    loading,
    queued,
    verdict,
)

HALF = ["c10::BFloat16", "c10::BFloat16"]


def advice(found: TraceAnalysis) -> dict[str, TraceAdvice]:
    return {each.kind: each for each in found.advice}


def products(types: list[str], sizes: list[list[int]], name: str, length: int = 100_000) -> Scene:
    """Two hundred products, launched long before they run."""
    scene = Scene(head=HEAD)
    for index in range(200):
        called = index * 1_000
        scene.operator(called, 900, "aten::mm", **{"Input Dims": sizes, "Input type": types})
        scene.kernel(
            500_000 + index * length, length - 100, name, launch=(called + 100, 300), grid=GRID, block=BLOCK
        )
    return scene


def attention(fused: bool = False, rounds: int = 40) -> Scene:
    """Scores, softmax and values; the weights are 8 x 12 matrices of 256 x 256."""
    scene = Scene(head=HEAD)
    query, key, weights = [96, 256, 64], [96, 64, 256], [96, 256, 256]
    calls = [
        ("aten::bmm", [query, key], "void cutlass::Kernel2<bf16_gemm>", 20_000),
        ("aten::_softmax", [weights], "void softmax_warp_forward<float>", 60_000),
        ("aten::mul", [weights, weights], "void vectorized_elementwise_kernel<4, mul>", 40_000),
        ("aten::bmm", [weights, [96, 256, 64]], "void cutlass::Kernel2<bf16_gemm>", 20_000),
    ]
    if fused:
        calls = [("aten::_flash_attention_forward", [query, key], "pytorch_flash::flash_fwd_kernel", 60_000)]
    at = 1_000_000
    for index in range(rounds):
        for place, (operator, dims, name, length) in enumerate(calls):
            called = (index * len(calls) + place) * 1_000
            scene.operator(called, 900, operator, **{"Input Dims": dims, "Input type": HALF})
            scene.kernel(at, length, name, launch=(called + 100, 300), grid=GRID, block=BLOCK)
            at += length + 100
    return scene


def test_products_of_16_bit_numbers_are_not_told_to_leave_fp32() -> None:
    kernel = "void gemmk1_kernel<int, 256, 5, false, c10::BFloat16, float, __nv_bfloat16>"
    assert not names_fp32(kernel)
    assert names_fp32("void implicit_convolve_sgemm<float, float, 128>")
    found = verdict(products(HALF, [[1024, 1024], [1024, 1024]], kernel))
    assert "tensor_cores" not in advice(found)
    by_name = verdict(queued((kernel, 50_000)))
    assert "tensor_cores" not in advice(by_name)


def test_recorded_types_tell_fp32_where_a_name_does_not() -> None:
    plain = "void cutlass_80_simt_sgemm_128x64"
    assert "tensor_cores" in advice(verdict(products(["float"] * 2, [[1024, 1024]] * 2, plain)))
    assert "tensor_cores" not in advice(verdict(products(HALF, [[1024, 1024]] * 2, plain)))


def test_attention_that_is_written_out_is_priced_by_what_goes_over_its_weights() -> None:
    found = advice(verdict(attention()))["attention"]
    assert found.saves_ns == 40 * (60_000 + 40_000)
    assert "96x256x256" in (found.where or "")
    assert "attention" not in advice(verdict(attention(fused=True)))


def test_a_softmax_over_what_no_product_made_is_no_attention() -> None:
    scene = Scene(head=HEAD)
    for index in range(100):
        scene.operator(index * 1_000, 900, "aten::_softmax", **{"Input Dims": [[64, 100, 1000]]})
        scene.kernel(
            500_000 + index * 50_000,
            49_000,
            "void softmax_warp_forward<float>",
            launch=(index * 1_000 + 100, 300),
            grid=GRID,
            block=BLOCK,
        )
    assert "attention" not in advice(verdict(scene))


def test_an_allocation_for_each_kernel_is_a_cache_that_is_off() -> None:
    def allocating(every: int) -> TraceAdvice:
        scene = Scene(head=HEAD)
        for index in range(200):
            at = index * 50_000
            scene.operator(at, 45_000, "aten::empty")
            if index % every == 0:
                scene.call(at + 1_000, 30_000, "cudaMalloc")
            scene.kernel(at + 45_000, 4_000, launch=(at + 40_000, 4_000), grid=GRID, block=BLOCK)
        return advice(verdict(scene))["allocation"]

    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in allocating(every=1).text
    assert "expandable_segments" in allocating(every=4).text


def test_pageable_copies_are_told_from_pinned_ones() -> None:
    pageable = advice(verdict(copying("HtoD (Pageable -> Device)")))["input_copies"]
    pinned = advice(verdict(copying("HtoD (Pinned -> Device)")))["input_copies"]
    assert "60 of them come from pageable memory" in pageable.text
    assert "pageable" not in pinned.text


def test_what_was_recorded_is_not_asked_for_again() -> None:
    """Shapes are there, yet no operator of them whose work can be counted."""
    scene = products(HALF, [[64, 64], [64, 64]], MATMUL)
    scene.head = {**HEAD, "record_shapes": 1}
    scene.events = [each.replace('"aten::mm"', '"mine::product"') for each in scene.events]
    found = verdict(scene)
    arithmetic = next(each for each in found.evidence if each.signal == "arithmetic")
    assert "can't be counted from the shapes that were recorded" in arithmetic.note
    assert "record_shapes" not in (found.decide_with or "")
    without = verdict(back_to_back(MATMUL, 100_000))
    assert "shapes were not recorded" in next(
        each.note for each in without.evidence if each.signal == "arithmetic"
    )


@pytest.mark.parametrize(
    "scene",
    [
        busy_scene(4, 40),
        back_to_back(MATMUL, 100_000),
        attention(),
        queued((MATMUL, 60_000), (NCCL, 45_000)),
        Scene(),
    ],
)
def test_no_sentence_asks_for_a_pid_that_a_file_does_not_have_or_lacks_its_figure(scene: Scene) -> None:
    found = verdict(scene)
    said = [
        found.reason,
        found.limit_reason,
        found.decide_with or "",
        *(each.note for each in found.evidence),
    ]
    assert not any("PID" in each or "diagnose" in each for each in said)
    for each in found.evidence:
        if each.value is not None and each.unit.startswith("share"):
            assert "%" in each.note or each.value == 0, each


def test_a_loader_behind_a_copy_that_waits_is_no_price_of_the_wait() -> None:
    scene = loading(copy_ends_the_gap=True)
    for step in range(12):
        at = step * 1_000_000
        scene.call(at + 905_000, 90_000, "cudaMemcpy")
    found = verdict(scene)
    assert found.devices[0].host_late_after_synchronisation_ns > 7_000_000
    assert advice(found)["data_loader"].saves_ns == found.devices[0].host_late_by_cause_ns["data_loader"]
    assert sum(each.idle_ns for each in found.devices[0].synchronisations) < 1_500_000  # the wait itself
    assert (advice(found)["synchronisation"].saves_ns or 0) < 1_500_000
