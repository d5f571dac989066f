"""Calls of a recorded step, replayed alone at twice the batch, take what they do in a step of that batch."""

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from autobrrr.op_replay.device_replay import DeviceReplay
from autobrrr.op_replay.step_record import read
from support.agent.recorded_steps import recorded

pytestmark = [pytest.mark.usefixtures("device", "slow_device"), pytest.mark.timeout(300)]
BATCH, TURNS, STEPS = 300, 3, 2


@pytest.fixture
def slow_device() -> Iterator[None]:
    """The host is far ahead: however busy the machine is, a step takes what its kernels do."""
    library = ctypes.CDLL(None)
    library.emu_scale(ctypes.c_double(100.0))
    yield
    library.emu_scale(ctypes.c_double(1.0))
    torch.cuda.set_per_process_memory_fraction(1.0)  # a replay has a process of its own, and bounds it


def wide() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(48, 6000), nn.ReLU(), nn.Linear(6000, 6000), nn.Linear(6000, 8)
    )


def images() -> nn.Module:
    layers = (nn.Conv2d(3, 96, 3), nn.BatchNorm2d(96), nn.ReLU(), nn.Conv2d(96, 96, 3), nn.AvgPool2d(12))
    return nn.Sequential(nn.Upsample(16), *layers, nn.Flatten(), nn.Linear(96, 8))


def stepper(model: nn.Module, mixed: bool) -> Callable[[torch.Tensor], None]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16, enabled=mixed):
            loss = cross_entropy(model(x), x[:, 0, 0, 0].long())
        loss.backward()
        optimizer.step()

    return step


@pytest.mark.parametrize(("made", "mixed"), [(wide, False), (wide, True), (images, False)])
def test_a_step_at_twice_the_batch_takes_what_its_calls_do_alone(
    made: Callable[[], nn.Module], mixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda pid, number: None)  # nobody else uses the device here
    model = made().cuda()
    step = stepper(model, mixed)
    x = torch.zeros(BATCH, 3, 4, 4, device="cuda")
    recording = recorded(lambda: step(x), list(model.parameters()), tmp_path, BATCH)
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    replay = DeviceReplay(torch, read(torch, recording["trace"]), BATCH, ())
    monkeypatch.setattr("autobrrr.op_replay.device_replay.SLICE_NS", 20_000_000_000)
    found = replay.timed(uuid, 40 << 30)
    assert found["failed"] == {}
    for size, data in ((BATCH, x), (2 * BATCH, torch.cat([x, x]))):
        least_ns = float("inf")
        for _ in range(TURNS):
            torch.cuda.synchronize()
            began_ns = time.perf_counter_ns()
            for _ in range(STEPS):
                step(data)
            torch.cuda.synchronize()
            least_ns = min(least_ns, (time.perf_counter_ns() - began_ns) / STEPS)
        assert min(map(sum, found["times"][size])) == pytest.approx(least_ns, rel=0.05)
