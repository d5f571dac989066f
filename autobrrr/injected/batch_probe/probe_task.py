"""The batch probe as a task of the training thread: one slice of work at a step boundary.

Records a step, reads the code that it ran, proves the batch dimension, then replays the tape at
other batch sizes, one replay at a boundary, spread so that it adds a fifth to training time at
most. Ends with a `probed` event, whatever happens; training is never told.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import TypeVar, cast

from ..job_code.side_effect_scan import CodeScan
from ..job_code.unread_code import UnreadCode
from ..job_state.state_guard import Guarded
from ..live_torch import available_memory
from ..live_torch.compiled_code import CompiledCheck
from ..live_torch.handler_errors import raised_by_handler
from ..live_torch.live_job import Job
from ..live_torch.module_checks import derived_attributes, user_hooks
from ..live_torch.torch_types import Abstain, Tensor, is_module, is_tensor, tensor_bytes
from ..loop.boundary_task import Boundary
from ..wire import ring_layout
from . import replay_schedule
from .batch_dim_check import Forwards, Pause, checks
from .probe_axes import BATCH, SWEEPS
from .probe_refusals import before_recording, before_replay
from .replay_sequence import Measurement, one_line
from .step_recorder import Recorder
from .step_replay import Player
from .step_tape import Tape, freeze, objects

Emit = Callable[[dict[str, object]], None]
T = TypeVar("T")

_ONE_STEP = 0  # come again after this step, whatever the slice has taken
_STEPS_FIRST = 3  # plain steps to see before anything else
_RECORDINGS = 3  # steps to try, where one holds no backward or an evaluation
_OVERRUN = 1.25  # of the limit: nobody can know beforehand what a replay will take
_OVERRUNS = 3  # as many such pauses, until the probe gives up: training comes first
_ROOT = Path("/")


Slices = Generator[int, Boundary, T]  # yields after how many steps to come again, is sent the boundary


class ShadowTask:
    """The shadow-step batch probe.

    Args:
        params: `factors` of the batch size, `rounds` of timed replays, `override` of what code of the
            user's own shows to the outside (never of what it changes), `pause_ns`: longest pause,
            `sweep`: along what, further.
        clock: Nanoseconds.
        check: What the training loop knows of compiled code; None: nothing yet.
    """

    name, event = "shadow probe", "probed"
    pending = resumable = False

    def __init__(
        self,
        job: Job,
        params: Mapping[str, object],
        emit: Emit,
        clock: Callable[[], int],
        check: CompiledCheck | None = None,
    ) -> None:
        self._job = job
        self._torch: ModuleType = job.torch
        self._emit = emit
        self._clock = clock
        self._check = check or CompiledCheck()
        self._sweep = cast("str | None", params.get("sweep"))
        self._axis = BATCH if self._sweep is None else SWEEPS[self._sweep]
        self._factors = [float(one) for one in cast("list[float]", params.get("factors") or ())]
        self._rounds = int(cast(int, params.get("rounds") or 5))
        self._override = bool(params.get("override"))
        self._pause_wanted = cast("int | None", params.get("pause_ns"))
        self._steps: list[int] = []
        self._optimizer: list[int] = []
        self._measurement: Measurement | None = None
        self._seq = 0
        self._began_ns = self._limit_ns = 0  # of the pause that is on
        self._longest_ns = 0
        self._total_ns = 0
        self._overruns = 0
        self._probe: Slices[Measurement] | None = self._probed()
        next(self._probe)

    def at_boundary(self, boundary: Boundary) -> int | None:
        """One slice of work; after how many steps to come again, None at the end."""
        if self._probe is None:
            return None
        began = self._began_ns = self._clock()
        self._notice(boundary)
        self._seq, self._limit_ns = boundary.seq, self._limit(boundary)
        why: str | None = None
        after: int | None = None
        try:
            after = self._probe.send(boundary)
        except StopIteration as end:  # at once where an exception of the job's went through it before
            why = None if end.value is not None else "a replay was interrupted by the job"
        except Abstain as refusal:
            within = refusal.__context__  # what ended a forward that had changed state by then
            if within is not None and raised_by_handler(within):
                raise within from None
            why = str(refusal)
        except (Exception, SystemExit) as error:  # a probe that fails is given up, training goes on
            if raised_by_handler(error):
                raise
            why = f"the replay failed: {one_line(error)}"
        spent = self._clock() - began
        self._longest_ns = max(self._longest_ns, spent)
        self._total_ns += spent
        if after is not None:
            why = self._too_dear(spent, boundary)
        if why is not None or after is None:
            boundary.mark |= ring_layout.AFTER_SHADOW
            self._finish(why)
            return None
        if after == _ONE_STEP:
            return 1
        return max(after, replay_schedule.steps_until_next(spent, self._step_ns(boundary)))

    def cancel(self) -> None:
        """Take everything off and let go of everything; no event."""
        self._release()

    def _notice(self, boundary: Boundary) -> None:
        """Plain steps of the job meanwhile: they are what the replays are compared with."""
        if boundary.last_flags & ring_layout.UNREPRESENTATIVE or boundary.last_step_ns <= 0:
            return
        self._steps.append(boundary.last_step_ns)
        if boundary.last_optimizer_ns is not None:
            self._optimizer.append(boundary.last_optimizer_ns)

    def _too_dear(self, spent: int, boundary: Boundary) -> str | None:
        """Why the probe gives up, where it takes more of training than it may."""
        limit = self._limit(boundary)
        if spent > _OVERRUN * limit:
            self._overruns += 1
        budget = replay_schedule.budget_ns(self._step_ns(boundary))
        if self._overruns >= _OVERRUNS:
            return (
                f"replays took up to {self._longest_ns / 1e6:.0f} ms where a pause may take "
                f"{limit / 1e6:.0f} ms: a busy machine, or more threads than CPUs"
            )
        if self._total_ns > budget:
            return f"its budget of {budget / 1e9:.1f} s of training time is spent"
        return None

    def _probed(self) -> Slices[Measurement]:
        """The whole probe; what stands between two yields is done at one boundary."""
        yield from self._watched()
        tape = yield from self._recorded()
        try:
            hooks = {id(hook): hook for _, hook in user_hooks(tape.modules)} if self._override else {}
            replayable = partial(before_replay, self._torch, tape, frozenset(hooks), self._check)
            replayable()
            scan = CodeScan(self._torch)
            guarded = yield from self._read(scan, tape, list(hooks.values()))
            try:
                pause = Pause(
                    moment=lambda: self._seq,
                    clock=self._clock,
                    limit_ns=lambda: self._limit_ns,
                    left_ns=lambda: self._began_ns + self._limit_ns - self._clock(),
                )
                while True:
                    proof = checks(self._torch, tape, Forwards(self._torch, guarded), pause)
                    try:
                        slicings = yield from self._spread(proof, replayable)
                        break
                    except UnreadCode as stopped:
                        met = stopped.alone()
                    yield from self._met(met, scan, guarded)
                measurement = self._measurement = Measurement(
                    Player(self._torch, tape, guarded, self._clock),
                    slicings=slicings,
                    factors=self._factors,
                    root=_ROOT,
                    axis=self._axis,
                )
                yield from self._measured(measurement, replayable, scan, guarded)
                measurement.close()
            finally:
                guarded.release()
        finally:
            tape.release()
        return measurement

    def _watched(self) -> Slices[None]:
        """A few plain steps, before anything is done to one."""
        while len(self._steps) < _STEPS_FIRST:
            boundary = yield 1
            before_recording(self._torch, self._job.roots, self._check)
            boundary.sample = True

    def _recorded(self) -> Slices[Tape]:
        """A step that has a backward and no evaluation, where one of a few is such."""
        for attempts_left in reversed(range(_RECORDINGS)):
            boundary = yield 4 if attempts_left < _RECORDINGS - 1 else 1
            if not self._job.optimizers:
                raise Abstain("no optimizer of torch's marks the steps of this loop")
            before_recording(self._torch, self._job.roots, self._check)
            self._progress("recording a step")
            recorder = Recorder(self._torch, frozenset(id(part) for part in self._job.updated))
            recorder.start()
            boundary.mark |= ring_layout.SETTLING | ring_layout.AFTER_SHADOW
            try:
                boundary = yield _ONE_STEP
            except GeneratorExit:
                recorder.abandon()
                raise
            boundary.mark |= ring_layout.AFTER_SHADOW
            if recorder.another_may_do and attempts_left:
                recorder.abandon()
                continue
            recording = recorder.stop()
            seldom = boundary.last_flags & (ring_layout.SKIPPED | ring_layout.EVALUATION)
            whole = any(node.kind == "backward" for node in recording.nodes) and not seldom
            if whole or not attempts_left:
                break
        return freeze(self._torch, recording)

    def _read(self, scan: CodeScan, tape: Tape, hooks: list[object]) -> Slices[Guarded]:
        """Read the code that a replay runs; what has to be put back after each one."""
        called = (one for _, one in objects(tape) if callable(one) and not is_module(one, self._torch))
        yield from self._spread(scan.steps(list(tape.modules), [*hooks, *called]))
        self._refuse_seen(scan)
        parameters = self._parameters(tape)
        short = available_memory.shortage(
            self._torch, _ROOT, sum(tensor_bytes(parameter) for parameter in parameters)
        )
        if short is not None:
            raise Abstain(short)
        return Guarded(
            modules=list(tape.modules),
            parameters=parameters,
            others=[*scan.findings.globals, *objects(tape)],
            written=list(parameters) if scan.findings.writes_data else [],
            derived=derived_attributes(tape.modules),
            longest_ns=self._limit_ns,
            read=scan.findings.read,
        )

    def _refuse_seen(self, scan: CodeScan) -> None:
        refusal = scan.findings.refusal(output_too=not self._override)
        if refusal is not None:
            raise Abstain(f"{refusal}: a replay would do it again")

    def _met(self, met: UnreadCode, scan: CodeScan, guarded: Guarded) -> Slices[None]:
        """Read what was about to run unread, and what that leads to."""
        known = len(scan.findings.globals)
        yield from self._spread(scan.meet(met))
        self._refuse_seen(scan)
        guarded.others += scan.findings.globals[known:]
        guarded.written = list(guarded.parameters) if scan.findings.writes_data else []

    def _measured(
        self, measurement: Measurement, replayable: Callable[[], None], scan: CodeScan, guarded: Guarded
    ) -> Slices[None]:
        """One replay at each boundary: first ones, one that counts, timed ones."""
        tried = counted = False
        upcoming: str | None = ""
        while upcoming is not None:
            boundary = yield 1
            replayable()
            boundary.mark |= ring_layout.AFTER_SHADOW
            step_ns, limit_ns = self._step_ns(boundary), self._limit(boundary)
            try:
                if not tried:  # where it fails, the next boundary tries another way
                    tried = measurement.first()
                elif not counted:
                    self._progress("counting operators")
                    counted = measurement.count(self._rounds, step_ns, limit_ns)
                else:
                    upcoming = measurement.upcoming(step_ns, limit_ns)
                    if upcoming is not None:
                        self._progress(upcoming)
                        measurement.replay(step_ns, limit_ns)
                        self._emit_so_far(measurement)
                        upcoming = measurement.upcoming(step_ns, limit_ns)
            except UnreadCode as stopped:
                met = stopped.alone()
            else:
                continue
            yield from self._met(met, scan, guarded)

    def _spread(
        self, work: Generator[str, None, T], replayable: Callable[[], None] | None = None
    ) -> Slices[T]:
        """Run other work, at each boundary until a part of a pause is used up; what it returns.

        Args:
            work: Yields what it does, wherever the rest may wait.
            replayable: It runs code of the job's: raises where that may not be.
        """
        spoken = ""
        with closing(work):
            while True:
                boundary = yield 1
                if replayable is not None:
                    boundary.mark |= ring_layout.AFTER_SHADOW
                    replayable()
                end_ns = self._clock() + self._limit(boundary) // 6
                while True:
                    try:
                        activity = next(work)
                    except StopIteration as end:
                        return cast(T, end.value)
                    if activity != spoken:
                        self._progress(activity)
                        spoken = activity
                    if self._clock() > end_ns:
                        break

    def _parameters(self, tape: Tape) -> list[Tensor]:
        """Of the root modules, of the optimizers, and those that the loop uses directly."""
        torch = self._torch
        found: dict[int, Tensor] = {}
        direct = [value.tensor for value in tape.values.values() if value.stays]
        for part in (
            *(one for module in tape.modules for one in module.parameters()),
            *self._job.updated,
            *direct,
        ):
            if is_tensor(part, torch) and part.is_leaf:
                found.setdefault(id(part), part)
        return list(found.values())

    def _step_ns(self, boundary: Boundary) -> int:
        return int(median(self._steps[-64:])) if self._steps else max(1, boundary.last_step_ns)

    def _limit(self, boundary: Boundary) -> int:
        return replay_schedule.pause_limit_ns(self._step_ns(boundary), self._pause_wanted)

    def _progress(self, what: str) -> None:
        self._emit({"event": "progress", "activity": what})

    def _emit_so_far(self, measurement: Measurement) -> None:
        """What the replays show before all of them are made."""
        self._emit({"event": "probing", "probing": {"status": "partial", **self._shown(measurement)}})

    def _shown(self, done: Measurement | None) -> dict[str, object]:
        return {
            "batch": done.batch if done is not None else None,
            "points": done.points() if done is not None else [],
            "optimizer_ns": int(median(self._optimizer)) if self._optimizer else None,
            "step_ns": int(median(self._steps)) if self._steps else None,
            "sweep": self._sweep,
            **(done.progress() if done is not None else {}),
        }

    def _finish(self, why: str | None) -> None:
        done = self._measurement
        probed: dict[str, object] = {
            "status": "ok" if why is None else "abstained",
            "why": why,
            **self._shown(done),
            "operations": done.operations if done is not None else None,
            "longest_pause_ns": self._longest_ns,
            "total_pause_ns": self._total_ns,
            "flops": done.flops if done is not None else None,
            "notes": done.notes if done is not None else [],
            "memory": done.memory() if done is not None and why is None else None,
        }
        self._release()
        cuda = self._torch.cuda
        if cuda.is_available() and cuda.is_initialized():
            cuda.empty_cache()  # what only the larger batch needed
        self._emit({"event": "probed", "probed": probed})

    def _release(self) -> None:
        """No tensor, module or generator of the job's is held afterwards."""
        probe, self._probe = self._probe, None
        if probe is not None and inspect.getgeneratorstate(probe) != inspect.GEN_RUNNING:
            probe.close()  # else the job forks within a replay
        self._measurement = None
