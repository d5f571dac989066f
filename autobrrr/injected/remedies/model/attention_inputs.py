"""What attention calls of one step hand over, and whether a kernel takes it, by torch's own checks.

In: the first step with the remedy on. Out: why the kernel asked for serves none of its calls. Only calls
through `torch.nn.functional` are seen; where there are none, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ...live_torch.compiled_code import compiled_graphs
from ...live_torch.dispatch_modes import unseen
from ...live_torch.handler_errors import let_through
from ...live_torch.patches import Patch, patched, take_off_all

CHECKS = {
    "flash": "can_use_flash_attention",
    "mem_efficient": "can_use_efficient_attention",
    "cudnn": "can_use_cudnn_attention",
}
MOST_STEPS = 8  # without a call seen


class AttentionInputs:
    """Looks at the calls of one step.

    Args:
        kernel: Whether this one takes them; one of `CHECKS`, others are not looked at.
    """

    def __init__(self, torch: ModuleType, kernel: str) -> None:
        self._torch, self._kernel = torch, kernel
        place = torch.backends.cuda
        self._check: Callable[[object], bool] | None = getattr(place, CHECKS.get(kernel, ""), None)
        self._params = getattr(place, "SDPAParams", None)
        self._seen = self._taken = self._steps = 0
        self._left: str | None = None  # a call that the kernel does not take
        self._why: str | None = None
        self._patches: list[Patch] = []

    def begin(self) -> bool:
        """Look from now on, and say whether it does.

        Not beside compiled code: torch would compile it anew for another function.
        """
        asks = self._check is not None and self._params is not None
        if not asks or not hasattr(self._torch, "get_autocast_dtype") or compiled_graphs():
            return False
        self._patches = patched(self._torch.nn.functional, "scaled_dot_product_attention", self._around)
        return bool(self._patches)

    def end(self) -> None:
        take_off_all(self._patches)

    def trouble(self) -> str | None:
        """At a step's end: why the kernel serves no call of it; None where it does, or none was seen."""
        if self._patches:
            self._steps += 1
            if self._seen or self._steps >= MOST_STEPS:
                self.end()
            if self._seen and not self._taken:
                self._why = f"{self._kernel} takes no attention call of a step, such as {self._left}"
        return self._why

    def _around(self, original: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any, **kwargs: Any) -> object:
            try:
                with unseen():
                    self._look(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - ours must not stop the job's call, whatever torch raises
                self.end()
                let_through(error)
            return original(*args, **kwargs)

        return call

    def _look(  # noqa: PLR0917 - as torch's own
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: object = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        assert self._check is not None
        assert self._params is not None
        if query.device.type != "cuda":
            return
        given = [self._as_cast(each) for each in (query, key, value)]
        params = self._params(*given, attn_mask, dropout_p, is_causal, enable_gqa)
        self._seen += 1
        if self._check(params):
            self._taken += 1
            return
        shape = "x".join(map(str, given[0].shape))
        kind = str(given[0].dtype).removeprefix("torch.")
        self._left = f"{kind} of {shape}" + ("" if attn_mask is None else " with a mask")

    def _as_cast(self, given: Any) -> Any:
        """What autocast makes of a tensor, without its values."""
        torch = self._torch
        if not torch.is_autocast_enabled() or given.dtype is not torch.float32:
            return given
        dtype = torch.get_autocast_dtype("cuda")
        return given.new_empty(given.shape[-2:], dtype=dtype, requires_grad=given.requires_grad).expand(
            given.shape
        )
