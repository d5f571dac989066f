"""What is found in forward code: by the names in it, and by what its first run meets."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import torch

from autobrrr.injected.job_code.side_effect_scan import CodeScan
from autobrrr.injected.job_code.unread_code import UnreadCode, unread_code_refused


def read(module: torch.nn.Module) -> CodeScan:
    """A scan by names."""
    scan = CodeScan(torch)
    for _ in scan.steps([module]):  # type: ignore[list-item]
        pass
    return scan


def refusals(module: torch.nn.Module, *given: torch.Tensor) -> list[str]:
    """Reasons not to run a module's forward once more."""
    scan = read(module)
    while not scan.findings.refusals:
        try:
            with unread_code_refused(scan.findings.read):
                module(*given or (torch.ones(2, 2),))
        except UnreadCode as met:
            for _ in scan.meet(met):
                pass
        else:
            break
    return [each.what for each in scan.findings.refusals]


def of_ours(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a test's that stands for one of the product: a layer that a call is led through."""
    made = cast(FunctionType, function)
    space = {**made.__globals__, "__name__": "autobrrr.of_a_test"}
    return FunctionType(made.__code__, space, made.__name__, made.__defaults__, made.__closure__)
