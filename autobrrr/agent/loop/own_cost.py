"""What the agent costs the job, measured in the job.

In: the real hooks, called some hundred times on scratch data by the agent's thread; the boundary
work that the loop has added up, in CPU time of the training thread. Out: the payload of the event `cost`
(`records.AgentCost`).
"""

from __future__ import annotations

import time
from _thread import get_ident
from collections.abc import Callable
from types import ModuleType

from ..live_torch.job_signals import ANY
from ..live_torch.live_job import Job
from ..phases import phase_hooks
from ..phases.loader_watch import LoaderWatch, make_next
from ..phases.phase_clock import PhaseClock
from .step_hook import Hot, make_tap
from .task_runner import NEVER
from .train_loop import TrainLoop

# Calibrated warm. Between two steps nothing of ours is in a cache: there the hooks take about three
# times as long (0.4 us against 1.3 us on a step of 1.2 ms).
COLD = 3
CALLS = 20
BATCHES = 12


def calibrate(torch: ModuleType) -> tuple[int, int]:
    """Nanoseconds of what is always on in a plain step, and of all phase hooks in a sampled one."""
    hot, phases, thing = Hot(time.perf_counter_ns()), PhaseClock(), _nothing  # or an optimizer, an iterator
    hot.anchor, hot.left, phases.owner = id(thing), NEVER, get_ident()
    tap = make_tap(hot, _nothing, _nothing, _nothing)
    next_batch = make_next(_nothing, phases, LoaderWatch(Job(torch)), ANY)
    zero_grad = phase_hooks.make_zero_grad(_nothing, phases, ANY)
    backward = phase_hooks.make_backward(_nothing, phases, ANY, _nothing)
    update = phase_hooks.make_update(phases, ANY)
    # No module is called: that would run the user's own global module hooks, on this thread.
    enter, leave = phase_hooks.make_root(None, phases, torch.is_grad_enabled, ANY, _nothing)

    def bare() -> None:
        _nothing(None)
        _nothing(None)
        _nothing(None)
        _nothing(None)

    def plain() -> None:
        next_batch(thing)
        zero_grad(thing)
        tap(thing)
        _nothing(thing)

    def sampled() -> None:
        next_batch(thing)
        zero_grad(thing)
        enter(thing, (), {})
        leave()
        backward(thing)
        update(thing)

    bare_ns, plain_ns = _per_call(bare), _per_call(plain)
    phases.on = True
    return max(0, plain_ns - bare_ns), max(0, _per_call(sampled) - bare_ns)


def cost_of(loop: TrainLoop) -> dict[str, object]:
    """The payload of `cost`, once a step has ended."""
    steps, measuring = loop.hot.steps, loop.measuring
    boundary_ns = max(0, loop.boundary_ns - measuring.cpu_ns + loop.stamps.spent_ns)
    whole = loop.hot.hook_ns + (loop.bursts.cost_ns * loop.sampled_steps + boundary_ns) / steps
    return {"ns_per_step": whole, "one_off_ns": measuring.taken_ns}


def _nothing(*_: object) -> None:
    return None


def _per_call(call: Callable[[], object]) -> int:
    best = NEVER
    for _ in range(BATCHES):
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter_ns() - began)
        time.sleep(0.001)  # let training have the GIL
    return best // CALLS
