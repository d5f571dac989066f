"""Hooks go on and off thousands of times under a loop that has hooks of its own."""

from pathlib import Path

import pytest

from support.agent.agent import AgentJob

pytestmark = pytest.mark.integration

SCRIPT = """
import _thread, os, sys, time, torch
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.wire.ring_writer import StepRing
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
torch.set_num_threads(1)
sys.setswitchinterval(1e-5)  # threads change places at nearly every chance

parameter = torch.nn.Parameter(torch.ones(1))
parameter.grad = torch.ones(1)
optimizer = torch.optim.SGD([parameter], lr=0.0)
calls = [0] * 8

def hook(index):
    def called(*_):
        calls[index] += 1
        sum(range(30))  # a hook that takes a while: there is time to change the dict meanwhile
    return called

if USERS_GLOBAL_PRE:
    register_optimizer_step_pre_hook(hook(0)); register_optimizer_step_pre_hook(hook(1))
register_optimizer_step_post_hook(hook(2)); register_optimizer_step_post_hook(hook(3))
optimizer.register_step_pre_hook(hook(4)); optimizer.register_step_pre_hook(hook(5))
optimizer.register_step_post_hook(hook(6)); optimizer.register_step_post_hook(hook(7))

done = []
failed = []

def on_and_off():
    # In the agent's thread, and all the way: what `Agent` does, without the socket.
    try:
        for turn in range(TURNS):
            pages = StepRing(); pages.close_fd()
            loop = TrainLoop(torch, pages, ActiveRemedies({}), lambda event: None)
            loop.bursts.ask(2, 1, 0)
            loop.put_on(lambda: None)
            until = loop.hot.steps + turn % 17
            while loop.hot.steps < until: time.sleep(0)
            loop.close_door()
            while loop.hot.busy: time.sleep(0)
            assert loop.take_down(keep=False, at_boundary=False) == []
            assert not loop.left, loop.left
            assert loop.broken is None, loop.broken
            pages.release()
    except BaseException as error:
        failed.append(repr(error))
    finally:
        done.append(1)

hooked = torch.optim.Optimizer.__dict__["_optimizer_step_code"]
_thread.start_new_thread(on_and_off, ())
steps = 0
while not done:
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    steps += 1
assert not failed, failed
assert torch.optim.Optimizer.__dict__["_optimizer_step_code"] is hooked
expected = [steps if USERS_GLOBAL_PRE else 0] * 2 + [steps] * 6
assert calls == expected, (calls, steps)
from torch.optim import optimizer as module
assert len(module._global_optimizer_pre_hooks) == (2 if USERS_GLOBAL_PRE else 0)
assert len(os.listdir("/proc/self/fd")) < 12, os.listdir("/proc/self/fd")
print("turns", TURNS, "steps", steps)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("users_global_pre", [True, False])
def test_two_thousand_times_on_and_off_never_disturb_the_users_own_hooks(
    tmp_path: Path, users_global_pre: bool
) -> None:
    header = f"TURNS = 2000\nUSERS_GLOBAL_PRE = {users_global_pre}\n"
    with AgentJob(header + SCRIPT, tmp_path) as job:
        assert "turns 2000" in job.output()
