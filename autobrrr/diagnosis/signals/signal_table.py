"""The one visible table of signals, in the order in which a verdict lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals import (
    batch_probe_signal,
    blocked_thread,
    busy_machine,
    collective_wait,
    garbage_collection,
    host_frames,
    host_lead,
    host_slack,
    host_time,
    kernel_time,
    loader_wait,
    matmul_rate,
    nvml_signal,
    op_cost,
    oversubscription,
    page_faults,
    profiler_window_signal,
    roofline_signal,
    traced_steps_signal,
    traffic,
    uneven_steps,
    worker_signals,
)

Signal = Callable[[Measurements], Reading]

SIGNALS: Mapping[str, Signal] = {
    traced_steps_signal.NAME: traced_steps_signal.traced_steps,
    batch_probe_signal.NAME: batch_probe_signal.batch_probe,
    op_cost.NAME: op_cost.op_cost,
    profiler_window_signal.NAME: profiler_window_signal.profiler_window,
    loader_wait.NAME: loader_wait.loader_wait,
    worker_signals.QUEUE: worker_signals.loader_queue,
    "loader_frames": host_frames.loader_frames,
    host_time.NAME: host_time.host_time,
    "host_frames": host_frames.host_frames,
    "phase_frames": host_frames.phase_frames,
    collective_wait.NAME: collective_wait.collective_wait,
    blocked_thread.NAME: blocked_thread.blocked_thread,
    kernel_time.NAME: kernel_time.kernel_time,
    traffic.NAME: traffic.traffic,
    matmul_rate.NAME: matmul_rate.matmul_rate,
    roofline_signal.NAME: roofline_signal.roofline,
    page_faults.NAME: page_faults.page_faults,
    garbage_collection.NAME: garbage_collection.garbage,
    worker_signals.CPU: worker_signals.loader_cpu,
    uneven_steps.NAME: uneven_steps.uneven_steps,
    host_lead.NAME: host_lead.host_lead,
    host_slack.NAME: host_slack.host_slack,
    nvml_signal.NAME: nvml_signal.nvml,
    oversubscription.NAME: oversubscription.oversubscription,
    busy_machine.NAME: busy_machine.busy_machine,
}


def read_all(measured: Measurements) -> dict[str, Reading]:
    """Every signal's reading, in the table's order."""
    return {name: signal(measured) for name, signal in SIGNALS.items()}
