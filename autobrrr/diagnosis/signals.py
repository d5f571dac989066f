"""The one visible table of signals, in the order in which a verdict lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autobrrr.diagnosis import (
    batch_probe,
    blocked_thread,
    busy_machine,
    collective_wait,
    faults,
    garbage,
    host_frames,
    host_time,
    kernel_time,
    loader_cpu,
    loader_frames,
    loader_queue,
    loader_wait,
    matmul_rate,
    nvml,
    op_cost,
    oversubscription,
    profiler_window,
    roofline,
    traced,
    traffic,
    uneven_steps,
)
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.reading import Reading

Signal = Callable[[Measurements], Reading]

SIGNALS: Mapping[str, Signal] = {
    traced.NAME: traced.traced_steps,
    batch_probe.NAME: batch_probe.batch_probe,
    op_cost.NAME: op_cost.op_cost,
    profiler_window.NAME: profiler_window.profiler_window,
    loader_wait.NAME: loader_wait.loader_wait,
    loader_queue.NAME: loader_queue.loader_queue,
    loader_frames.NAME: loader_frames.loader_frames,
    host_time.NAME: host_time.host_time,
    host_frames.NAME: host_frames.host_frames,
    collective_wait.NAME: collective_wait.collective_wait,
    blocked_thread.NAME: blocked_thread.blocked_thread,
    kernel_time.NAME: kernel_time.kernel_time,
    traffic.NAME: traffic.traffic,
    matmul_rate.NAME: matmul_rate.matmul_rate,
    roofline.NAME: roofline.roofline,
    faults.NAME: faults.page_faults,
    garbage.NAME: garbage.garbage,
    loader_cpu.NAME: loader_cpu.loader_cpu,
    uneven_steps.NAME: uneven_steps.uneven_steps,
    nvml.NAME: nvml.nvml,
    oversubscription.NAME: oversubscription.oversubscription,
    busy_machine.NAME: busy_machine.busy_machine,
}


def read_all(measured: Measurements) -> dict[str, Reading]:
    """Every signal's reading, in the table's order."""
    return {name: signal(measured) for name, signal in SIGNALS.items()}
