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
LEAST_NS, LONGEST_NS = 100_000_000, 3_000_000_000  # of an interval: a pause that made it longer spoils it
UUID_KINDS = ("GPU", "MIG")
# Numbers of nvml.h, which never change.
TEMPERATURE_GPU, CLOCK_SM = 0, 1
LOST = (1, 15, 16)  # errors: uninitialised, the GPU is lost, a reset is required
SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL = 2, 5, 10  # metrics of GPM
THROTTLING = {  # bits of the reasons for a lowered clock; the others (idle, chosen clocks) slow nobody down
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
GpmShares = tuple[float | None, float | None, float | None]  # of SMs, tensor cores, memory channels at work
NO_SHARES: GpmShares = (None, None, None)


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

    def ask(self, names: str, *args: object) -> object:
        """What a function gives; None where it fails or is not there.

        Args:
            names: Of the function, with blanks between; the first that answers counts.
        """
        for name in names.split():
            function = getattr(self.module, name, None)
            if self.lost or function is None:
                continue
            try:
                found: object = function(*args)
                return found
            except Exception as error:  # noqa: BLE001 - one figure less
                self.lost = getattr(error, "value", None) in LOST
        return None

    def whole(self, names: str, *args: object) -> int | None:
        """The same for functions that give a whole number."""
        return _whole(self.ask(names, *args))

    def processes(self, handle: object) -> dict[int, int | None] | None:
        """Pids that compute on a device, and their bytes; None where the driver does not tell."""
        listed = self.ask("nvmlDeviceGetComputeRunningProcesses", handle)
        return {one.pid: _whole(one.usedGpuMemory) for one in listed} if isinstance(listed, list) else None


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
        module, asked = self._calls.module, (SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL)
        query = module.c_nvmlGpmMetricsGet_t()
        query.version = module.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics, query.sample1, query.sample2 = len(asked), before, now
        wanted = query.metrics[: len(asked)]
        for metric, number in zip(wanted, asked, strict=True):
            metric.metricId = number
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
        self._find_at_ns = self._users_at_ns = 0
        self._users: tuple[int | None, int | None] = (None, None)  # other processes; bytes of the job

    def sample(self) -> GpuSample | None:
        calls, now_ns = self._ready(), self._clock_ns()
        if calls is None:
            return None
        if self._found is None and now_ns >= self._find_at_ns:
            self._find_at_ns = now_ns + FIND_EVERY_NS
            self._found = self._find(calls)
        found = self._found
        if found is None:
            return None
        handle = found.handle
        if now_ns >= self._users_at_ns:
            self._users_at_ns, self._users = now_ns + PROCESSES_EVERY_NS, self._look_at_users(calls, handle)
        memory = calls.ask("nvmlDeviceGetMemoryInfo", handle)
        sm_active, tensor_active, dram_active = found.gpm.read(now_ns)
        power_mw = calls.whole("nvmlDeviceGetPowerUsage", handle)
        # The second name of each is that of drivers and packages from before CUDA 13, or 12.
        celsius = "nvmlDeviceGetTemperatureV nvmlDeviceGetTemperature"
        reasons = "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons"
        temperature, lowered = calls.whole(celsius, handle, TEMPERATURE_GPU), calls.whole(reasons, handle)
        sample = GpuSample(
            t_ns=now_ns,
            name=found.name,
            gpu_util_share=_share(getattr(calls.ask("nvmlDeviceGetUtilizationRates", handle), "gpu", None)),
            sm_active_share=sm_active,
            tensor_active_share=tensor_active,
            dram_active_share=dram_active,
            memory_used_bytes=_whole(getattr(memory, "used", None)),
            memory_total_bytes=_whole(getattr(memory, "total", None)),
            job_memory_bytes=self._users[1],
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=None if temperature is None else float(temperature),
            sm_clock_mhz=calls.whole("nvmlDeviceGetClockInfo", handle, CLOCK_SM),
            sm_clock_max_mhz=found.max_mhz,
            throttled_by=None
            if lowered is None
            else [THROTTLING[bit] for bit in THROTTLING if lowered & bit],
            other_processes=self._users[0],
        )
        self.gone = calls.lost
        return None if calls.lost else sample  # lost in the middle of it: half a sample is none

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

    def _find(self, calls: NvmlCalls) -> _Found | None:
        handle = self._choose(calls)
        if handle is None:
            return None
        name = calls.ask("nvmlDeviceGetName", handle)
        return _Found(
            handle=handle,
            name=None if name is None else str(name),
            max_mhz=calls.whole("nvmlDeviceGetMaxClockInfo", handle, CLOCK_SM),
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
            listed = [calls.processes(handle) for handle in known]
            used = {
                at: users[self._pid] or 0 for at, users in enumerate(listed) if users and self._pid in users
            }
            if used:
                return known[max(used, key=used.__getitem__)]
            if None not in listed:
                return None  # the driver lists every process, and the job is not among them
        return known[0] if count == 1 and known and self._uses_gpu() else None

    def _look_at_users(self, calls: NvmlCalls, handle: object) -> tuple[int | None, int | None]:
        """Other processes that compute on the device, and the job's bytes; None where pids say nothing."""
        users = calls.processes(handle) if self._host_pids else None
        if users is None or self._pid not in users:
            return None, None
        own = {self._pid, *procfs.descendants(self._pid, self._proc)} & users.keys()
        sizes = [size for pid in own if (size := users[pid]) is not None]
        return len(users) - len(own), sum(sizes) if len(sizes) == len(own) else None


def _share(percent: object) -> float | None:
    return percent / 100 if isinstance(percent, int | float) and 0 <= percent <= 100 else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
