"""Guarded calls of NVML: a figure, or None; never an exception. And GPM, the counters of Hopper and later:
how many SMs, tensor cores and memory channels are at work.

In: the module `pynvml` of the distribution nvidia-ml-py, imported when a poller's thread first needs it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

LEAST_NS = 100_000_000
METRICS = ("NVML_GPM_METRIC_SM_UTIL", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", "NVML_GPM_METRIC_DRAM_BW_UTIL")
LOST = ("NVML_ERROR_UNINITIALIZED", "NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")


def load_nvml() -> ModuleType | None:
    """The initialised library; None without the package, a driver or a device."""
    try:
        module = importlib.import_module("pynvml")
        module.nvmlInit()
    except Exception:  # noqa: BLE001 - whatever keeps it away, there is no figure
        return None
    return module


class NvmlCalls:
    """Everything that is asked of the driver goes through here.

    Attributes:
        lost: The device or the driver has gone; nothing more is asked.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.lost = False
        self._gone = {self.number(name) for name in LOST}

    def ask(self, name: str, *args: object) -> object:
        """What the function gives; None where it fails or is not there."""
        function = getattr(self.module, name, None)
        if self.lost or function is None:
            return None
        try:
            found: object = function(*args)
        except Exception as error:  # noqa: BLE001 - one figure less
            self.lost = getattr(error, "value", None) in self._gone
            return None
        return found

    def whole(self, name: str, *args: object) -> int | None:
        """The same for functions that give a whole number."""
        found = self.ask(name, *args)
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None

    def number(self, name: str) -> int:
        """A constant of the library; -1 where it has none, which no function accepts."""
        found = getattr(self.module, name, None)
        return found if isinstance(found, int) else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpmShares:
    """Parts of what the device could do, over the last interval."""

    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None


class Gpm:
    """The counters of one device, over the time between two samples, which must lie 100 ms apart.

    Elsewhere, under MIG, or without the right to read them: no figure.
    """

    def __init__(self, calls: NvmlCalls, handle: object) -> None:
        self._calls, self._handle = calls, handle
        support = calls.ask("nvmlGpmQueryDeviceSupport", handle)
        supported = bool(getattr(support, "isSupportedDevice", False))
        self._buffers = [calls.ask("nvmlGpmSampleAlloc") for _ in range(2)] if supported else []
        self._taken_ns: int | None = None  # when the first buffer was filled

    def read(self, now_ns: int, longest_ns: int) -> GpmShares:
        """Shares since the call before; none where that is too short or too long ago."""
        early = self._taken_ns is not None and now_ns - self._taken_ns < LEAST_NS
        if not self._buffers or None in self._buffers or early:
            return GpmShares()
        before, buffer = self._buffers
        filled = self._calls.ask("nvmlGpmSampleGet", self._handle, buffer) is not None
        taken_ns, self._taken_ns = self._taken_ns, now_ns if filled else None
        self._buffers.reverse()
        if not filled or taken_ns is None or now_ns - taken_ns > longest_ns:
            return GpmShares()
        return self._between(before, buffer)

    def close(self) -> None:
        """Give the buffers back."""
        for buffer in self._buffers:
            self._calls.ask("nvmlGpmSampleFree", buffer)
        self._buffers = []

    def _between(self, before: object, now: object) -> GpmShares:
        query = self._calls.module.c_nvmlGpmMetricsGet_t()
        query.version = self._calls.number("NVML_GPM_METRICS_GET_VERSION")
        query.numMetrics, query.sample1, query.sample2 = len(METRICS), before, now
        wanted = query.metrics[: len(METRICS)]
        for metric, name in zip(wanted, METRICS, strict=True):
            metric.metricId = self._calls.number(name)
        if self._calls.ask("nvmlGpmMetricsGet", query) is None:
            return GpmShares()
        sm, tensor, dram = (_share(metric.nvmlReturn, metric.value) for metric in wanted)
        return GpmShares(sm_active=sm, tensor_active=tensor, dram_active=dram)


def _share(code: int, percent: float) -> float | None:
    return percent / 100 if code == 0 and 0 <= percent <= 100 else None
