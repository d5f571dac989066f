"""The GPU as its driver shows it: which one is the job's, what can't be read, and nobody is kept waiting."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pynvml
import pytest

from autobrrr.diagnosis.signals import device as signal
from autobrrr.machine.device_poller import Poller
from autobrrr.machine.nvml import NvmlDevice, load_nvml
from autobrrr.machine.own_place import FIRST_PIDS
from autobrrr.records import GpuSample
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog
from support.judged import diagnosis
from support.machines.devices import AbsentDevice, ReplayedDevice
from support.machines.nvml import GIB, FakeNvml, Gpu

PID, MS = 4242, 1_000_000


class Bench:
    """A device on a fake driver, a clock that the test turns, a `/proc` in or out of a container."""

    def __init__(self, folder: Path, *gpus: Gpu, container: bool = False, uses_gpu: bool = True) -> None:
        self.now_ns = 0
        self.nvml = FakeNvml(*gpus)
        namespace = folder / "self" / "ns"
        namespace.mkdir(parents=True)
        (namespace / "pid").symlink_to("pid:[4026532999]" if container else FIRST_PIDS)
        self.proc = folder
        self.uses_gpu = uses_gpu
        self.named: list[str] = []
        self.device = NvmlDevice(
            PID,
            lambda: self.uses_gpu,
            lambda: self.nvml,
            folder,
            lambda: self.now_ns,
            named=lambda: self.named,
        )

    def sample(self, after_ms: int = 200) -> GpuSample | None:
        self.now_ns += after_ms * MS
        return self.device.sample()

    def figures(self, after_ms: int = 200) -> GpuSample:
        found = self.sample(after_ms)
        assert found is not None
        return found


def busy(**figures: object) -> Gpu:
    return Gpu(processes={PID: 10 * GIB}, **figures)


def test_a_sample_carries_what_the_driver_tells(tmp_path: Path) -> None:
    bench = Bench(tmp_path, busy())
    bench.sample()
    found = bench.figures()
    assert found == GpuSample(
        t_ns=400 * MS,
        name="NVIDIA H100 80GB HBM3",
        gpu_util_share=0.97,
        sm_active_share=0.41,
        tensor_active_share=0.055,
        dram_active_share=0.3,
        memory_used_bytes=12 * GIB,
        memory_total_bytes=80 * GIB,
        job_memory_bytes=10 * GIB,
        power_w=310.0,
        temperature_c=61.0,
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        throttled_by=[],
        other_processes=0,
    )


def test_counters_need_two_samples_that_lie_100_ms_apart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, busy())
    first, early, late, after_pause = (bench.figures(ms) for ms in (200, 50, 60, 60_000))
    assert [one.sm_active_share for one in (first, early, late, after_pause)] == [None, None, 0.41, None]
    assert bench.figures().sm_active_share == 0.41


def test_a_job_that_no_gpu_lists_has_none_until_one_does(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Gpu(processes={7: GIB}))
    assert bench.sample() is None
    bench.nvml.gpus[0].processes[PID] = GIB
    assert bench.sample() is None  # it is looked for every few seconds only
    assert bench.sample(after_ms=5000) is not None


@pytest.mark.parametrize(("uses_gpu", "gpus"), [(True, 1), (False, 1), (True, 2)])
def test_where_pids_are_others_the_only_gpu_is_the_jobs(tmp_path: Path, uses_gpu: bool, gpus: int) -> None:
    # The pid of the job is listed, but in a container it may be anybody's.
    bench = Bench(tmp_path, *[busy() for _ in range(gpus)], container=True, uses_gpu=uses_gpu)
    found = bench.sample()
    assert (found is not None) == (uses_gpu and gpus == 1)
    if found is not None:
        assert (found.other_processes, found.job_memory_bytes) == (None, None)
        assert found.gpu_util_share == 0.97


@pytest.mark.parametrize("container", [False, True])
@pytest.mark.parametrize("kind", ["GPU", "MIG"])
def test_a_device_that_the_job_names_is_found_wherever_it_runs(
    tmp_path: Path, container: bool, kind: str
) -> None:
    gpus = [Gpu(uuid=f"{kind}-{number}", name=f"gpu {number}") for number in range(4)]
    bench = Bench(tmp_path, *gpus, container=container)
    assert bench.sample() is None
    bench.named = ["9", "2", "1"]  # a device that this driver does not have is passed over
    assert bench.figures(after_ms=5000).name == "gpu 2"


def test_throttling_is_told_in_words_and_an_idle_clock_is_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, busy(reasons=pynvml.nvmlClocksEventReasonGpuIdle))
    assert bench.figures().throttled_by == []
    bench.nvml.gpus[0].reasons = (
        pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    )
    assert bench.figures().throttled_by == ["power cap", "hardware thermal slowdown"]


def test_a_device_that_falls_off_the_bus_is_gone_for_good(tmp_path: Path) -> None:
    bench = Bench(tmp_path, busy())
    bench.sample()
    bench.nvml.errors = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_GPU_IS_LOST}
    assert bench.sample() is None
    assert bench.device.gone
    asked = len(bench.nvml.calls)
    assert bench.sample() is None
    assert len(bench.nvml.calls) == asked


def test_an_absent_driver_is_no_figure_and_no_error(tmp_path: Path) -> None:
    device = NvmlDevice(PID, lambda: True, lambda: None, tmp_path)
    assert device.sample() is None
    assert device.gone


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a driver")
def test_the_real_package_without_a_driver_is_absent() -> None:
    assert load_nvml() is None


def polled(*loads: float) -> Poller:
    samples = [GpuSample(t_ns=i, gpu_util_share=load) for i, load in enumerate(loads)]
    return Poller(ReplayedDevice(samples), lambda: False, clock_ns=lambda: 0)


def test_a_poller_keeps_the_last_ten_seconds() -> None:
    now_ns = [0]
    recorded = (GpuSample(t_ns=i) for i in range(100))
    poller = Poller(ReplayedDevice(recorded), lambda: False, clock_ns=lambda: now_ns[0])
    for second in range(30):
        now_ns[0] = second * 1000 * MS
        poller.look()
    assert [sample.t_ns for sample in poller.samples()] == list(range(19, 30))
    now_ns[0] += 20_000 * MS
    assert poller.samples() == ()


class Stalling(AbsentDevice):
    """A driver that answers when the test lets it."""

    def __init__(self) -> None:
        self.gone = False
        self.asked, self.let = threading.Event(), threading.Event()

    def sample(self) -> None:
        self.asked.set()
        self.let.wait(30)
        self.gone = True


def test_a_call_that_stalls_keeps_nobody_waiting() -> None:
    device = Stalling()
    poller: Poller = Poller(device, lambda: False)
    poller.start()
    assert device.asked.wait(30)
    assert poller.samples() == ()
    device.let.set()
    poller.close()


def test_a_session_shows_what_its_poller_saw_and_the_judge_reads_it(tmp_path: Path) -> None:
    session = Session(
        1, SessionOptions(), device=AbsentDevice(), journal=SessionLog(tmp_path / "s"), alive=lambda: True
    )
    assert session.snapshot().device is None
    session.findings.gpu = poller = polled(0.4)
    poller.look()
    shown = session.snapshot().device
    assert shown["gpu_util_share"] == 0.4
    assert signal.nvml(session.findings.measurements(0)).value == 0.4


def test_the_signal_says_what_disturbs_the_device_and_names_nothing() -> None:
    poller = polled(0.9, 0.9, 0.99)
    for _ in range(3):
        poller.look()
    held = [
        GpuSample(t_ns=t, throttled_by=["power cap"], sm_clock_mhz=1200, sm_clock_max_mhz=1980)
        for t in (4, 5)
    ]
    shared = GpuSample(t_ns=6, sm_active_share=0.2, other_processes=2, throttled_by=["power brake"])
    found = signal.nvml(diagnosis.replaced(diagnosis.tiny_mlp(), gpu=(*poller.samples(), *held, shared)))
    assert found.value == 0.9
    assert (found.says, found.against, found.firm) == (None, (), False)
    assert "GPU-Util 90 %, which says only that some kernel ran" in found.note
    assert "20 % SMs at work" in found.note
    assert "its clock is held down (power cap in 33 % of the looks)" in found.note
    assert "power brake" not in found.note
    assert "2 other processes compute on it" in found.note
