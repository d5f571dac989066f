"""A driver without a device: the constants and structures of the real package, with figures of the test.

Functions that the test does not give raise what a driver raises for something it can't do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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


FIGURES: dict[str, Callable[..., object]] = {  # of one device
    "nvmlDeviceGetName": lambda gpu: gpu.name,
    "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=gpu.util, memory=3),
    "nvmlDeviceGetMemoryInfo": lambda gpu: pynvml.c_nvmlMemory_t(
        total=gpu.total, free=gpu.total - gpu.used, used=gpu.used
    ),
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power_mw,
    # The driver is older than the newest name of this one.
    "nvmlDeviceGetTemperature": lambda gpu, sensor: {pynvml.NVML_TEMPERATURE_GPU: gpu.celsius}[sensor],
    "nvmlDeviceGetClockInfo": lambda gpu, clock: {pynvml.NVML_CLOCK_SM: gpu.mhz}[clock],
    "nvmlDeviceGetMaxClockInfo": lambda gpu, clock: {pynvml.NVML_CLOCK_SM: 1980}[clock],
    "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
    "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
        SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in gpu.processes.items()
    ],
    "nvmlGpmQueryDeviceSupport": lambda gpu: pynvml.c_nvmlGpmSupport_t(
        version=1, isSupportedDevice=gpu.gpm is not None
    ),
    "nvmlGpmSampleGet": lambda gpu, buffer: buffer,
}


class FakeNvml:
    """Stands for the module `pynvml`."""

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = gpus
        self.errors: dict[str, int] = {}  # functions that fail, with the driver's code
        self.calls: list[str] = []
        self.answers: dict[str, Callable[..., object]] = {
            **FIGURES,
            "nvmlDeviceGetCount": lambda: len(gpus),
            "nvmlDeviceGetHandleByIndex": lambda index: gpus[index],
            "nvmlDeviceGetHandleByUUID": lambda uuid: next(gpu for gpu in gpus if gpu.uuid == uuid),
            "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
            "nvmlGpmMetricsGet": self._metrics,
        }

    def __getattr__(self, name: str) -> object:
        found = getattr(pynvml, name)
        return partial(self._called, name) if name.startswith("nvml") and callable(found) else found

    def _called(self, name: str, *args: object) -> object:
        self.calls.append(name)
        if name in self.errors or name not in self.answers:
            raise pynvml.NVMLError(self.errors.get(name, pynvml.NVML_ERROR_NOT_SUPPORTED))
        return self.answers[name](*args)

    def _metrics(self, query: pynvml.c_nvmlGpmMetricsGet_t) -> object:
        assert query.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        by_id = dict(zip((2, 5, 10), self.gpus[0].gpm or (), strict=True))
        for metric in query.metrics[: query.numMetrics]:
            metric.nvmlReturn, metric.value = 0, by_id[metric.metricId]
        return query
