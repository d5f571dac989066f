"""Guarded calls of NVML: a figure, or None; never an exception. And GPM, the counters of Hopper and later:
how many SMs, tensor cores and memory channels are at work.

In: the module `pynvml` of the distribution nvidia-ml-py, imported when a poller's thread first needs it.
A function that this driver, device or user can't have is asked for once only.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

FINAL = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
)
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
        self._refused: set[str] = set()
        self._final = self._codes(FINAL)
        self._gone = self._codes(LOST)

    def ask(self, name: str, *args: object) -> object:
        """What the function gives; None where it fails or is not there."""
        if self.lost or name in self._refused:
            return None
        function = getattr(self.module, name, None)
        if function is None:
            self._refused.add(name)
            return None
        try:
            found: object = function(*args)
        except Exception as error:  # noqa: BLE001 - one figure less
            code = getattr(error, "value", None)
            if code in self._final:
                self._refused.add(name)
            self.lost = self.lost or code in self._gone
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

    def _codes(self, names: tuple[str, ...]) -> frozenset[int]:
        return frozenset(code for code in map(self.number, names) if code >= 0)


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
        self._on = bool(getattr(support, "isSupportedDevice", False))
        self._buffers = [calls.ask("nvmlGpmSampleAlloc") for _ in range(2)] if self._on else []
        self._on = self._on and None not in self._buffers
        self._taken_ns: int | None = None  # when the first buffer was filled

    def read(self, now_ns: int, longest_ns: int) -> GpmShares:
        """Shares since the call before; none where that is too short or too long ago."""
        if not self._on or (self._taken_ns is not None and now_ns - self._taken_ns < LEAST_NS):
            return GpmShares()
        before, buffer = self._buffers
        if self._calls.ask("nvmlGpmSampleGet", self._handle, buffer) is None:
            self._taken_ns = None
            return GpmShares()
        taken_ns, self._taken_ns = self._taken_ns, now_ns
        self._buffers.reverse()
        if taken_ns is None or now_ns - taken_ns > longest_ns:
            return GpmShares()
        return self._between(before, buffer)

    def close(self) -> None:
        """Give the buffers back."""
        self._on = False
        for buffer in self._buffers:
            if buffer is not None:
                self._calls.ask("nvmlGpmSampleFree", buffer)
        self._buffers = []

    def _between(self, before: object, now: object) -> GpmShares:
        query = self._calls.ask("c_nvmlGpmMetricsGet_t")
        if query is None:
            return GpmShares()
        try:
            asked = {
                "version": self._calls.number("NVML_GPM_METRICS_GET_VERSION"),
                "numMetrics": len(METRICS),
                "sample1": before,
                "sample2": now,
            }
            for name, value in asked.items():
                setattr(query, name, value)
            wanted = getattr(query, "metrics")[: len(METRICS)]  # noqa: B009 - a ctypes structure
            for metric, name in zip(wanted, METRICS, strict=True):
                metric.metricId = self._calls.number(name)
            if self._calls.ask("nvmlGpmMetricsGet", query) is None:
                return GpmShares()
            found = [_share(metric.nvmlReturn, metric.value) for metric in wanted]
        except (AttributeError, TypeError, ValueError):  # another layout of the structure
            self._on = False
            return GpmShares()
        return GpmShares(sm_active=found[0], tensor_active=found[1], dram_active=found[2])


def _share(code: int, percent: float) -> float | None:
    return percent / 100 if code == 0 and 0 <= percent <= 100 else None
