"""For whom the device waits: the host, nobody, or one here and another there."""

from pathlib import Path

import msgspec
import pytest

from autobrrr.agent.loop.device_stamps import STAMP_EACH, STAMP_SOME
from autobrrr.agent.measure.host_holds import HOLDS
from autobrrr.diagnosis.signals.device import Awaited, awaited, idle_by_place
from autobrrr.records import HostSlack
from support.agent.agent import AgentJob

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.timeout(120)]

JOB = """
import ctypes, hashlib, torch
from support.agent import agent_job
from torch import nn
torch.set_num_threads(1)
emulated = ctypes.CDLL(None)
emulated.emu_scale.argtypes = [ctypes.c_double]
emulated.emu_scale({scale})
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(12)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
scaler = torch.amp.GradScaler("cuda", enabled={scaled})
data = torch.randn(64, 256, device="cuda")
def step():
    optimizer.zero_grad()
    loss = model(data).square().mean()
    {read}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
for _ in range(10): step()
ended = agent_job.begin()
while ended.locked(): step()
agent_job.wait_ended(ended)
torch.cuda.synchronize()
"""
WORK = 400  # times as long as the host takes to launch it


@pytest.mark.parametrize(
    ("job_of", "who", "busy"),
    [
        ({"scale": 1, "scaled": False, "read": ""}, Awaited.HOST, ()),
        ({"scale": 1, "scaled": True, "read": "loss.item()"}, Awaited.HOST, ()),
        ({"scale": WORK, "scaled": False, "read": ""}, Awaited.NOBODY, ("step", "backward")),
        # Just read: nothing is queued yet.
        ({"scale": WORK, "scaled": False, "read": "loss.item()"}, None, ("step",)),
    ],
    ids=["launches", "launches, both ends read", "kernels", "kernels, the loss read"],
)
def test_for_whom_the_device_waits(
    job_of: dict[str, object], who: Awaited | None, busy: tuple[str, ...], tmp_path: Path
) -> None:
    with AgentJob(JOB.format(**job_of), tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(30)
        assert peer.ask("stamp", **STAMP_EACH)["ok"]
        for _ in range(3):  # who else takes the cores meanwhile may keep host or device from its work
            assert peer.ask("slack")["ok"]
            told = msgspec.convert(peer.event("slack")["slack"], HostSlack)
            assert (told.status, told.why, len(told.holds)) == ("ok", None, len(HOLDS))
            idle = idle_by_place(told.holds)
            found = awaited(told), tuple(place for place, share in idle.items() if share < 0.5)
            if found == (who, busy):
                break
        assert peer.ask("stamp", **STAMP_SOME)["ok"]
        assert found == (who, busy), idle
        assert peer.ask("detach", keep=False)["left"] == []
        job.output()


def test_a_job_whose_stamps_nobody_asked_for_is_not_held_up_for_ever(tmp_path: Path) -> None:
    cpu = JOB.format(scale=1, scaled=False, read="").replace(".cuda()", "").replace('device="cuda"', "")
    with AgentJob(cpu.replace('torch.amp.GradScaler("cuda"', 'torch.amp.GradScaler("cpu"'), tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(30)
        assert peer.ask("slack")["ok"]
        told = msgspec.convert(peer.event("slack")["slack"], HostSlack)
        assert (told.status, told.why) == ("abstained", "the parameters are on the CPU")
        peer.ask("detach", keep=False)
        job.output()
