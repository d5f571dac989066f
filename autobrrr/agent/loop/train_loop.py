"""The training loop as the agent follows it, on the training thread, from boundary to boundary.

In: firing optimizers (through the tap) or fallback marks, work posted by the agent's thread. Out:
ring records, events, and the work done between two steps: task slices, remedies, hooks on and off.
Every door is guarded: an error of ours takes the agent out, and training goes on.
"""

from __future__ import annotations

import sys
from _thread import get_ident, get_native_id
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns, thread_time_ns
from types import ModuleType

from ..live_torch.dispatch_modes import within_backward
from ..live_torch.graph_capture import capturing, watch_captures
from ..live_torch.job_signals import raised_by_handler
from ..live_torch.live_job import Job
from ..live_torch.loader_epochs import EPOCHS
from ..live_torch.patches import Patch, patched, take_off_all
from ..phases.loader_watch import LoaderWatch
from ..phases.phase_clock import PhaseClock
from ..phases.phase_hooks import PhaseHooks
from ..phases.sampled_step import Sampling
from ..phases.sampling_schedule import Bursts
from ..remedies.active_remedies import ActiveRemedies, AppliedRemedy
from ..wire import ring_layout
from ..wire.ring_writer import StepRing
from .device_stamps import MOST_PLAIN, DeviceStamps
from .fork_guard import ForkGuard
from .root_modules import RootModules
from .step_hook import Hot, make_tap
from .step_marks import FallbackMarks, Marks
from .step_pattern import StepPattern, Usual
from .task_runner import Boundary, Measuring, Task

MOST_NOTES = 128  # plain steps between two looks
PASSES = 1024  # fires of other optimizers between two looks
FRESH_NS = 100_000_000  # as old may the newest record be that the sidecar sees
BRISK_NS = 12_000_000  # while remedies come and go: a block is over when its steps have records
BRISK_FOR_NS = 2_000_000_000  # after a change of remedies
Emit = Callable[[dict[str, object]], None]


