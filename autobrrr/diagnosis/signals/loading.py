"""Waiting for data, and a DataLoader's workers.

Signal `loader_wait`: the part of the step spent in the DataLoader's `next`, by the loop's clock.

Signals of a DataLoader's workers: `loader_queue`, how often their queue was empty, and `loader_cpu`.

The queue is a count of states, not a clock: independent of the wait that the loop measures. A full one
excludes nothing: then the workers keep up, and a wait goes into handing batches over. `loader_cpu`, how busy
the workers keep their cores, names nothing: those that compute all the time want more of them or cheaper
samples; idle ones wait for a disk, a network, or for training.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import fed_share, step_parts
from autobrrr.diagnosis.robust_stats import median, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import STEP, Reading, abstention, weighed
from autobrrr.diagnosis.signals.machine import busy_machine

QUEUE, LOOKS = "loader_queue", "share of looks"
CPU, CORES = "loader_cpu", "share of a core"
SLEEPS_AT = 0.5  # of the time of loading


def loader_wait(measured: Measurements) -> Reading:
    """Speaks for input at half of the step, against it at a quarter.

    What is loading by the sampled stacks alone makes nothing firm: stacks are the second signal.
    """
    if measured.outside:
        return abstention("loader_wait", STEP, "nothing is measured inside the target")
    if measured.on_device:
        return abstention("loader_wait", STEP, "on a GPU the host may wait for data while the device works")
    parts = step_parts(measured)
    if parts is None or "data_wait" not in parts.phase:
        return abstention("loader_wait", STEP, "the wait for data was not measured")
    fed = fed_share(measured, parts)
    share = min(1.0, parts.phase["data_wait"] + fed)
    if parts.steps < thresholds.SAMPLED_STEPS:
        return abstention(
            "loader_wait", STEP, f"{parts.steps} of {thresholds.SAMPLED_STEPS} sampled steps", share
        )
    error = _error(measured)
    surely = 0.0 if error is None else share - fed - 2 * error
    firm = parts.steps >= thresholds.SAMPLED_STEPS_FIRM and surely >= thresholds.NAMED_AT
    note = f"{of_one(share)} of a step waits for data ({parts.steps} steps)"
    own = f", {of_one(fed)} in a generator of the script's own" if fed else ""
    return weighed("loader_wait", STEP, "input", share, note + own, firm=firm)


def _error(measured: Measurements) -> float | None:
    """Standard error of the share, by that of the mean wait."""
    sampled = measured.phases
    if sampled is None or sampled.error.data_wait is None or sampled.mean.data_wait is None:
        return None
    step_ns, wait_ns = positive(sampled.step_ns), max(0, sampled.mean.data_wait)
    # A longer wait lengthens the step as well: d(w / s) = dw * (s - w) / s^2.
    if step_ns is None:
        return None
    return abs(sampled.error.data_wait) * max(0.0, step_ns - wait_ns) / step_ns**2


def workers_keep_up(measured: Measurements) -> bool:
    """Whether the workers' queue was seen to be seldom empty."""
    reading = loader_queue(measured)
    return not reading.abstained and reading.value is not None and reading.value <= thresholds.EXCLUDED_AT


def loader_queue(measured: Measurements) -> Reading:
    """Speaks for input where the queue is empty half of the time."""
    anatomy, frames = measured.anatomy, measured.frames
    if frames is None:
        return abstention(QUEUE, LOOKS, "the queue was not looked at yet")
    share = unit_share(frames.queue_empty_share)
    if share is None:
        workers = None if anatomy is None else anatomy.loader_workers
        return abstention(QUEUE, LOOKS, "no DataLoader workers" if not workers else "the queue can't be read")
    if frames.samples < thresholds.FRAME_SAMPLES:
        return abstention(QUEUE, LOOKS, f"{frames.samples} of {thresholds.FRAME_SAMPLES} looks", share)
    firm = frames.samples >= thresholds.FRAME_SAMPLES_FIRM and share >= thresholds.NAMED_AT + 0.05
    note = f"prefetch queue empty in {of_one(share)} of {frames.samples} looks"
    return weighed(QUEUE, LOOKS, "input", share, note, firm=firm, excludes=False)


def loader_cpu(measured: Measurements) -> Reading:
    """Says how much of a core each worker uses, over the last looks at the job's children."""
    workers = None if measured.anatomy is None else positive(measured.anatomy.loader_workers)
    if workers is None:
        return abstention(CPU, CORES, "no DataLoader workers")
    busy = [positive(sample.children_cpu_share) for sample in measured.host]
    total = median([share for share in busy if share is not None])
    share = None if total is None else unit_share(total / workers)
    if share is None:
        return abstention(CPU, CORES, "the workers' CPU time was not measured")
    return Reading(
        signal=CPU,
        value=share,
        unit=CORES,
        note=f"each of {workers:.0f} workers uses {of_one(share)} of a core",
    )


def loading_sleeps(measured: Measurements) -> bool:
    """Whether loading that training waits for sleeps more than it computes, and not for want of a CPU.

    In the training process by the CPU time of the whole job, which is more than that of loading.
    """
    parts, busy = step_parts(measured), busy_machine(measured)
    wait = None if parts is None else parts.phase.get("data_wait")
    if wait is None or wait < thresholds.NAMED_AT or busy.abstained or not busy.firm:
        return False
    beside = loader_cpu(measured)
    if not beside.abstained and beside.value is not None:
        return beside.value <= SLEEPS_AT
    if measured.anatomy is None or measured.anatomy.loader_workers != 0:
        return False
    taken = median([sample.cpu_share for sample in measured.host if sample.cpu_share is not None])
    return taken is not None and taken <= SLEEPS_AT * wait
