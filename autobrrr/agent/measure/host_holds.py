"""Host slack: whether a step on a device gets longer where the host is held up on purpose.

In: step boundaries, the stamps of the device. In every other of a few steps the training thread is kept busy
for a twentieth of a step: between two steps, or before the backward. Out: the event `slack`
(`records.HostSlack`): for each hold how long the device had nothing to do meanwhile, by events around it,
and what the step took beside its neighbours. Nothing is computed, so nothing of training changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns

from ..live_torch.graph_capture import capturing
from ..live_torch.parameter_device import TimedEvent
from ..live_torch.torch_types import Abstain, Device
from ..loop.device_stamps import MS_NS
from ..loop.task_runner import Boundary
from ..loop.train_loop import Emit, TrainLoop
from ..wire import ring_layout

SHARE = 20  # a hold is a step over this
LEAST_NS, MOST_NS = 20_000, 4_000_000  # Python's threads take turns every 5 ms: nobody waits longer for us
STEP, BACKWARD = "step", "backward"
HOLDS = (*[STEP] * 4, *[BACKWARD] * 4)  # what a wait for data absorbs later would shorten a neighbour
MOST_TRIES = 3  # times the steps that it takes
AWAIT_STEPS, AWAIT_NS = 4, 10_000_000_000  # until the device has come to the last of them
ORDINARY = (ring_layout.TRACED, ring_layout.PHASES | ring_layout.TRACED)


@dataclass(slots=True)
class HeldStep:
    """One step in which the host was held up, and the steps beside it."""

    place: str
    seq: int
    before: TimedEvent | None = None
    after: TimedEvent | None = None
    held_ns: int = 0


class HostSlackTask:
    """One plain step and one with a hold, in turn."""

    name, event = "host slack", "slack"
    pending = resumable = False

    def __init__(self, loop: TrainLoop, emit: Emit, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._loop, self._emit, self._clock = loop, emit, clock
        self._device: Device | None = None
        self._hold_ns = 0
        self._left = list(HOLDS)
        self._running: HeldStep | None = None  # of the step that has begun
        self._plain: list[int] = []  # steps without a hold
        self._done: list[HeldStep] = []
        self._tries = 0
        self._awaited, self._until_ns = 0, 0

    def at_boundary(self, boundary: Boundary) -> bool:
        """One step further."""
        self._loop.hooks.before_backward = None
        if self._device is None:
            self._begin()
        if capturing(self._loop.torch):
            raise Abstain("the job captures a CUDA graph")
        if self._left or self._running is not None:
            self._take(boundary)
        if self._left:
            self._tries += 1
            if self._tries > MOST_TRIES * 2 * len(HOLDS):
                raise Abstain("no ordinary steps: all had an evaluation, a skipped update or a change")
            self._next(boundary)
            return True
        return self._finish(boundary)

    def cancel(self) -> None:
        """Hold nothing up any more."""
        self._loop.hooks.before_backward = None
        self._loop.stamps.kept = None
        self._running = None

    def _begin(self) -> None:
        loop = self._loop
        device = self._device = loop.stamps.device
        if device is None or loop.stamps.fault is not None:
            raise Abstain(loop.stamps.fault or "the parameters are on the CPU")
        if device.type != "cuda":
            raise Abstain(f"torch has no events with a time for {device.type}")
        self._hold_ns = min(MOST_NS, max(LEAST_NS, loop.step_ns // SHARE))
        loop.stamps.kept = {}

    def _take(self, boundary: Boundary) -> None:
        """What the step that has ended was; one that was none of the ordinary is tried again."""
        hold, self._running = self._running, None
        seq = boundary.seq - 1
        if boundary.last_flags not in ORDINARY:
            if hold is not None:
                self._left.insert(0, hold.place)
            self._plain = [] if hold is None else self._plain
            return
        if hold is None:
            self._plain.append(seq)
        elif hold.after is None:  # no backward came by: only what lies between two steps can be held up
            self._left = [place for place in self._left if place != hold.place]
        else:
            self._done.append(hold)

    def _next(self, boundary: Boundary) -> None:
        boundary.mark |= ring_layout.TRACED
        boundary.sample = True  # its hooks are the door before the backward; all steps are equal
        seq = boundary.seq
        if seq - 1 not in self._plain:
            return
        hold = self._running = HeldStep(place=self._left.pop(0), seq=seq)
        if hold.place == STEP:
            boundary.begun = lambda: self._between_steps(hold)
        else:
            self._loop.hooks.before_backward = lambda: self._keep_busy(hold)

    def _between_steps(self, hold: HeldStep) -> None:
        """Work of ours between two steps, which the loop would count as what is always on."""
        began, cpu = self._clock(), thread_time_ns()
        self._keep_busy(hold)
        measuring = self._loop.measuring
        measuring.spent_ns += self._clock() - began
        measuring.cpu_ns += thread_time_ns() - cpu

    def _keep_busy(self, hold: HeldStep) -> None:
        self._loop.hooks.before_backward = None
        if capturing(self._loop.torch):
            return
        cuda = self._loop.torch.cuda
        stream = cuda.current_stream(self._device)
        before, after = (cuda.Event(enable_timing=True) for _ in range(2))
        before.record(stream)
        began = self._clock()
        while (held := self._clock() - began) < self._hold_ns:
            pass
        after.record(stream)
        hold.before, hold.after, hold.held_ns = before, after, held

    def _finish(self, boundary: Boundary) -> bool:
        """Wait, without holding anything up, until the device has come to the last of these steps."""
        kept = self._loop.stamps.kept or {}
        wanted = {hold.seq for hold in self._done} | {
            hold.seq + way for hold in self._done for way in (-1, 1)
        }
        if not self._done:
            raise Abstain("no step could be held up")
        if not wanted <= kept.keys():
            if not self._awaited:  # the last one's neighbour
                boundary.mark, boundary.sample = boundary.mark | ring_layout.TRACED, True
                self._until_ns = self._clock() + AWAIT_NS
            self._awaited += 1
            if self._awaited > AWAIT_STEPS and self._clock() > self._until_ns:
                raise Abstain("the device stamped too few of the steps")
            return True
        holds = [told for hold in self._done if (told := _told(hold, kept)) is not None]
        self.cancel()
        self._emit({"event": "slack", "slack": {"status": "ok", "hold_ns": self._hold_ns, "holds": holds}})
        return False


def _told(hold: HeldStep, stamped: dict[int, int]) -> dict[str, object] | None:
    """What a hold was; None where the device stamped no time for its step or a neighbour."""
    step, *beside = (stamped[hold.seq + way] for way in (0, -1, 1))
    if min(step, *beside) <= 0 or hold.before is None or hold.after is None:
        return None
    if not (hold.before.query() and hold.after.query()):
        return None
    return {
        "place": hold.place,
        "held_ns": hold.held_ns,
        "idle_ns": max(0, round(hold.before.elapsed_time(hold.after) * MS_NS)),
        "step_ns": step,
        "beside_ns": beside,
    }
