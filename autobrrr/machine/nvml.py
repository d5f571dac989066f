"""The GPU that a job runs on, as its driver shows it from outside.

In: the job's pid and the module `pynvml` of nvidia-ml-py. Out: a `GpuSample`; what the driver
does not tell is None. A call may stall for tens of ms, so a poller's thread asks, never the event loop.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from autobrrr.machine import procfs
from autobrrr.machine.job_user import namespace
from autobrrr.machine.own_place import FIRST_PIDS
from autobrrr.records import GpuSample

FIND_EVERY_NS = 5_000_000_000
PROCESSES_EVERY_NS = 1_000_000_000
LONGEST_NS = 3_000_000_000  # an interval that a pause made longer is no interval
UUID_KINDS = ("GPU", "MIG")
LEAST_NS = 100_000_000
METRICS = ("NVML_GPM_METRIC_SM_UTIL", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", "NVML_GPM_METRIC_DRAM_BW_UTIL")
LOST = ("NVML_ERROR_UNINITIALIZED", "NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")
GpmShares = tuple[float | None, float | None, float | None]  # of SMs, tensor cores, memory channels at work
NO_SHARES: GpmShares = (None, None, None)

# Bits of the reasons for a lowered clock; the remaining ones (idle, chosen clocks) slow nobody down.
THROTTLING = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksEventReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "software thermal slowdown",
    "nvmlClocksEventReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "power brake",
}


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
        return _whole(self.ask(name, *args))

    def number(self, name: str) -> int:
        """A constant of the library; -1 where it has none, which no function accepts."""
        found = getattr(self.module, name, None)
        return found if isinstance(found, int) else -1


class Gpm:
    """GPM, the counters of Hopper and later, over the time between two samples 100 ms apart or more.

    Elsewhere, under MIG, or without the right to read them: no figure.
    """

    def __init__(self, calls: NvmlCalls, handle: object) -> None:
        self._calls, self._handle = calls, handle
        support = calls.ask("nvmlGpmQueryDeviceSupport", handle)
        supported = bool(getattr(support, "isSupportedDevice", False))
        self._buffers = [calls.ask("nvmlGpmSampleAlloc") for _ in range(2)] if supported else []
        self._taken_ns: int | None = None  # when the first buffer was filled

    def read(self, now_ns: int) -> GpmShares:
        """Shares since the previous call; none if that was too recent or too long ago."""
        early = self._taken_ns is not None and now_ns - self._taken_ns < LEAST_NS
        if not self._buffers or None in self._buffers or early:
            return NO_SHARES
        before, buffer = self._buffers
        filled = self._calls.ask("nvmlGpmSampleGet", self._handle, buffer) is not None
        taken_ns, self._taken_ns = self._taken_ns, now_ns if filled else None
        self._buffers.reverse()
        if not filled or taken_ns is None or now_ns - taken_ns > LONGEST_NS:
            return NO_SHARES
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
            return NO_SHARES
        sm, tensor, dram = (_share(metric.value) if metric.nvmlReturn == 0 else None for metric in wanted)
        return sm, tensor, dram


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    handle: object
    name: str | None
    max_mhz: int | None
    gpm: Gpm


@dataclass(frozen=True, slots=True, kw_only=True)
class _Users:
    """Processes that compute on the device; None: the driver's pids say nothing here."""

    others: int | None = None
    job_bytes: int | None = None


