"""What a job's own code can see of itself and its process, in a form that compares."""

import gc
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, dataloader

UPDATES = [module for name, module in sorted(sys.modules.items()) if name.startswith("torch.optim.")]
CONFIGS = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config")
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
)
GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
OPTIMIZER_HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
PLAIN = (int, float, str, bool, type(None), tuple, torch.dtype, torch.device)


def visible_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, loaders: Sequence[DataLoader[object]] = ()
) -> dict[str, object]:
    """All of it but random numbers: objects by identity, plain values by themselves, tensors by kind."""
    return {
        "optimizer": optimizer_state(optimizer),
        "model": [list(_module_state(each)) for each in model.modules()],
        "keys": list(model.state_dict()),
        "parameters": [(*_tensor_kind(each), _values(vars(each))) for each in model.parameters()],
        "loaders": [_values(vars(each)) for each in loaders],
        "classes": [_values(vars(owner)) for owner in _patched_owners(model, optimizer)],
        "torch": _torch_state(),
        "compiler": {name: sys.modules[name].get_config_copy() for name in CONFIGS if name in sys.modules},
        "garbage": (
            gc.isenabled(),
            gc.get_threshold(),
            gc.get_freeze_count(),
            gc.get_debug(),
            list(gc.callbacks),
        ),
        **_process_state(),
    }


def optimizer_state(optimizer: torch.optim.Optimizer) -> list[object]:
    """What can be read of an optimizer but its numbers."""
    return [
        [_values({k: v for k, v in group.items() if k != "params"}) for group in optimizer.param_groups],
        dict(optimizer.defaults),
        repr(optimizer),
        list(vars(optimizer)),
        [[(name, _kind(value)) for name, value in each.items()] for each in optimizer.state.values()],
        [list(getattr(optimizer, name)) for name in OPTIMIZER_HOOKS],
    ]


def differing(one: dict[str, object], other: dict[str, object]) -> dict[str, tuple[object, object]]:
    """What is not the same in two of them."""
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


def _module_state(module: nn.Module) -> Iterator[object]:
    yield type(module), module.training
    # None in the slot for compiled calls: torch takes it for nothing there.
    yield _values({k: v for k, v in vars(module).items() if (k, v) != ("_compiled_call_impl", None)})
    yield [list(getattr(module, name)) for name in HOOKS]


def _patched_owners(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[object]:
    return [
        torch,
        torch.Tensor,
        torch.autograd,
        torch.amp.GradScaler,
        nn.Module,
        DataLoader,
        dataloader._BaseDataLoaderIter,
        dataloader._SingleProcessDataLoaderIter,
        dataloader._MultiProcessingDataLoaderIter,
        torch.optim.Optimizer,
        *UPDATES,
        *dict.fromkeys([type(optimizer), *map(type, model.modules())]),
    ]


def _torch_state() -> dict[str, object]:
    backends = torch.backends
    return {
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "matmul": (torch.get_float32_matmul_precision(), backends.cuda.matmul.allow_tf32),
        "cudnn": (
            backends.cudnn.enabled,
            backends.cudnn.benchmark,
            backends.cudnn.deterministic,
            backends.cudnn.allow_tf32,
        ),
        "mkldnn": (backends.mkldnn.enabled, backends.mkldnn.deterministic),
        "attention": [
            getattr(backends.cuda, f"{name}_sdp_enabled")()
            for name in ("flash", "mem_efficient", "math", "cudnn")
        ],
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "dtype": torch.get_default_dtype(),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "hooks": [list(getattr(torch_module, name)) for name in GLOBAL_HOOKS],
        "optimizer hooks": (
            list(torch_optimizer._global_optimizer_pre_hooks),
            list(torch_optimizer._global_optimizer_post_hooks),
        ),
    }


def _process_state() -> dict[str, object]:
    return {
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "path": list(sys.path),
        "finders": list(map(id, sys.meta_path)),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "hooks": (sys.excepthook, threading.excepthook, sys.displayhook, sys.stdout, sys.stderr),
        "recursion": sys.getrecursionlimit(),
        "switching": sys.getswitchinterval(),
        "warnings": len(warnings.filters),
        "limits": [resource.getrlimit(number) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)],
        "cpus": sorted(os.sched_getaffinity(0)),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "folder": str(Path.cwd()),
        "children": Path("/proc/thread-self/children").read_text().split(),
        "Python's threads": threading.active_count(),
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": sorted(
            os.readlink(each).split(":")[0] for each in Path("/proc/self/fd").iterdir() if each.exists()
        ),
    }


def _values(found: object) -> list[tuple[str, object]]:
    return [(name, _kind(value)) for name, value in dict(found).items()]  # type: ignore[call-overload]


def _kind(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return _tensor_kind(value)
    return value if isinstance(value, PLAIN) else id(value)


def _tensor_kind(value: torch.Tensor) -> tuple[object, ...]:
    return type(value), value.dtype, value.device, tuple(value.shape), value.stride(), value.requires_grad
