"""A preloaded agent: applies the recipe, listens, outlives its sessions, tells the outcome."""

import json
import os
from pathlib import Path

import pytest

from support.agent.agent import AgentJob, Peer

pytestmark = pytest.mark.integration

SCRIPT = """
import os, sys, time, torch
from support.agent import agent_job
from support.updates import Seen
seen, other_seen = Seen(torch.optim.AdamW), Seen(torch.optim.SGD)
outcome = os.environ["AGENT_LISTEN"] + ".outcome"
listen = os.environ["AGENT_LISTEN"]
ended = agent_job.begin(link=None, listen=listen, method="preload", outcome=outcome, plan=PLAN)
while not os.path.exists(listen): time.sleep(0.01)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
other = torch.nn.Linear(2, 2)
first = torch.optim.AdamW(model.parameters()); second = torch.optim.SGD(other.parameters(), lr=0.1)
def step():
    first.zero_grad(); second.zero_grad()
    other(model(torch.randn(4, 8))).sum().backward()
    first.step(); second.step()
step()
step()
on = [seen.last, other_seen.last, first.param_groups[0]["foreach"]]
print("after two steps", torch.get_num_threads(), *on, flush=True)
while not agent_job.told(): step()
hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
print("at the end", seen.last, len(hooks))
"""
PLAN = {
    "remedies": [
        {"name": "threads.intra_op", "options": {"threads": 2}},
        {"name": "optimizer.foreach", "options": {}},
        {"name": "no.such", "options": {}},
    ]
}


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "listen.sock.outcome").read_text().splitlines()]


def test_the_recipe_is_on_from_the_first_step_stays_while_sessions_come_and_go_and_is_told(
    tmp_path: Path,
) -> None:
    with AgentJob(f"PLAN = {PLAN!r}\n" + SCRIPT, tmp_path) as job:
        for turn in range(4):
            peer = Peer.connect(str(tmp_path / "listen.sock"))
            assert os.stat(tmp_path / "listen.sock").st_mode & 0o777 == 0o600
            peer.wait_steps(20)
            active = peer.ask("facts")["active"]
            assert {applied["remedy"]: (applied["class"], applied["reach"]) for applied in active} == {
                "threads.intra_op": ("rounding", "live"),
                "optimizer.foreach": ("bitwise", "live"),
            }
            gc = peer.ask("apply", remedy="gc.freeze")
            assert gc["ok"], gc
            planned = {applied["remedy"]: applied["planned"] for applied in peer.ask("facts")["active"]}
            assert planned == {"threads.intra_op": True, "optimizer.foreach": True, "gc.freeze": False}
            if turn % 2:
                assert peer.ask("detach", keep=False)["left"] == []
            peer.close()
        job.tell()
        out = job.output()
    assert "after two steps 2 foreach foreach True" in out
    assert "at the end foreach 0" in out
    told = [line for line in lines(tmp_path) if "remedy" in line]
    assert {line["remedy"] for line in told if line["status"] == "applied"} == {
        "threads.intra_op",
        "optimizer.foreach",
    }
    assert [line["remedy"] for line in told if line["status"] == "refused"] == ["no.such"]
    last = lines(tmp_path)[-1]
    assert last["steps"] > 40
    assert last["step_ns"]["mean"] > 0


def test_without_a_plan_nothing_is_touched_until_somebody_connects(tmp_path: Path) -> None:
    script = SCRIPT.replace("PLAN)", "None)") + (
        "step_code = torch.optim.Optimizer.__dict__['_optimizer_step_code']\n"
        "assert step_code.__module__ == 'torch.optim.optimizer'\n"
    )
    with AgentJob(script, tmp_path) as job:
        job.tell()
        job.output()
    assert not (tmp_path / "listen.sock.outcome").exists()
