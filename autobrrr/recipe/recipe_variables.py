"""The variables that a recipe may set, with the values that each may have. Every other one is refused.

A recipe comes from anywhere and must not run code. So no variable stands here that names a file, a library,
a module, a host or a command; a value is a number in a range, one of a few words, or settings made of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autobrrr.readable import nearest

MOST_LETTERS = 200
INSTEAD = {
    "LD_PRELOAD": "the remedy host.allocator starts a job with another allocator",
    "ATEN_CPU_CAPABILITY": "torch believes it unseen, and a CPU without these instructions ends the run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What the value of one variable may be.

    Attributes:
        pattern: Of the whole value.
        says: How to write it, as "must be ..." goes on.
        low: Of a value that is a whole number.
        high: Of the same; a value with words beside numbers has no bounds.
    """

    pattern: str
    says: str
    low: int | None = None
    high: int | None = None

    def problem_with(self, value: str) -> str | None:
        """What is wrong with a value ("must be ..."); None where nothing is."""
        if len(value) > MOST_LETTERS or re.fullmatch(self.pattern, value, re.ASCII) is None:
            return f"must be {self.says}"
        if self.low is not None and self.high is not None and re.fullmatch("[0-9]+", value):
            return None if self.low <= int(value) <= self.high else f"must be {self.says}"
        return None


def meant(name: str) -> str:
    """What may have been meant by a name that is not in the table, as the end of a message."""
    if name in INSTEAD:
        return f"; {INSTEAD[name]}"
    near = nearest(name.upper(), VARIABLES)
    return f" (did you mean {near}?)" if near else ""


def _count(low: int, high: int, *words: str) -> Variable:
    return Variable(
        pattern="|".join(["[0-9]{1,12}", *words]),
        says=" or ".join([f"a whole number from {low} to {high}", *words]),
        low=low,
        high=high,
    )


def _word(*words: str) -> Variable:
    return Variable(pattern="|".join(map(re.escape, words)), says=f"one of {', '.join(words)}")


def _list(pattern: str, says: str) -> Variable:
    return Variable(pattern=f"(?:{pattern})(?:,(?:{pattern}))*", says=says)


def _settings(keys: Mapping[str, str]) -> Variable:
    entries = "|".join(f"{re.escape(key)}:(?:{value})" for key, value in keys.items())
    return _list(entries, f"settings like KEY:VALUE,KEY:VALUE with the keys {', '.join(keys)}")


def _each(variable: Variable, names: Iterable[str]) -> dict[str, Variable]:
    return dict.fromkeys(names, variable)


