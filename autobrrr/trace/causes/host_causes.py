"""What a host event does, from its name: the reasons for which a host can be late.

A cause belongs to a whole region: everything inside a DataLoader's `__next__` is loading, and
everything inside an optimizer's step is the optimizer's. Calls that wait or allocate keep their
own cause, except inside a loader, where the remedy is the loader's.
"""

from __future__ import annotations

import re

from autobrrr.trace.reading.trace_columns import ANNOTATION, CALL, OPERATOR, OVERHEAD, PYTHON
from autobrrr.trace.timeline.launches import is_launch

CAUSES = (
    "untraced",
    "data_loader",
    "synchronisation",
    "allocation",
    "optimizer",
    "op_dispatch",
    "python",
    "initialisation",
    "profiler",
)
(
    UNTRACED,
    DATA_LOADER,
    SYNCHRONISATION,
    ALLOCATION,
    OPTIMIZER,
    OP_DISPATCH,
    PYTHON_CODE,
    INITIALISATION,
    PROFILER,
) = range(9)
CAUSE_WORDS = {  # what people read
    **{cause: cause.replace("_", " ") for cause in CAUSES},
    "op_dispatch": "operator dispatch",
    "python": "Python",
    "profiler": "the profiler itself",
}

# Told apart inside, and counted with operator dispatch and Python where causes are shown: dispatch
# and the Python around it come in microseconds, so what lasts is the work of the host itself.
LONG_OPERATOR, LONG_PYTHON, HELD_UP = 9, 10, 11
MARKS = 12
DISPATCHING = [ALLOCATION, OPTIMIZER, OP_DISPATCH, PYTHON_CODE]  # ... of each operator anew
SHOWN_AS = {LONG_OPERATOR: OP_DISPATCH, LONG_PYTHON: PYTHON_CODE, HELD_UP: OP_DISPATCH}
LONG_OPERATOR_NS = 500_000  # of one operator's own time: the host computes in it, or is held up
USUALLY_LONG_NS = 100_000  # the median call of an operator in which the host computes
LONG_PYTHON_NS = 1_000_000  # without any operator between

SLOW_ALLOCATION_NS = 100_000_000  # of one call: it makes the context, or tries algorithms
CAPTURED_FROM = 0.3  # of all launches: so many without a kernel were captured into a graph
FIRST_USE_NS = 1_000_000  # a launch call that takes longer while the device idles loads a module or tunes

_SYNCHRONISE = re.compile(
    r"Synchronize|^(cuda|hip)Memcpy(2D|3D)?$|^(cuda|hip)MemcpyWithStream$|^(cuda|hip)Memcpy(To|From)Symbol$"
    r"|^cuMemcpy(DtoH|HtoD|DtoD)(_v2)?$|^cuCtxSynchronize|^hipStreamQuery$"
)
_ALLOCATE = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|FreeHost|MallocHost|HostRegister|HostUnregister|MemPool)"
    r"|^(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|Release|AddressReserve|AddressFree|SetAccess|HostAlloc)"
)
_INITIALISE = re.compile(
    r"^(cu|hip)(Module|Library)|^(cuda|hip)(Func(Get|Set)Attribute|FuncSetCacheConfig|GetFuncBySymbol"
    r"|GetSymbolAddress"
    r"|GetDriverEntryPoint|GetDeviceProperties|GetDeviceCount|DriverGetVersion|RuntimeGetVersion"
    r"|StreamCreate|EventCreate"
    r"|DeviceGetStreamPriorityRange|DeviceGetAttribute|Graph(Instantiate|Create|Add)|StreamBeginCapture"
    r"|StreamEndCapture|ModuleLoad|DeviceEnablePeerAccess|IpcOpen|CtxCreate|InitDevice)|^cuInit|^cuCtxCreate"
)
_OVERHEAD_INITIALISE = re.compile(r"loading|compil", re.IGNORECASE)
_READS_BACK = re.compile(r"^aten::(_local_scalar_dense|item|is_nonzero|equal)$")
_LOADING = re.compile(
    r"data_?loader|load_(data|batch)|wait_for_batch|(get|next|fetch|read)_batch|load_?data\b|torch/utils/data/"
    r"|prefetcher|copy_batch_to_gpu|data_time",
    re.IGNORECASE,
)
_OPTIMIZING = re.compile(
    r"^Optimizer\.(step|zero_grad)#|^#+ (optimizer|zero_grad) #+$|^torch/optim/(?!lr_scheduler)"
)
_OPTIMIZING_NAMES = re.compile(r"^(optimizer([ _.:]?step)?|opt(im)?\.step|zero_grad)$", re.IGNORECASE)
_PROFILING = re.compile(
    r"^torch/profiler/|^torch/autograd/profiler|kineto|profiler\.(start|stop|step)", re.IGNORECASE
)
# Compiled code runs through files of the same names: only functions that compile are meant.
_COMPILING = re.compile(
    r"^torch/_(dynamo|inductor)/.*: (_?compile(_inner|_fx\w*|_to_\w+)?|_?call_user_compiler|codegen"
    r"|precompile|make_launcher|load_by_key_path|benchmark_all_configs|autotune_to_one_config|step_graph_break)$"
    r"|^torch/_dynamo/symbolic_convert|^triton/compiler/|^triton/runtime/autotuner|^<frozen importlib"
    r"|CachingAutotuner\.bench|_lazy_init|cpp_extension.*: (load|_jit_compile)|^dynamo_timed"
)


def cause_of_name(name: str, kind: int) -> int:
    """The cause that an event's own name tells; 0 where it has none of its own."""
    if kind == CALL:
        return _of_call(name)
    if kind == OVERHEAD:
        return INITIALISATION if _OVERHEAD_INITIALISE.search(name) else PROFILER
    if kind == PYTHON and _PROFILING.search(name):
        return PROFILER
    if _COMPILING.search(name):
        return INITIALISATION
    if _OPTIMIZING.search(name) or (kind == ANNOTATION and _OPTIMIZING_NAMES.search(name)):
        return OPTIMIZER
    if _LOADING.search(name) and (kind != PYTHON or "<built-in" not in name):
        return DATA_LOADER
    if kind == OPERATOR and _READS_BACK.search(name):
        return SYNCHRONISATION
    return 0


def plain_cause(kind: int) -> int:
    """The cause of an event that neither has one of its own nor lies in one: what kind of code it is."""
    return {CALL: OP_DISPATCH, OPERATOR: OP_DISPATCH, PYTHON: PYTHON_CODE}.get(kind, 0)


def _of_call(name: str) -> int:
    if is_launch(name):
        return 0
    if _SYNCHRONISE.search(name):
        return SYNCHRONISATION
    if _ALLOCATE.search(name):
        return ALLOCATION
    if _INITIALISE.search(name):
        return INITIALISATION
    return 0
