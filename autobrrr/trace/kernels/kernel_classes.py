"""What kind of work a kernel does, from its name: one table of patterns, the first that fits decides.

The names are those of ATen, cuBLAS, cuDNN, CUTLASS, Triton and inductor, NCCL, rocBLAS and
hipBLASLt, MIOpen, Composable Kernel, FBGEMM, Apex, vLLM, SGLang, TensorRT-LLM.
"""

from __future__ import annotations

import re
from functools import lru_cache

MATMUL, CONV, ATTENTION, NORMALISATION = "matmul", "conv", "attention", "normalisation"
POINTWISE, REDUCTION, EMBEDDING, OPTIMIZER = "pointwise", "reduction", "embedding", "optimizer"
COMMUNICATION, COPY, FUSED, OTHER = "communication", "copy", "fused", "other"

CLASSES = (
    MATMUL,
    CONV,
    ATTENTION,
    NORMALISATION,
    POINTWISE,
    REDUCTION,
    EMBEDDING,
    OPTIMIZER,
    COMMUNICATION,
    COPY,
    FUSED,
    OTHER,
)
CONTRACTIONS = (MATMUL, CONV, ATTENTION)

# A fragment anywhere in the lower-case name, or a pattern, gives the class. Fragments are many times
# quicker to look for than one pattern of alternatives, and there are names of a thousand characters.
_TABLE: tuple[tuple[str, str, str], ...] = (
    (
        COMMUNICATION,
        "nccl rccl multimem nvshmem deepep deep_ep all_reduce allreduce all_gather allgather "
        "reduce_scatter reducescatter all_to_all alltoall one_shot oneshot two_shot twoshot "
        "cross_device_reduce lamport symm_mem sendrecv barrier_kernel",
        "",
    ),
    (ATTENTION, "", r"^triton_tem.*(attention|attn)"),
    (MATMUL, "", r"^triton_tem"),
    (FUSED, "cudacodegen", r"^triton_|^nvfuser|^fused_\w+_\d{6,}|^kernel\d+$|^fused_cat|^fused__"),
    (
        EMBEDDING,
        "split_embedding bounds_check_ind linearize_ind block_bucketize jagged recat_ tbe_",
        r"(?<!rotary_)embedding",
    ),
    (
        OPTIMIZER,
        "multi_tensor muon lamb_stage adagrad rmsprop distadam global_norm lion_kernel _adam_ _adamw_ "
        "adamfunctor adam_functor adamwfunctor adam_kernel adamw_kernel adamkernel adamupdate fusedadam "
        "fused_adam fused_sgd fusedsgd fused_lamb fusedlamb sgdkernel sgd_kernel",
        "",
    ),
    (COPY, "reshape_and_cache store_kvcache store_kv_cache copy_blocks concat_and_cache kv_indices", ""),
    (POINTWISE, "rotary applyrope apply_rope quantize_with mxfp8_dim blocked_layout swizzle", r"\brope_"),
    (
        ATTENTION,
        "flash fmha attention attn sdpa _mha_ _mla_ softmaxdropout softmax_dropout",
        r"^_(fwd|bwd)_kernel|\bm[hl]a_|bmm_.*softmax",
    ),
    (
        NORMALISATION,
        "layernorm layer_norm rmsnorm rms_norm batchnorm batch_norm groupnorm group_norm instancenorm "
        "instance_norm softmax bnfwd bnbwd gammabeta rowwisemoments welford lrn_ weight_norm nhwc_bn "
        "cucomputegrad cucomputepartgrad add_norm addnorm computefusedparams internalgradients",
        r"\bbn_",
    ),
    (
        CONV,
        "dgrad wgrad winograd implicitgemm implicit_gemm igemm_ scudnn hcudnn icudnn im2col col2im "
        "vol2col miopensp3 first_layer kernel_grad_params fprop fft2d precompute_ind depthwise",
        r"conv(?!ert)|cudnn.*(engine|bprop)|compute\w?offsetskernel",
    ),
    (REDUCTION, "topk radix bitonic sort cub:: scan_ devicescan argmax argmin cumsum rocprim", ""),
    (
        MATMUL,
        "gemm gemv cijk_ nvjet xmma matmul _bmm bmm_ mm_kernel splitk split_k cublas rocblas hipblas "
        "tensile cutlass dot_kernel dotkernel _mma_ wmma mfma grouped_mm ger_kernel trsm syrk xxt_kernel "
        "_plus_caa_kernel epilogue::impl marlin awq fused_moe_kernel postgsu",
        "",
    ),
    (
        EMBEDDING,
        "gather scatter index_put indexput index_select indexselect index_add indexadd index_copy "
        "index_fill index_elementwise index_kernel indexfunc indexing take_ permute_2d permute_1d "
        "permute_indices permute_pooled permute_sequence permute_data permute_sparse sparse_data "
        "offsets_range complete_cumsum write_indices dense_representation masked_select nonzero "
        "flag_kernel unique block_rearrange",
        r"moe.*(permute|routing|expand|sort|align)",
    ),
    (
        REDUCTION,
        "reduce reduction _sum_ sum_kernel sumkernel mean_ norm_kernel vector_norm nll_loss nllloss "
        "criterion crossentropy cross_entropy loss pool histogram bincount nms prod_kernel logsumexp var_ "
        "std_ all_kernel any_kernel",
        "",
    ),
    (
        COPY,
        "copy catarray transpose nhwc nchw converttensor permut pad_ memcpy memset unfold fold_ stack_ "
        "contiguous repack flip repeat expand_kernel slice split_with hip_fill fill_buffer fillbuffer",
        r"\bcat_|\broll_",
    ),
    (
        POINTWISE,
        "elementwise functor pointwise vectorized_ unrolled_ rope silu gelu relu swiglu act_and_mul "
        "sigmoid tanh dropout upsample interpolat distribution random bernoulli philox arange linspace "
        "where threshold clamp quant tril triu scale cast optensor op_tensor bias mask fill pow_ exp_ "
        "sqrt compare hadamard lerp fused_add add_kernel mul_kernel addcmul per_token preprocess prepare "
        "increment setup init _kernel_impl grid_sampler amp_ nan_ isfinite foreach subtensorop "
        "_offsets_kernel _alloc_ token_ids",
        "",
    ),
)
_LONGEST = 1000
_SHORT = 60
_RULES = tuple(
    (name, tuple(fragments.split()), re.compile(pattern) if pattern else None)
    for name, fragments, pattern in _TABLE
)
_TENSOR_CORE = re.compile(
    r"tensorop|s16816|s1688|s884|h884|h1688|h16816|i8816|i16832|16864|wmma|wgmma|hmma|imma|qmma|tcgen05|nvjet|tf32"
    r"|tensor16|tensor8x|mfma|_mi(16|32|4)x|sm90_|sm100|fp8|e4m3|mxe\dm|mxfp|nvfp4|xdl|_s161616|(bf|f|fp|h)16.*(gemm|conv|fprop|dgrad|wgrad)"
    r"|(gemm|conv|fprop|dgrad|wgrad).*(bf16|f16|fp16)|flash|fmha_cutlass\w_(f16|bf16)|cijk_\w+_(hhs|bbs|hbh|bbh|hss|bss|b_bs|h_hs|i8)"
    r"|igemm_\w+_(fp16|bf16)|miopensp3asmconv\w*fp16"
)
_NO_TENSOR_CORE = re.compile(r"gemv|gemmk1|simt|ffma|dgemm")


