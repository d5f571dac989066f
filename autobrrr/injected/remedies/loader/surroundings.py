"""What lies around the code for an item and may change what it gives: environment, folder, modes of torch."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from ..model_calls.call_layers import autocast_states


def surroundings() -> tuple[object, ...]:
    """All of it; equal as long as none was changed."""
    folder = None
    with contextlib.suppress(OSError):
        folder = os.getcwd()
    torch: Any = sys.modules["torch"]
    return (
        dict(getattr(os.environ, "_data", os.environ)),
        folder,
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        autocast_states(torch)(),
        torch._C._len_torch_function_stack(),
    )
