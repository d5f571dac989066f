"""A step on a device at twice the batch: what limited it says how it grows, and what can't be told is not."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from autobrrr.op_replay.device_queue import StepQueue, device_ratio
from autobrrr.op_replay.device_replay import SPARE_BYTES, DeviceReplay
from autobrrr.op_replay.player import NoAnswer
from autobrrr.op_replay.step_record import RecordedStep, StepCall, StepValue, TimedStep, read
from support.agent.recorded_steps import recorded

CALLS, ISSUE_NS, GAP_NS = 100, 8_000, 2_000
HOST_NS = CALLS * (ISSUE_NS + GAP_NS)


def queue(
    device_ns: Sequence[float],
    step_ns: float,
    *,
    waits: Mapping[int, float] | None = None,
    held_ns: float = 0,
    loading_ns: float = 0,
) -> StepQueue:
    """A step of equal calls, 10 us apart, as the profiler saw it."""
    value = StepValue(0, (8,), (1,), "float32", 4, given=True, on_device=True)
    calls = [StepCall("aten::relu", (value,), [], at) for at in range(CALLS)]
    times = [("aten::relu", ISSUE_NS, 0, "other", at * (ISSUE_NS + GAP_NS)) for at in range(CALLS)]
    timed = TimedStep(HOST_NS, loading_ns, loading_ns, held_ns, times)
    return StepQueue(RecordedStep(calls, [value], []), timed, waits or {}, device_ns, int(step_ns))


@pytest.mark.parametrize(
    ("device_us", "step_us", "twice"), [(20, 2000, 2.0), (3, 1000, 1.0), (3, 600, 1.0), (8, 1000, 1.6)]
)
def test_the_longer_of_host_and_device_says_how_a_step_grows(
    device_us: float, step_us: float, twice: float
) -> None:
    step = queue([1e3 * device_us] * CALLS, 1e3 * step_us)
    assert device_ratio([step], [2e3 * device_us] * CALLS, 2.0) == pytest.approx(twice, rel=0.03)


def test_where_the_host_waits_each_step_the_queue_is_refilled_each_time() -> None:
    device = [20_000.0] * 50 + [1_000.0] * 50
    late = queue(device, 1_510_000, waits={49: 1_000})
    free = queue(device, 1_050_000)
    more = [40_000.0] * 50 + [1_000.0] * 50
    assert device_ratio([free], more, 2.0) == pytest.approx(2.05 / 1.05, rel=0.03)
    assert device_ratio([late], more, 2.0) == pytest.approx(2.51 / 1.51, rel=0.03)


def test_no_answer_where_the_replay_is_not_the_step_or_the_host_may_grow() -> None:
    with pytest.raises(NoAnswer, match="by the replay of its operators"):
        queue([20_000.0] * CALLS, 1_000_000)
    with pytest.raises(NoAnswer, match="by the replay of its operators"):
        queue([1_000.0] * CALLS, 3_000_000)
    limited_by_host = queue([3_000.0] * CALLS, HOST_NS, held_ns=HOST_NS / 4)
    with pytest.raises(NoAnswer, match="waits for Python"):
        device_ratio([limited_by_host], [6_000.0] * CALLS, 2.0)
    limited_by_device = queue([20_000.0] * CALLS, 2_000_000, held_ns=HOST_NS / 4)
    assert device_ratio([limited_by_device], [40_000.0] * CALLS, 2.0) == pytest.approx(2.0, rel=0.03)


def test_a_device_without_ample_free_memory_is_left_alone(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    recording = recorded(lambda: model(torch.ones(6, 4)).sum().backward(), [model.weight], tmp_path, 6)
    program = read(torch, recording["trace"])
    with pytest.raises(NoAnswer, match=r"4096 MiB of the GPU's memory; 4095 MiB are free"):
        DeviceReplay(torch, program, 6, ()).timed("", SPARE_BYTES - 1)
    assert not torch.cuda.is_initialized()