class NvmlDevice:
    """Samples the GPU of one process: the one it names, else the one that lists it, else the only one.

    Args:
        pid: The process, as it is known here.
        uses_gpu: Whether the job is known to use a GPU, asked where the driver's pids do not say.
        load: Gives the initialised library, on the thread that samples.
        proc: Where `/proc` lies.
        clock_ns: A monotonic clock.
        named: UUIDs of the devices that the job uses, as far as it has told them, the first of them first.

    Attributes:
        gone: There is no driver, or no longer: nothing will ever come.
    """

    name = "nvml"

    def __init__(
        self,
        pid: int,
        uses_gpu: Callable[[], bool],
        load: Callable[[], ModuleType | None] = load_nvml,
        proc: Path = procfs.PROC,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        *,
        named: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.gone = False
        self._named = named
        self._pid, self._uses_gpu, self._load = pid, uses_gpu, load
        self._proc, self._clock_ns = proc, clock_ns
        self._host_pids = namespace("self", "pid", proc) == FIRST_PIDS  # those that NVML tells
        self._calls: NvmlCalls | None = None
        self._found: _Found | None = None
        self._find_at_ns: int | None = None
        self._users = _Users()
        self._users_at_ns: int | None = None

    def sample(self) -> GpuSample | None:
        calls, now_ns = self._ready(), self._clock_ns()
        if calls is None:
            return None
        if self._found is None:
            self._find(calls, now_ns)
        found = self._found
        if found is None:
            return None
        handle = found.handle
        if self._users_at_ns is None or now_ns - self._users_at_ns >= PROCESSES_EVERY_NS:
            self._users_at_ns, self._users = now_ns, self._look_at_users(calls, handle)
        memory = calls.ask("nvmlDeviceGetMemoryInfo", handle)
        sm_active, tensor_active, dram_active = found.gpm.read(now_ns)
        power_mw = calls.whole("nvmlDeviceGetPowerUsage", handle)
        sample = GpuSample(
            t_ns=now_ns,
            name=found.name,
            gpu_util_share=_share(getattr(calls.ask("nvmlDeviceGetUtilizationRates", handle), "gpu", None)),
            sm_active_share=sm_active,
            tensor_active_share=tensor_active,
            dram_active_share=dram_active,
            memory_used_bytes=_whole(getattr(memory, "used", None)),
            memory_total_bytes=_whole(getattr(memory, "total", None)),
            job_memory_bytes=self._users.job_bytes,
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=_temperature(calls, handle),
            sm_clock_mhz=calls.whole("nvmlDeviceGetClockInfo", handle, calls.number("NVML_CLOCK_SM")),
            sm_clock_max_mhz=found.max_mhz,
            throttled_by=_throttled_by(calls, handle),
            other_processes=self._users.others,
        )
        if calls.lost:  # in the middle of it: half a sample is none
            self.gone = True
            return None
        return sample

    def close(self) -> None:
        """Let go of the driver, on the thread that samples."""
        self.gone = True
        if self._found is not None:
            self._found.gpm.close()
        if self._calls is not None:
            self._calls.ask("nvmlShutdown")

    def _ready(self) -> NvmlCalls | None:
        if self._calls is None and not self.gone:
            module = self._load()
            self._calls = None if module is None else NvmlCalls(module)
            self.gone = module is None
        return None if self.gone else self._calls

    def _find(self, calls: NvmlCalls, now_ns: int) -> None:
        if self._find_at_ns is not None and now_ns < self._find_at_ns:
            return
        self._find_at_ns = now_ns + FIND_EVERY_NS
        handle = self._choose(calls)
        if handle is None:
            return
        name = calls.ask("nvmlDeviceGetName", handle)
        self._found = _Found(
            handle=handle,
            name=name if isinstance(name, str) else None,
            max_mhz=calls.whole("nvmlDeviceGetMaxClockInfo", handle, calls.number("NVML_CLOCK_SM")),
            gpm=Gpm(calls, handle),
        )

    def _choose(self, calls: NvmlCalls) -> object:
        """The first that the job names; else of several devices of the job the one with most of its memory.

        A container has pids of its own, in which the driver's lists say nothing.
        """
        for uuid in self._named():
            for kind in UUID_KINDS:
                handle = calls.ask("nvmlDeviceGetHandleByUUID", f"{kind}-{uuid}")
                if handle is not None:
                    return handle
        count = calls.whole("nvmlDeviceGetCount") or 0
        handles = [calls.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        known = [handle for handle in handles if handle is not None]
        if self._host_pids:
            listed = [(handle, _processes(calls, handle)) for handle in known]
            used = [
                (users[self._pid] or 0, handle)
                for handle, users in listed
                if users is not None and self._pid in users
            ]
            if used:
                return max(used, key=lambda one: one[0])[1]
            if all(users is not None for _, users in listed):
                return None  # the driver lists every process, and the job is not among them
        return known[0] if count == 1 and known and self._uses_gpu() else None

    def _look_at_users(self, calls: NvmlCalls, handle: object) -> _Users:
        users = _processes(calls, handle) if self._host_pids else None
        if users is None or self._pid not in users:
            return _Users()
        own = {self._pid, *procfs.descendants(self._pid, self._proc)} & users.keys()
        spent = [users[pid] for pid in own]
        return _Users(
            others=len(users) - len(own),
            job_bytes=sum(size for size in spent if size is not None) if None not in spent else None,
        )


def _processes(calls: NvmlCalls, handle: object) -> dict[int, int | None] | None:
    """Pids that compute on a device, and their bytes; None where the driver does not tell."""
    listed = calls.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    return {one.pid: _whole(one.usedGpuMemory) for one in listed} if isinstance(listed, list) else None


def _temperature(calls: NvmlCalls, handle: object) -> float | None:
    sensor = calls.number("NVML_TEMPERATURE_GPU")
    found = calls.whole("nvmlDeviceGetTemperatureV", handle, sensor)
    if found is None:  # a driver or a package from before CUDA 13
        found = calls.whole("nvmlDeviceGetTemperature", handle, sensor)
    return None if found is None else float(found)


def _throttled_by(calls: NvmlCalls, handle: object) -> list[str] | None:
    bits = calls.whole("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits is None:  # the same bits under the name of older drivers
        bits = calls.whole("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None:
        return None
    return [word for name, word in THROTTLING.items() if (bit := calls.number(name)) > 0 and bits & bit]


def _share(percent: object) -> float | None:
    return percent / 100 if isinstance(percent, int | float) and 0 <= percent <= 100 else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