_NUMBER = "[0-9]{1,12}"
# What torch refuses ends the run when the allocator is first used; a share of nothing leaves it no memory.
_MEGABYTES = "2[1-9]|[3-9][0-9]|[1-9][0-9]{2,6}"
_SHARE = r"0?\.(?=[0-9]*[1-9])[0-9]{1,6}"
_DIVISIONS = "1|2|4|8|16|32|64"
_SIZES = "|".join(str(1 << power) for power in range(17))
_DIVISION = f"(?:{_SIZES}|>):(?:0|{_DIVISIONS})"
_CPUS = "[0-9]{1,5}(?:-[0-9]{1,5}(?::[0-9]{1,5})?)?"
_SWITCH = _word("0", "1")
_TRUTH = _word("true", "false", "TRUE", "FALSE", "0", "1")
_BYTES = _count(0, 1 << 37)
_THREADS = _count(1, 4096)
_TRUE_FALSE = "True|False"
_CUDA_ALLOCATOR = _settings(
    {
        "backend": "native|cudaMallocAsync",
        "max_split_size_mb": _MEGABYTES,
        "max_non_split_rounding_mb": _MEGABYTES,
        "roundup_power2_divisions": rf"{_DIVISIONS}|\[{_DIVISION}(?:,{_DIVISION})*\]",
        "garbage_collection_threshold": _SHARE,
        "per_process_memory_fraction": rf"{_SHARE}|1|1\.0",
        "expandable_segments": _TRUE_FALSE,
        "graph_capture_record_stream_reuse": _TRUE_FALSE,
        "pinned_use_cuda_host_register": _TRUE_FALSE,
        "pinned_use_background_threads": _TRUE_FALSE,
        "pinned_num_register_threads": f"{_DIVISIONS}|128",
    }
)
_JEMALLOC = _settings(
    {
        "background_thread": "true|false",
        "metadata_thp": "disabled|auto|always",
        "thp": "default|always|never",
        "percpu_arena": "disabled|percpu|phycpu",
        "narenas": "[1-9][0-9]{0,3}",
        "oversize_threshold": _NUMBER,
        "dirty_decay_ms": f"-1|{_NUMBER}",
        "muzzy_decay_ms": f"-1|{_NUMBER}",
        "lg_tcache_max": _NUMBER,
        "tcache": "true|false",
        "retain": "true|false",
    }
)
_OPENMP = {
    **_each(
        _THREADS,
        (
            "OMP_NUM_THREADS",
            "OMP_THREAD_LIMIT",
            "MKL_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "NUMEXPR_NUM_THREADS",
            "NUMEXPR_MAX_THREADS",
            "RAYON_NUM_THREADS",
        ),
    ),
    **_each(_TRUTH, ("OMP_DYNAMIC", "MKL_DYNAMIC", "TOKENIZERS_PARALLELISM")),
    "OMP_MAX_ACTIVE_LEVELS": _count(0, 64),
    "OMP_WAIT_POLICY": _word("ACTIVE", "PASSIVE", "active", "passive"),
    "OMP_PROC_BIND": _list(
        "true|false|primary|master|close|spread|TRUE|FALSE|PRIMARY|MASTER|CLOSE|SPREAD",
        "true, false, or a list of primary, close and spread",
    ),
    "OMP_PLACES": Variable(
        pattern=r"(?:threads|cores|ll_caches|numa_domains|sockets)(?:\([0-9]{1,4}\))?|[0-9{}:,!-]+",
        says="threads, cores, ll_caches, numa_domains or sockets, or places like {0:4},{4:4}",
    ),
    "OMP_SCHEDULE": Variable(
        pattern="(?:static|dynamic|guided|auto)(?:,[0-9]{1,9})?",
        says="static, dynamic, guided or auto, with a size or without",
    ),
    "GOMP_SPINCOUNT": _count(0, 10**12 - 1, "infinite", "infinity"),
    "GOMP_CPU_AFFINITY": Variable(pattern=f"{_CPUS}(?:[ ,]{_CPUS})*", says="CPUs like 0-3,8-11"),
    "KMP_BLOCKTIME": _count(0, 1 << 31, "infinite"),
    "KMP_AFFINITY": _list(
        r"verbose|noverbose|warnings|nowarnings|respect|norespect|reset|noreset|duplicates|noduplicates"
        r"|granularity=(?:fine|thread|core|tile|die|node|group|socket)|proclist=\[[0-9,:{}-]+\]"
        r"|compact|scatter|balanced|explicit|logical|physical|none|disabled|[0-9]{1,3}",
        "a list like granularity=fine,compact,1,0",
    ),
    "MKL_ENABLE_INSTRUCTIONS": _word("SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_E1"),
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": _count(0, 1 << 20),
    "LRU_CACHE_CAPACITY": _count(1, 1 << 20),
}
_ALLOCATORS = {
    "MALLOC_ARENA_MAX": _count(1, 4096),
    "MALLOC_ARENA_TEST": _count(1, 4096),
    "MALLOC_MMAP_MAX_": _count(0, 1 << 31),
    **_each(_BYTES, ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")),
    "MALLOC_TOP_PAD_": _count(0, 1 << 30),  # asked for at once: Python does not start where that is refused
    "MALLOC_CONF": _JEMALLOC,
    "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": _BYTES,
    "TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD": _BYTES,
    "TCMALLOC_RELEASE_RATE": _count(0, 10),
}
_CUDA = {
    **_each(_CUDA_ALLOCATOR, ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")),
    "CUDA_MODULE_LOADING": _word("LAZY", "EAGER"),
    "CUDA_DEVICE_MAX_CONNECTIONS": _count(1, 32),
    "CUDA_LAUNCH_BLOCKING": _SWITCH,
    "CUBLAS_WORKSPACE_CONFIG": Variable(
        pattern="(?::[1-9][0-9]{0,5}:[1-9][0-9]?){1,4}", says="sizes and counts like :4096:8"
    ),
    "CUBLASLT_WORKSPACE_SIZE": _count(0, 1 << 24),
    "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT": _count(0, 1 << 20),
}
_NCCL_DISTANCE = _word("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
_NCCL = {
    **_each(
        _SWITCH,
        (
            "NCCL_CHECKS_DISABLE",
            "NCCL_COLLNET_ENABLE",
            "NCCL_CUMEM_ENABLE",
            "NCCL_GRAPH_REGISTER",
            "NCCL_IB_DISABLE",
            "NCCL_IB_SPLIT_DATA_ON_QPS",
            "NCCL_LAUNCH_ORDER_IMPLICIT",
            "NCCL_NVLS_ENABLE",
            "NCCL_P2P_DISABLE",
            "NCCL_SHM_DISABLE",
            "TORCH_NCCL_AVOID_RECORD_STREAMS",
            "TORCH_NCCL_BLOCKING_WAIT",
            "TORCH_NCCL_CUDA_EVENT_CACHE",
            "TORCH_NCCL_HIGH_PRIORITY",
        ),
    ),
    **_each(
        _count(1, 128),
        (
            "NCCL_IB_QPS_PER_CONNECTION",
            "NCCL_MAX_CTAS",
            "NCCL_MAX_NCHANNELS",
            "NCCL_MIN_CTAS",
            "NCCL_MIN_NCHANNELS",
            "NCCL_NSOCKS_PERTHREAD",
            "NCCL_SOCKET_NTHREADS",
        ),
    ),
    **_each(_count(0, 2), ("NCCL_CROSS_NIC", "NCCL_NET_GDR_READ")),
    **_each(_count(0, 255), ("NCCL_IB_RETRY_CNT", "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_TIMEOUT")),
    **_each(_NCCL_DISTANCE, ("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL")),
    "NCCL_ALGO": _list(
        r"\^?(?:Tree|Ring|CollnetDirect|CollnetChain|NVLS|NVLSTree|PAT)", "a list like Ring,Tree"
    ),
    "NCCL_PROTO": _list(r"\^?(?:LL|LL128|Simple)", "a list of LL, LL128 and Simple"),
    "NCCL_BUFFSIZE": _count(1 << 10, 1 << 30),
    "NCCL_NTHREADS": _word("64", "128", "256", "512", "1024"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": _count(0, 3),
}
_INDUCTOR = {
    **_each(
        _SWITCH,
        (
            "TORCHINDUCTOR_BENCHMARK_FUSION",
            "TORCHINDUCTOR_COMPREHENSIVE_PADDING",
            "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
            "TORCHINDUCTOR_CPP_DYNAMIC_THREADS",
            "TORCHINDUCTOR_CPP_WEIGHT_PREPACK",
            "TORCHINDUCTOR_CPP_WRAPPER",
            "TORCHINDUCTOR_CUDAGRAPHS",
            "TORCHINDUCTOR_FX_GRAPH_CACHE",
            "TORCHINDUCTOR_GRAPH_PARTITION",
            "TORCHINDUCTOR_LAYOUT_OPTIMIZATION",
            "TORCHINDUCTOR_LOOP_ORDERING_AFTER_FUSION",
            "TORCHINDUCTOR_MAX_AUTOTUNE",
            "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM",
            "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE",
            "TORCHINDUCTOR_MEMORY_PLANNING",
            "TORCHINDUCTOR_PERMUTE_FUSION",
            "TORCHINDUCTOR_PERSISTENT_REDUCTIONS",
            "TORCHINDUCTOR_PROLOGUE_FUSION",
            "TORCHINDUCTOR_SHAPE_PADDING",
            "TORCHINDUCTOR_SPLIT_REDUCTIONS",
        ),
    ),
    "TORCHINDUCTOR_COMPILE_THREADS": _count(1, 256),  # processes, each of which imports torch
    "TORCHINDUCTOR_CPP_MIN_CHUNK_SIZE": _count(1, 1 << 20),
    "TORCHINDUCTOR_CPP_MAX_HORIZONTAL_FUSION_SIZE": _count(1, 4096),
    "TORCHINDUCTOR_MULTI_KERNEL": _count(0, 3),
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": _list("ATEN|TRITON|CPP", "a list of ATEN, TRITON and CPP"),
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_SEARCH_SPACE": _word("DEFAULT", "EXHAUSTIVE"),
}
VARIABLES: dict[str, Variable] = {**_OPENMP, **_ALLOCATORS, **_CUDA, **_NCCL, **_INDUCTOR}
