"""Kernel classes from names, work from shapes, and what fills a device."""

from __future__ import annotations

import json

import pytest

from autobrrr.roofline.device_peaks import peaks_of
from autobrrr.trace.kernels.kernel_classes import kernel_class, uses_tensor_cores
from autobrrr.trace.kernels.operator_flops import operator_flops
from autobrrr.trace.reading.trace_columns import OperatorShape
from autobrrr.trace.trace_analysis import analyse_trace
from support.trace import Scene, as_trace

ATEN = "void at::native::"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x64_tn", "matmul"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1", "matmul"),
        ("nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN", "matmul"),
        ("void gemv2T_kernel_val<int, int, __half, __half>", "matmul"),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128>(int)", "conv"),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f2x3_stride1", "conv"),
        ("sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32", "conv"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "attention"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", "attention"),
        (f"{ATEN}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", "normalisation"),
        (f"{ATEN}(anonymous namespace)::softmax_warp_forward<float>(float*)", "normalisation"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512>(cudnnTensorStruct)", "normalisation"),
        (f"{ATEN}vectorized_elementwise_kernel<4, {ATEN}CUDAFunctor_add<float>>(int)", "pointwise"),
        ("void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<false>()", "pointwise"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", "pointwise"),
        (f"{ATEN}elementwise_kernel<128, 2, direct_copy_kernel_cuda(at::TensorIteratorBase&)>", "copy"),
        (f"{ATEN}(anonymous namespace)::CatArrayBatchedCopy<float>", "copy"),
        (f"{ATEN}reduce_kernel<512, 1, ReduceOp<float, MeanOps<float>>>", "reduction"),
        (f"{ATEN}sbtopk::gatherTopK<float, unsigned int, 2, false>", "reduction"),
        (f"{ATEN}index_elementwise_kernel<128, 4, gpu_index_kernel>", "embedding"),
        (
            "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<float>",
            "embedding",
        ),
        (f"{ATEN}multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>", "optimizer"),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long)", "communication"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", "communication"),
        ("triton_red_fused__log_softmax_mul_nll_loss_forward_sub_view_32", "fused"),
        ("triton__0d1d2d3d4de", "fused"),
        ("my_own_thing", "other"),
    ],
)
def test_a_kernel_s_name_gives_its_class(name: str, kind: str) -> None:
    assert kernel_class(name) == kind


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("ampere_sgemm_128x64_tn", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x5_tn_align8>", True),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", True),
        ("void gemv2T_kernel_val<int, int, __half>", False),
        ("attn_fwd", None),
        (f"{ATEN}reduce_kernel<512>", None),
    ],
)
def test_tensor_cores_are_told_from_the_name_or_not_at_all(name: str, answer: bool | None) -> None:
    assert uses_tensor_cores(name) is answer


def shape(
    dims: list[list[int]], concrete: list[str] | None = None, types: list[str] | None = None
) -> OperatorShape:
    return OperatorShape(
        json.dumps(dims).encode(), json.dumps(types or []).encode(), json.dumps(concrete or []).encode()
    )