@lru_cache(maxsize=65536)
def kernel_class(name: str) -> str:
    """The class of a kernel, one of `CLASSES`: by its name, and by its arguments where that says nothing."""
    head = without_arguments(name)
    found = _class_of(head)
    return found if found != OTHER or head == name else _class_of(name)


def short_name(name: str) -> str:
    """A kernel's name for a sentence: without namespaces that say nothing, and cut."""
    for noise in ("void ", "at::native::", "(anonymous namespace)::"):
        name = name.replace(noise, "")
    return name if len(name) <= _SHORT else name[: _SHORT - 3] + "..."


def without_arguments(name: str) -> str:
    """A kernel's name up to the list of its arguments; those of templates are part of the name."""
    depth = 0
    for place, letter in enumerate(name[:_LONGEST]):
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif letter == "(" and depth == 0 and not name.startswith("(anonymous namespace)", place):
            return name[:place] or name
    return name


def _class_of(name: str) -> str:
    lowered = name.lower()[:_LONGEST]
    for found, fragments, pattern in _RULES:
        if any(fragment in lowered for fragment in fragments) or (pattern and pattern.search(lowered)):
            return found
    return OTHER


def is_collective(name: str) -> bool:
    """Whether a kernel belongs to a communication library (NCCL, RCCL)."""
    head = without_arguments(name.lower())
    return "nccl" in head or "rccl" in head


@lru_cache(maxsize=65536)
def uses_tensor_cores(name: str) -> bool | None:
    """Whether a contraction runs on tensor or matrix cores; None where its name does not tell."""
    lowered = name.lower()[:_LONGEST]
    if kernel_class(name) not in CONTRACTIONS:
        return None
    if _NO_TENSOR_CORE.search(lowered):
        return False
    if _TENSOR_CORE.search(lowered):
        return True
    if re.search(r"sgemm|scudnn|float|f32|_sb_|implicit_convolve", lowered):
        return False
    return None


_FP32 = re.compile(r"sgemm|scudnn|float|f32")
_NOT_FP32 = re.compile(r"bfloat16|bf16|f16|fp16|half|double|int8")


def names_fp32(name: str) -> bool:
    """Whether the name of a contraction says that it multiplies 32-bit floats, and no others."""
    lowered = name.lower()[:_LONGEST]
    return _FP32.search(lowered) is not None and _NOT_FP32.search(lowered) is None
