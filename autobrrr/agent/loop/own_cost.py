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


def calibrate_hook() -> int:
    """Nanoseconds of what is always on in a plain step: the tap and the wrappers that pass through."""
    hot = Hot(time.perf_counter_ns())
    thing = _Thing()
    hot.anchor, hot.left = id(thing), NEVER
    tap = make_tap(hot, _nothing, _nothing, _nothing)
    _, zero_grad, next_batch = _wrappers(PhaseClock())

    def step() -> None:
        next_batch(thing)
        zero_grad(thing)
        tap(thing)
        _nothing(thing)

    return max(0, _per_call(step) - _per_call(_four_calls))


def calibrate_phase_hooks(torch: ModuleType) -> int:
    """Nanoseconds of all phase hooks in one sampled step with one of each."""
    phases = PhaseClock()
    phases.on = True
    backward, zero_grad, next_batch = _wrappers(phases)
    update = phase_hooks.make_update(phases, ANY)
    # No module is called: that would run the user's own global module hooks, on this thread.
    enter, leave = phase_hooks.make_root(None, phases, torch.is_grad_enabled, ANY, _nothing)
    thing = _Thing()

    def step() -> None:
        next_batch(thing)
        zero_grad(thing)
        enter(thing, (), {})
        leave()
        backward(thing)
        update(thing)

    return max(0, _per_call(step) - _per_call(_four_calls))


def _wrappers(phases: PhaseClock) -> tuple[Callable[..., object], ...]:
    phases.owner = get_ident()
    return (
        phase_hooks.make_backward(_nothing, phases, ANY, _nothing),
        phase_hooks.make_zero_grad(_nothing, phases, ANY),
        make_next(_nothing, phases, LoaderWatch(), ANY),
    )


def _four_calls() -> None:
    _nothing(None)
    _nothing(None)
    _nothing(None)
    _nothing(None)


def cost_of(loop: TrainLoop) -> dict[str, object]:
    """The payload of `cost`."""
    steps, measuring = loop.hot.steps, loop.measuring
    whole = None
    if steps:
        boundary_ns = max(0, loop.boundary_ns - measuring.cpu_ns + loop.stamps.spent_ns)
        whole = loop.hot.hook_ns + (loop.bursts.cost_ns * loop.sampled_steps + boundary_ns) / steps
    return {"ns_per_step": whole, "one_off_ns": measuring.taken_ns}


class _Thing:
    """Stands for an optimizer or a loader iterator."""


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