class TrainLoop:
    """Everything that the agent has in the training loop."""

    def __init__(
        self,
        torch: ModuleType,
        pages: StepRing,
        active: ActiveRemedies,
        emit: Emit,
        *,
        clock: Callable[[], int] = perf_counter_ns,
        cpu_clock: Callable[[], int] = thread_time_ns,
    ) -> None:
        self.torch = torch
        self.job = Job(torch)
        self.job.held_up, self.job.emit = self._held_up, emit
        self.active = active
        self.steps = StepPattern()
        self.phases = PhaseClock()
        self.loader = LoaderWatch(self.job)
        self.bursts = Bursts()
        self.check = self.job.check
        self.hot = Hot(clock())
        self.hot.arm = active.arm
        self.compiled_by_user = False  # before the first remedy
        self.last_phases: dict[str, int] | None = None
        self.last_sample: tuple[int, ...] = ()  # as in `ring_layout.SAMPLED_FIELDS`
        self.train_tid = 0
        self.broken: str | None = None
        self.gone = False
        self.left: list[str] = []
        self.news = 0  # raised whenever the anatomy may have changed
        self.boundary_ns = 0  # own work at slow boundaries, by the thread's CPU time: others may preempt it
        self._cpu_ns = 0  # at the beginning of it
        self.sampled_steps = 0
        self.step_ns = 0  # mean of the last stretch
        self.measuring = Measuring(emit, clock, cpu_clock)
        # Called at each boundary that we look at; whether the next one must be looked at too.
        self.each_boundary: Callable[[], bool] | None = None
        self._expectant = False
        self.roots = RootModules(self.job, self.fail)
        self._emit = emit
        self._clock, self._cpu_clock = clock, cpu_clock
        self._pages = pages
        self.stamps = DeviceStamps(torch, pages.write_device, cpu_clock)
        self._sampling = Sampling(torch, self.phases)
        self.hooks = PhaseHooks(self.job, self.phases, self.loader, self.fail, self.measuring.cut_off)
        self._marks = Marks(torch, self.hot, self.skipped, self.fail)
        self._scouts = FallbackMarks(torch, self.job, self.event, self.fail)
        self._patches: list[Patch] = []
        self._inbox: deque[Callable[[], object]] = deque()
        self._sampled = False
        self._hurry = False
        self._heard = 0
        self._passes = 0
        self.quiet = Usual()  # calls of root modules without gradients
        self._brisk_until_ns = 0
        self._looked_at_seq = 0
        self._looked_at_ns = self.hot.start
        self._fork_guard: ForkGuard | None = None

    def put_on(self, at_fork: Callable[[], None]) -> None:
        """Put the always-on hooks on. Each is one atomic store."""
        self._fork_guard = ForkGuard(lambda: self._disarm(at_fork))
        self.hot.start = self._looked_at_ns = self._clock()
        self._patches += watch_captures(self.torch)
        self._scouts.put_on_backward()  # before the tap: from its first call on, hooks may go over this
        optimizer = getattr(getattr(self.torch, "optim", None), "Optimizer", None)
        self._patches += patched(
            optimizer,
            "_optimizer_step_code",
            lambda original: make_tap(self.hot, original, self.slow, self.fail, self._clock),
        )
        self._patches += self._marks.put_on()
        EPOCHS.listen(self.torch, self._epoch_begins)

    def post(self, work: Callable[[], object]) -> None:
        """Do this at the next boundary, on the training thread, after the measuring task."""
        self._inbox.append(work)
        self.hot.poke()

    def look_for_marks(self) -> None:
        """No optimizer has fired for a while: look for another mark of a step."""
        if self.hot.seq == 0 and self.hot.live and not self.hot.busy:
            self._scouts.put_on_rest(compiled=self.check.compiled([]))

    def slow(self, optimizer: object, now: int) -> None:
        """An optimizer has fired, and more than a record is due."""
        hot = self.hot
        if id(optimizer) == hot.stamped and hot.left and hot.live:
            hot.left -= 1
            hot.times.append(now)
            self.stamps.passed(hot.steps - 1)
            return
        if within_backward(self.torch):
            return  # it steps in a hook, a part of the update: the end of the backward may mark the step
        if not hot.live:
            self._last_will()
            return
        self._enter(self._optimizer_fires, optimizer, now)

    def event(self, source: str, ident: int) -> None:
        """A fallback mark: the end of a backward or root forward, or the next batch."""
        if not self.hot.live:
            self._last_will()
            return
        self._enter(self._marked, source, ident, self._clock())

    def skipped(self, optimizer: object) -> None:
        """A GradScaler held the update back: the step has ended all the same."""
        if (id(optimizer) != self.hot.anchor and len(self.job.optimizers) > 1) or within_backward(self.torch):
            return
        self._enter(self._update_skipped)

    def _enter(self, work: Callable[..., None], *given: object) -> None:
        """Do this, guarded, unless the door is closed or we are at work already."""
        hot = self.hot
        if hot.busy:
            return  # an optimizer stepped inside our own work, or another thread trains meanwhile
        hot.busy = True
        try:
            if hot.live:
                work(*given)
        except Exception as error:  # noqa: BLE001
            self.fail(error)
        finally:
            hot.busy = False

    def _optimizer_fires(self, optimizer: object, now: int) -> None:
        if self._is_ours(get_ident()):
            self._begin_work()
            self._flush()
            self._fired(optimizer, now)

    def _marked(self, source: str, ident: int, now: int) -> None:
        if not self._is_ours(ident):
            return
        if self.hot.seq == 0 and self.steps.source != source:
            choice = self._scouts.choice()
            if choice is not None and choice != self.steps.source:
                self.steps.start_over(choice)
                self.news += 1
        if self.steps.event(source):
            self._begin_work()
            self._close(now)

    def _update_skipped(self) -> None:
        self._begin_work()
        self._flush()
        self._close(self._clock(), ring_layout.SKIPPED)

    def _epoch_begins(self, loader: object) -> Callable[[object], None] | None:
        """A DataLoader is about to be read from its beginning, in whatever thread."""
        hot = self.hot
        if not hot.live or get_ident() != hot.owner or not self.loader.begins_epoch(loader):
            return None
        hot.flags |= ring_layout.EPOCH
        hot.poke()
        return self.loader.found

    def fail(self, error: BaseException) -> None:
        """Our code failed: remove the agent at once. Training goes on, and gets what is its own."""
        hot = self.hot
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
        self.close_door()
        at_boundary = hot.busy
        if not self.gone and (get_ident() == hot.owner or not hot.owner):
            hot.busy = True
            try:
                self.take_down(keep=False, at_boundary=at_boundary)
            except Exception as second:  # noqa: BLE001
                self.broken += f"; then {type(second).__name__}: {second}"
            finally:
                hot.busy = at_boundary
        self._emit({})
        if raised_by_handler(error):
            raise error

    def hooks_off(self) -> None:
        """Take the phase hooks off before a remedy changes: it must not remember one of ours."""
        if self.hooks.on:
            self.left += self.hooks.take_off(at_boundary=True)
        self.left += self.hooks.take_off_wrappers()

    def apply(
        self,
        name: str,
        options: Mapping[str, object],
        allowed: Sequence[str] | None,
        *,
        together: bool = False,
        prepare: bool = False,
    ) -> AppliedRemedy:
        """Switch a remedy on, between two steps; see `ActiveRemedies.apply`. Raises Refused."""
        self.hooks_off()
        return self.active.apply(self.job, name, options, allowed=allowed, together=together, prepare=prepare)

    def undo(self, applied: AppliedRemedy) -> str | None:
        """Undo a remedy between two steps. Returns why it failed, or None."""
        self.hooks_off()
        failed = self.active.undo(applied)
        if not self.compiled_by_user and "module.code" in applied.remedy.targets:
            self.check.forget_ours()  # what it compiled does not make the job a compiled one
        return failed

    def is_compiled(self) -> bool:
        """The job runs compiled code, its own or a remedy's: no hooks on modules."""
        return self.active.compiled or self.check.compiled(self.job.roots)

    def undo_troubled(self) -> None:
        """Undo remedies that say themselves that they do not work out here."""
        for applied, why in self.active.troubles():
            if applied.bound:
                continue  # all ranks revert it, or none does
            self._emit(applied.lost(self.undo(applied) or why))

    def task_ends(self) -> None:
        """Posted work need not wait for the measuring task any more."""
        self._hurry = True

    def take_down(self, *, keep: bool, at_boundary: bool) -> list[str]:
        """Remove all hooks and patches, and all remedies unless they are kept.

        On the training thread at a boundary; or from the agent's, while training is not inside our code: then
        remedies, and what they kept, wait for the next boundary of the training thread.

        Returns:
            The names of those that wait.
        """
        self.hot.will = None
        self._stop(at_boundary=at_boundary)
        self._flush()
        if not at_boundary:
            waiting = self.active.kept + [each.remedy.name for each in self.active.ours if not keep]
            if self.measuring.unfinished is not None:
                waiting.append(self.measuring.unfinished.name)
            if waiting:
                self.hot.will = lambda: self.take_down(keep=keep, at_boundary=True)
                return waiting
        if keep:
            self.active.let_go()
            self.active.forget()
        else:
            for lost in self.active.undo_all():
                self._emit(lost)
        self._finish()
        return []

    def _flush(self) -> None:
        """Write the records of the plain steps since the last slow one."""
        hot = self.hot
        times = hot.times
        passed, self._passes = self._passes - hot.passes, hot.passes
        if not times:
            self.steps.passed(passed)
            return
        first = (hot.start, hot.own, hot.arm, hot.seq)
        own_ns = hot.hook_ns + (self.stamps.cost_ns if self.stamps.active else 0)
        hot.start = self._pages.write_plain(times, first, own_ns, self._device_ns)
        hot.own = own_ns
        hot.seq += len(times)
        self.steps.closed_plain(len(times))
        times.clear()

    @property
    def _device_ns(self) -> int:
        """What the record of a step says of its time on a device, as it ends."""
        return ring_layout.AWAITED if self.stamps.active else ring_layout.UNSTAMPED

    def _begin_work(self) -> None:
        self._cpu_ns = self._cpu_clock()
        if self.stamps.active:
            self.stamps.mark()

    def close_door(self) -> None:
        """From here on the training thread does no work of ours. From any thread."""
        self.hot.live = False
        self.hot.poke()

    def _stop(self, *, at_boundary: bool) -> None:
        self.close_door()
        self.roots.stop()
        self.measuring.stop()
        self.left += self.hooks.take_off(at_boundary=at_boundary)
        self.left += self.hooks.take_off_wrappers()  # they may lie over a remedy's, or a scout's
        self._sampling.take_off()

    def _finish(self) -> None:
        self.hot.will = None
        self.each_boundary = None
        self.left += self._scouts.keep_only(None)
        self.left += EPOCHS.leave(self._epoch_begins)
        self.left += take_off_all(self._patches)
        if self._fork_guard is not None:
            self._fork_guard.release()
            self._fork_guard = None
        self._inbox.clear()
        self.stamps.release()
        self.gone = True
        self._emit({})

    def _last_will(self) -> None:
        hot = self.hot
        if hot.will is None or capturing(self.torch):
            return
        if not self._is_ours(get_ident()):
            return
        will, hot.will = hot.will, None
        try:
            will()
        except Exception as error:  # noqa: BLE001
            self.left.append(f"{type(error).__name__}: {error}")

    def _disarm(self, at_fork: Callable[[], None]) -> None:
        """In a forked child: nothing of ours runs there."""
        self.hot.will = None
        self.stamps.drop()
        self._stop(at_boundary=True)
        self._scouts.keep_only(None)
        EPOCHS.leave(self._epoch_begins)
        take_off_all(self._patches)
        at_fork()

    def _is_ours(self, ident: int) -> bool:
        hot = self.hot
        if ident == hot.owner:
            return True
        if hot.owner and hot.owner in sys._current_frames():
            return False  # a second thread trains something else
        hot.owner = ident
        self.train_tid = get_native_id()
        return True

    def _fired(self, optimizer: object, now: int) -> None:
        if self.job.saw_optimizer(optimizer):
            self.news += 1
            self.active.renew(self.job)
            self._emit({})  # its parameters show the device that it trains on
        self._scouts.forget()
        before = self.steps.relearned
        closes = self.steps.fire(id(optimizer))
        if self.steps.relearned != before:
            self.news += 1
        if closes:
            self._close(now)
        elif self._sampled:
            self.phases.update_exit(now)

    def _close(self, now: int, extra: int = 0) -> None:
        hot = self.hot
        seq = hot.seq
        flags = hot.flags | extra
        if self.steps.settling:
            flags |= ring_layout.SETTLING
        if self._sampled:
            flags |= self._finish_sample(now, extra)
        self._pages.write_tail((hot.start, now, hot.own, self._device_ns, hot.arm, flags, seq))
        if self.stamps.active:
            self.stamps.ended(seq)
        self.stamps.collect()
        self._marks.step_closed(seq, flags)
        last_ns = now - hot.start
        if flags & ring_layout.TRACED and not flags & ring_layout.EVALUATION:
            self.measuring.stretched(last_ns)
        steps = seq + 1 - self._looked_at_seq
        self.step_ns = max(1, (now - self._looked_at_ns) // max(1, steps))
        hot.seq = self._looked_at_seq = seq + 1
        hot.flags = 0
        boundary = Boundary(job=self.job, seq=seq + 1, now_ns=now, last_step_ns=last_ns, last_flags=flags)
        self._heard = hot.knocks
        self._work(boundary)
        if not hot.live:
            return
        hot.flags |= boundary.mark
        self._leave(now, sample=boundary.sample, begun=boundary.begun)

    def _finish_sample(self, now: int, extra: int) -> int:
        fires = 0 if extra or self.steps.source != "optimizer" else 1
        fields = self._sampling.finish(
            now, fires=fires, forward_measured=self.hooks.roots_on, optimizer_measured=self.hooks.updates_on
        )
        self._pages.write_sampled(self.hot.seq, fields)
        self.sampled_steps += 1
        self._sampled = False
        forward_ns, backwards = fields[ring_layout.FORWARD_NS], fields[ring_layout.BACKWARDS]
        self.last_phases, self.last_sample = self._sampling.by_name, fields
        if backwards:
            lives = forward_ns < 0 and bool(self.job.roots)  # a root that can't be timed
            self.roots.check(self.hot.owner, saw_forward=forward_ns > 0 or lives)
        return ring_layout.PHASES | (
            ring_layout.EVALUATION if self.quiet.is_more(self.phases.quiet_calls) else 0
        )

    def _work(self, boundary: Boundary) -> None:
        if self.roots.step_ended():  # first: what was put on last may lie over what a task has put on
            self.news += 1
        if self.measuring.slice(boundary):
            self.bursts.rest(boundary.seq, self.bursts.steps, self.step_ns)
            self._emit({})
        # What is due waits for the end of a capture: within one it would fail, and the job with it.
        held_back = bool(self._inbox or self.active.watched) and capturing(self.torch)
        if self._inbox and not held_back and (self.measuring.task is None or self._hurry):
            self.measuring.posted(self._do_posted)
        if not self.hot.live:
            return
        if self.each_boundary is not None:
            self.measuring.posted(self._look_at_boundary)
        if self.active.watched and not held_back:
            self.undo_troubled()
        if self.active.arm != self.hot.arm:
            self.hot.arm = self.active.arm
            boundary.mark |= ring_layout.SWITCHED
            self._brisk_until_ns = boundary.now_ns + BRISK_FOR_NS
            self.bursts.rest(boundary.seq, self.bursts.steps, self.step_ns)
        self._settle(boundary)
        # While root modules are looked for, a burst would miss their forward.
        if self.measuring.task is None and not self.roots.searching and not self.steps.settling:
            boundary.sample = boundary.sample or self.bursts.wants(boundary.seq, self.step_ns)

    def _held_up(self, ns: int) -> None:
        """A remedy has compiled in the step that runs."""
        self.measuring.posted_ns += ns
        self.hot.flags |= ring_layout.COMPILED
        self.hot.poke()

    def _do_posted(self) -> None:
        while self._inbox and self.hot.live:
            self._inbox.popleft()()

    def _look_at_boundary(self) -> None:
        self._expectant = self.each_boundary is not None and self.each_boundary()

    def _settle(self, boundary: Boundary) -> None:
        steps = self.steps
        if steps.pattern is None:
            return
        wanted = None if steps.source == "optimizer" else steps.source
        if self._scouts.kept != wanted and (wanted is None or not steps.settling):
            self.hooks_off()
            self.left += self._scouts.keep_only(wanted)
            self.news += 1
            for_roots = not self.job.roots and steps.source in ("optimizer", "backward")
            if for_roots and not self.is_compiled():
                self.roots.begin(self.hot.owner)
            self.bursts.rest(boundary.seq, 8, self.step_ns)
        if self.roots.searching and self.roots.put_on(compiled=self.is_compiled()):
            boundary.mark |= ring_layout.SETTLING

    def begin_task(self, task: Task) -> None:
        """Run a measuring task from the next boundary on. From the agent's thread."""
        self.measuring.usual_ns = self.step_ns
        self.measuring.begin(task)
        self.hot.poke()

    def _plain_steps(self, *, sample: bool) -> int:
        """How many steps from here on need nothing but a note of their end."""
        busy = self.measuring.task is not None or self.roots.searching
        if sample or self.hot.flags or self.steps.settling or busy or self._expectant:
            return 0
        seq = self.hot.seq
        until = min(self.bursts.look_at(seq), self.stamps.look_at(seq))
        fresh_ns = BRISK_NS if self._looked_at_ns < self._brisk_until_ns else FRESH_NS
        most = MOST_PLAIN if self.stamps.active else MOST_NOTES
        return max(0, min(until - seq, most, fresh_ns // max(1, self.step_ns)))

    def _leave(self, entered: int, *, sample: bool, begun: Callable[[], None] | None) -> None:
        hot = self.hot
        if sample != self.hooks.on:
            if sample:
                compiled = self.is_compiled()
                if not self.active.arm:
                    self.compiled_by_user = compiled
                self.left += self.hooks.put_on(hot.owner, compiled=compiled)
            else:
                self.left += self.hooks.take_off(at_boundary=True)
        self._sampled = sample
        self.stamps.settle(hot.seq)
        hot.left = self._plain_steps(sample=sample)
        hot.anchor = self.steps.anchor
        hot.others = self.steps.others if hot.left else frozenset()
        hot.passes = self._passes = PASSES if hot.others else 0
        hot.stamped = 0
        if hot.knocks != self._heard or (self._inbox and (self.measuring.task is None or self._hurry)):
            hot.poke()
        elif self.stamps.active:  # every end goes the slow way, and is stamped there
            hot.stamped, hot.anchor = hot.anchor, 0
        if sample:
            self._sampling.begin(self._clock())
        if self.stamps.active:
            self.stamps.begin()
        if begun is not None:
            begun()
        self._looked_at_ns = hot.start = self._clock()
        hot.own = hot.start - entered
        self.boundary_ns += self._cpu_clock() - self._cpu_ns
        if sample:
            self.bursts.took(hot.own)