@pytest.mark.parametrize(
    ("name", "arguments", "flops"),
    [
        ("aten::mm", shape([[64, 128], [128, 32]]), 2 * 64 * 128 * 32),
        ("aten::addmm", shape([[32], [64, 128], [128, 32], [], []]), 2 * 64 * 128 * 32),
        ("aten::bmm", shape([[8, 64, 128], [8, 128, 32]]), 2 * 8 * 64 * 128 * 32),
        ("aten::linear", shape([[4, 10, 128], [32, 128], [32]]), 2 * 40 * 128 * 32),
        (
            "aten::convolution",
            shape([[2, 3, 32, 32], [16, 3, 3, 3], []], ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False"]),
            2 * 2 * 16 * 16 * 16 * 27,
        ),
        (
            "aten::cudnn_convolution",  # padding before stride
            shape([[2, 3, 32, 32], [16, 3, 3, 3]], ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"]),
            2 * 2 * 16 * 16 * 16 * 27,
        ),
        *(
            (f"aten::{name}", shape([[2, 3, 16, 16], [3, 16, 4, 4]], given), 2 * 2 * 16 * 16 * 3 * 16 * 16)
            for name, given in (
                ("cudnn_convolution_transpose", ["", "", "[1, 1]", "[1, 1]", "[2, 2]", "[1, 1]", "1"]),
                ("cudnn_convolution_transpose", ["", "", "[1, 1]", "[0, 0]", "[2, 2]", "[1, 1]", "1"]),
                ("slow_conv_transpose2d", ["", "", "[4, 4]", "", "[2, 2]", "[1, 1]", "[0, 0]", "[1, 1]"]),
                ("convolution", ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"]),
            )
        ),
        (
            "aten::convolution_backward",
            shape([[2, 16, 16, 16], [2, 3, 32, 32], [16, 3, 3, 3]]),
            2 * 2 * 2 * 16 * 16 * 16 * 27,
        ),
        (
            "aten::convolution_backward",  # transposed
            shape(
                [[2, 16, 32, 32], [2, 3, 16, 16], [3, 16, 4, 4]],
                ["", "", "", "[16]", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"],
            ),
            2 * 2 * 2 * 16 * 16 * 3 * 16 * 16,
        ),
        (
            "aten::_flash_attention_forward",
            shape([[2, 128, 8, 64]] * 3, ["", "", "", "", "", "128", "128", "0.", "True", "False"]),
            2 * 2 * 2 * 8 * 128 * 128 * 64 // 2,
        ),
        ("flash_attn_3::fwd", shape([[2, 128, 8, 64]] * 3), None),
        ("aten::mm", shape([[64, 128], [64, 32]]), None),
        ("aten::mm", shape([[], []]), None),
        ("aten::mm", OperatorShape(b"[[1,", b"", b""), None),
        ("aten::cudnn_convolution", shape([[2, 3, 8, 8], [4, 3, 3, 3]], ["", "", "[1]", "[0]", "[1]"]), None),
    ],
)
def test_operations_are_counted_as_the_textbook_does_or_not_at_all(
    name: str, arguments: OperatorShape, flops: int | None
) -> None:
    assert operator_flops(name, arguments) == flops


def test_peaks_are_found_by_name_and_absent_for_unknown_devices() -> None:
    found = peaks_of("NVIDIA A100-SXM4-80GB")
    assert (found.half_flops, found.bytes_per_s) == pytest.approx((312e12, 2.039e12))
    of_l40, of_l40s = peaks_of("NVIDIA L40"), peaks_of("NVIDIA L40S")
    assert of_l40s.half_flops == 2 * of_l40.half_flops
    assert peaks_of("Unheard 9000") is None
    assert peaks_of(None) is None


def test_small_grids_are_underfilled_and_work_is_counted_once_an_operator() -> None:
    head: dict[str, object] = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
    }
    scene = Scene(head=head)
    scene.operator(
        0,
        90_000,
        "aten::mm",
        **{"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]},
    )
    block = [128, 1, 1]
    scene.kernel(20_000, 50_000, "ampere_sgemm_128x64_tn", launch=(1_000, 100), grid=[512, 1, 1], block=block)
    scene.kernel(70_000, 10_000, "splitKreduce_kernel_gemm", launch=(2_000, 100), grid=[4, 1, 1], block=block)
    scene.kernel(
        90_000,
        10_000,
        "void at::native::vectorized_elementwise_kernel<4, add<float>, at::detail::Array<char*, 3> >",
        launch=(5_000, 100),
        grid=[1024, 1, 1],
        block=block,
    )
    device = analyse_trace(as_trace(scene)).devices[0]
    matmul = device.kernels["matmul"]
    assert (matmul.ns, matmul.count, matmul.underfilled_ns) == (60_000, 2, 10_000)
    assert (matmul.flops, matmul.counted_ns) == (2 * 1024**3, 60_000)
    assert (matmul.plain_ns, matmul.tensor_core_ns) == (50_000, 0)
    expected = 2 * 1024**3 / 19.5e12 / 60e-6
    assert device.signals.contraction_utilisation == pytest.approx(expected)
    assert device.signals.bandwidth_utilisation == pytest.approx(1024 * 512 * 12 / 10e-6 / 2.039e12)
