"""A driver without a device: the constants and structures of the real package, with figures of the test.

Functions that the test does not give raise what a driver raises for something it can't do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml

GIB = 1 << 30


@dataclass
class Gpu:
    """One device, as the driver would tell of it."""

    uuid: str = ""
    name: str = "NVIDIA H100 80GB HBM3"
    util: int = 97
    used: int = 12 * GIB
    total: int = 80 * GIB
    power_mw: int = 310_000
    celsius: int = 61
    mhz: int = 1755
    reasons: int = 0
    processes: dict[int, int | None] = field(default_factory=dict)
    gpm: tuple[float, float, float] | None = (41.0, 5.5, 30.0)


class FakeNvml:
    """Stands for the module `pynvml`."""

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = gpus
        self.missing: set[str] = set()  # functions that this package does not have
        self.errors: dict[str, int] = {}  # functions that fail, with the driver's code
        self.calls: list[str] = []
        self.buffers = 0

    def __getattr__(self, name: str) -> object:
        if name in self.__dict__.get("missing", ()):
            raise AttributeError(name)
        function = getattr(type(self), f"_{name}", None)
        if function is not None:
            return self._called(name, function)
        found = getattr(pynvml, name)
        if name.startswith("nvml") and callable(found):
            return self._called(name, _not_supported)
        return found

    def _called(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            self.calls.append(name)
            if name in self.errors:
                raise pynvml.NVMLError(self.errors[name])
            return function(self, *args)

        return call

    def _nvmlInit(self) -> None:
        pass

    def _nvmlShutdown(self) -> int:
        return 0

    def _nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self.gpus[index]

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _nvmlDeviceGetName(self, gpu: Gpu) -> str:
        return gpu.name

    def _nvmlDeviceGetUtilizationRates(self, gpu: Gpu) -> SimpleNamespace:
        return SimpleNamespace(gpu=gpu.util, memory=3)

    def _nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> object:
        return pynvml.c_nvmlMemory_t(total=gpu.total, free=gpu.total - gpu.used, used=gpu.used)

    def _nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:
        return gpu.power_mw

    def _nvmlDeviceGetTemperatureV(self, gpu: Gpu, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return gpu.celsius

    def _nvmlDeviceGetTemperature(self, gpu: Gpu, sensor: int) -> int:
        return gpu.celsius

    def _nvmlDeviceGetClockInfo(self, gpu: Gpu, clock: int) -> int:
        assert clock == pynvml.NVML_CLOCK_SM
        return gpu.mhz

    def _nvmlDeviceGetMaxClockInfo(self, gpu: Gpu, clock: int) -> int:
        return 1980

    def _nvmlDeviceGetCurrentClocksEventReasons(self, gpu: Gpu) -> int:
        return gpu.reasons

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: Gpu) -> int:
        return gpu.reasons

    def _nvmlDeviceGetComputeRunningProcesses(self, gpu: Gpu) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in gpu.processes.items()]

    def _nvmlGpmQueryDeviceSupport(self, gpu: Gpu) -> object:
        return pynvml.c_nvmlGpmSupport_t(version=1, isSupportedDevice=gpu.gpm is not None)

    def _nvmlGpmSampleAlloc(self) -> object:
        self.buffers += 1
        return pynvml.c_nvmlGpmSample_t()

    def _nvmlGpmSampleFree(self, buffer: object) -> None:
        self.buffers -= 1

    def _nvmlGpmSampleGet(self, gpu: Gpu, buffer: object) -> object:
        return buffer

    def _nvmlGpmMetricsGet(self, query: pynvml.c_nvmlGpmMetricsGet_t) -> object:
        assert query.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        by_id = dict(zip((2, 5, 10), self.gpus[0].gpm or (), strict=True))
        for metric in query.metrics[: query.numMetrics]:
            metric.nvmlReturn, metric.value = 0, by_id[metric.metricId]
        return query


def _not_supported(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
