"""The one visible table of signals, in the order in which a verdict lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals.collectives import blocked_thread, collective_wait
from autobrrr.diagnosis.signals.device import host_lead, host_slack, nvml
from autobrrr.diagnosis.signals.dispatch import batch_probe, op_cost, profiler_window, traced_steps
from autobrrr.diagnosis.signals.kernels import kernel_time, matmul_rate, page_faults, roofline, traffic
from autobrrr.diagnosis.signals.loading import loader_cpu, loader_queue, loader_wait
from autobrrr.diagnosis.signals.machine import busy_machine, oversubscription
from autobrrr.diagnosis.signals.own_code import host_frames, host_time, loader_frames, phase_frames
from autobrrr.diagnosis.signals.steps import garbage, uneven_steps

Signal = Callable[[Measurements], Reading]

TABLE: tuple[Signal, ...] = (
    traced_steps, batch_probe, op_cost, profiler_window,
    loader_wait, loader_queue, loader_frames,
    host_time, host_frames, phase_frames,
    collective_wait, blocked_thread,
    kernel_time, traffic, matmul_rate, roofline, page_faults,
    garbage, loader_cpu, uneven_steps,
    host_lead, host_slack, nvml,
    oversubscription, busy_machine,
)  # fmt: skip
SIGNALS: Mapping[str, Signal] = {signal.__name__: signal for signal in TABLE}


def read_all(measured: Measurements) -> dict[str, Reading]:
    """Every signal's reading, in the table's order."""
    return {name: signal(measured) for name, signal in SIGNALS.items()}
