"""GPM, the counters of Hopper and later: how many SMs, tensor cores and memory channels are at work.

In: guarded NVML calls and a device's handle. Out: shares over the time between two samples, which must
lie 100 ms apart. Elsewhere, under MIG, or without the right to read them: no figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.machine.nvml_calls import NvmlCalls

LEAST_NS = 100_000_000
METRICS = ("NVML_GPM_METRIC_SM_UTIL", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", "NVML_GPM_METRIC_DRAM_BW_UTIL")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpmShares:
    """Parts of what the device could do, over the last interval."""

    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None


class Gpm:
    """The counters of one device."""

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
