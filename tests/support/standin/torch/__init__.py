"""A stand-in for torch where there is no wheel: what the agent touches, and nothing that computes.

Optimizers fire the same global hooks as the real ones; a file called libtorch_python.so is mapped.
"""

# What the real one imports too, and the agent needs: a module that is half imported by one thread is seen by
# others that look into `sys.modules`, as `dataclasses` does for `typing`. libffi keeps its own file open.
import ctypes  # noqa: F401
import dataclasses  # noqa: F401
import inspect  # noqa: F401
import logging  # noqa: F401
import mmap
import os
import threading  # noqa: F401 - a thread of ours that had it first would be taken for the main one
import typing  # noqa: F401

from .version import __version__

with open(os.path.join(os.path.dirname(__file__), "lib", "libtorch_python.so"), "rb") as _file:
    _mapped = mmap.mmap(_file.fileno(), 0, prot=mmap.PROT_READ)

from . import autograd, cuda, nn, optim, utils

_threads = 1


class Tensor:
    """A number that can be asked for its gradient."""

    def __init__(self, value=0.0):
        self.value, self.grad = value, None

    def backward(self):
        autograd.backward(self)


class _C:
    """No mode of the job's own is on."""

    @staticmethod
    def _len_torch_dispatch_stack():
        return 0

    _len_torch_function_stack = _len_torch_dispatch_stack
    _get_dispatch_stack_at = _get_function_stack_at = None  # there is none to get


def get_num_threads():
    return _threads


def set_num_threads(count):
    global _threads
    _threads = count


def is_grad_enabled():
    return True


def is_warn_always_enabled():
    return False


def set_warn_always(on):
    pass


__all__ = [
    "Tensor",
    "__version__",
    "autograd",
    "cuda",
    "get_num_threads",
    "nn",
    "optim",
    "set_num_threads",
    "utils",
]
