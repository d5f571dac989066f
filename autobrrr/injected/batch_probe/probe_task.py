"""The batch probe as a task of the training thread: one slice of work at a step boundary.

Records a step, reads the code that it ran, proves the batch dimension, then replays the tape at
other batch sizes, one replay at a boundary, spread so that it adds a fifth to training time at
most. Ends with a `probed` event, whatever happens; training is never told.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import cast

from ..job_state.side_effect_scan import CodeScan
from ..job_state.state_guard import Guarded
from ..live_torch import available_memory
from ..live_torch.live_job import Job
from ..live_torch.module_checks import derived_attributes, user_hooks
from ..live_torch.torch_types import Abstain, Tensor, is_tensor, tensor_bytes
from ..loop.boundary_task import Boundary
from ..loop.handler_errors import raised_by_handler
from ..wire import ring_layout
from . import replay_schedule
from .batch_dim import Slicing
from .batch_dim_check import Forwards, checks
from .probe_axes import BATCH, SWEEPS
from .probe_refusals import before_recording, before_replay
from .replay_sequence import Measurement, one_line
from .step_recorder import Recorder, function_modes
from .step_replay import Player
from .step_tape import Tape, freeze, objects

Emit = Callable[[dict[str, object]], None]

_NOT_PLAIN = (
    ring_layout.TRACED
    | ring_layout.SKIPPED
    | ring_layout.EVALUATION
    | ring_layout.LEVER
    | ring_layout.SETTLING
    | ring_layout.AFTER_SHADOW
)
_STEPS_FIRST = 3  # plain steps to see before anything else
_RECORDINGS = 3  # steps to try, where one holds no backward or an evaluation
_OVERRUN = 1.25  # of the limit: nobody can know beforehand what a replay will take
_OVERRUNS = 3  # as many such pauses, until the probe gives up: training comes first
_ROOT = Path("/")


class Stage(enum.Enum):
    """What the next boundary does."""

    WATCH = "watch"
    RECORD = "record"
    TAKE = "take"
    READ = "read"
    VERIFY = "verify"
    TRY = "try"
    COUNT = "count"
    MEASURE = "measure"
    DONE = "done"


class ShadowTask:
    """The shadow-step batch probe.

    Args:
        job: The live objects of the training loop.
        params: `factors` of the batch size, `rounds` of timed replays, `override` of what code of the
            user's own shows to the outside (never of what it changes), `pause_ns`: longest pause,
            `sweep`: along what, further.
        emit: Sends an event.
        clock: Nanoseconds.
    """

    name = "shadow probe"
    pending = False

    def __init__(self, job: Job, params: Mapping[str, object], emit: Emit, clock: Callable[[], int]) -> None:
        self._job = job
        self._torch: ModuleType = job.torch
        self._emit = emit
        self._clock = clock
        self._sweep = cast("str | None", params.get("sweep"))
        self._axis = BATCH if self._sweep is None else SWEEPS[self._sweep]
        self._factors = [float(one) for one in cast("list[float]", params.get("factors") or ())]
        self._rounds = int(cast(int, params.get("rounds") or 5))
        self._override = bool(params.get("override"))
        self._hooks: dict[int, object] = {}  # of the user's own, whose code was read, by id
        self._pause_wanted = cast("int | None", params.get("pause_ns"))
        self._stage = Stage.WATCH
        self._steps: list[int] = []
        self._optimizer: list[int] = []
        self._recorder: Recorder | None = None
        self._recordings = 0
        self._tape: Tape | None = None
        self._guarded = Guarded([], [])
        self._work: Generator[str, None, object] | None = None
        self._scan: CodeScan | None = None
        self._slicings: dict[int, Slicing] = {}
        self._measurement: Measurement | None = None
        self._seq = 0
        self._longest_ns = 0
        self._total_ns = 0
        self._overruns = 0

    def at_boundary(self, boundary: Boundary) -> int | None:
        """One slice of work; after how many steps to come again, None at the end."""
        if self._stage is Stage.DONE:
            return None
        began = self._clock()
        self._notice(boundary)
        self._seq = boundary.seq
        why: str | None = None
        try:
            after = self._slice(boundary)
        except Abstain as refusal:
            within = refusal.__context__  # what ended a forward that had changed state by then
            if within is not None and raised_by_handler(within):
                raise within from None
            after, why = 1, str(refusal)
        except (Exception, SystemExit) as error:  # a probe that fails is given up, training goes on
            if raised_by_handler(error):
                raise
            after, why = 1, f"the replay failed: {one_line(error)}"
        spent = self._clock() - began
        self._longest_ns = max(self._longest_ns, spent)
        self._total_ns += spent
        why = why or self._too_dear(spent, boundary)
        if why is not None or self._ended():
            boundary.mark |= ring_layout.AFTER_SHADOW
            self._finish(why)
            return None
        if self._stage is Stage.TAKE:
            return 1  # the recording holds one step, no more
        return max(after, replay_schedule.steps_until_next(spent, self._step_ns(boundary)))

    def cancel(self) -> None:
        """Take everything off and let go of everything; no event."""
        self._stage = Stage.DONE
        self._release()

    def _notice(self, boundary: Boundary) -> None:
        """Plain steps of the job meanwhile: they are what the replays are compared with."""
        if boundary.last_flags & _NOT_PLAIN or boundary.last_step_ns <= 0:
            return
        self._steps.append(boundary.last_step_ns)
        if boundary.last_optimizer_ns is not None:
            self._optimizer.append(boundary.last_optimizer_ns)

    def _slice(self, boundary: Boundary) -> int:
        match self._stage:
            case Stage.WATCH:
                return self._watch(boundary)
            case Stage.RECORD:
                return self._record(boundary)
            case Stage.TAKE:
                return self._take(boundary)
            case Stage.READ:
                return self._read(boundary)
            case Stage.VERIFY:
                return self._verify(boundary)
            case Stage.TRY:
                return self._try(boundary)
            case Stage.COUNT:
                return self._count(boundary)
            case _:
                return self._measure(boundary)

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
        if self._total_ns > budget and not self._ended():
            return f"its budget of {budget / 1e9:.1f} s of training time is spent"
        return None

    def _ended(self) -> bool:
        return self._stage is Stage.DONE

    def _watch(self, boundary: Boundary) -> int:
        before_recording(self._torch, self._job.roots, function_modes(self._torch))
        if len(self._steps) >= _STEPS_FIRST:
            self._stage = Stage.RECORD
        boundary.sample = True
        return 1

    def _record(self, boundary: Boundary) -> int:
        if not self._job.optimizers:
            raise Abstain("no optimizer of torch's marks the steps of this loop")
        before_recording(self._torch, self._job.roots, function_modes(self._torch))
        self._progress("recording a step")
        self._recordings += 1
        trained = frozenset(id(part) for part in self._updated())
        self._recorder = Recorder(self._torch, trained)
        self._recorder.start()
        boundary.mark |= ring_layout.SETTLING | ring_layout.AFTER_SHADOW
        self._stage = Stage.TAKE
        return 1

    def _take(self, boundary: Boundary) -> int:
        recorder, self._recorder = cast(Recorder, self._recorder), None
        boundary.mark |= ring_layout.AFTER_SHADOW
        if recorder.evaluated and self._recordings < _RECORDINGS:
            recorder.abandon()
            self._stage = Stage.RECORD
            return 4
        recording = recorder.stop()
        seldom = boundary.last_flags & (ring_layout.SKIPPED | ring_layout.EVALUATION)
        if self._recordings < _RECORDINGS and (
            seldom or not any(node.kind == "backward" for node in recording.nodes)
        ):
            self._stage = Stage.RECORD
            return 4
        self._tape = freeze(self._torch, recording)
        if self._override:
            self._hooks = {id(hook): hook for _, hook in user_hooks(self._tape.modules)}
        self._check_replay()
        self._scan = CodeScan(self._torch)
        self._work = cast(
            "Generator[str, None, object]",
            self._scan.steps(list(self._tape.modules), list(self._hooks.values())),
        )
        self._stage = Stage.READ
        return 1

    def _read(self, boundary: Boundary) -> int:
        if not self._advance(boundary, None):
            return 1
        tape, scan = cast(Tape, self._tape), cast(CodeScan, self._scan)
        refusal = scan.findings.refusal(output_too=not self._override)
        if refusal is not None:
            raise Abstain(f"{refusal}: a replay would do it again")
        parameters = self._parameters(tape)
        short = available_memory.shortage(
            self._torch, _ROOT, sum(tensor_bytes(parameter) for parameter in parameters)
        )
        if short is not None:
            raise Abstain(short)
        self._guarded = Guarded(
            modules=list(tape.modules),
            parameters=parameters,
            others=[*scan.findings.globals, *objects(tape)],
            written=list(parameters) if scan.findings.writes_data else [],
            derived=derived_attributes(tape.modules),
        )
        self._scan = None
        self._work = cast(
            "Generator[str, None, object]",
            checks(self._torch, tape, Forwards(self._torch, self._guarded), lambda: self._seq),
        )
        self._stage = Stage.VERIFY
        return 1

    def _verify(self, boundary: Boundary) -> int:
        boundary.mark |= ring_layout.AFTER_SHADOW
        self._check_replay()
        done = self._advance(boundary, self._slicings)
        if done:
            tape = cast(Tape, self._tape)
            self._measurement = Measurement(
                torch=self._torch,
                tape=tape,
                slicings=self._slicings,
                guarded=self._guarded,
                player=Player(self._torch, tape, self._guarded, self._clock),
                factors=self._factors,
                clock=self._clock,
                root=_ROOT,
                axis=self._axis,
            )
            self._stage = Stage.TRY
        return 1

    def _try(self, boundary: Boundary) -> int:
        """The first replay: where it fails, the next boundary tries another way."""
        if self._at_replay(boundary).first():
            self._stage = Stage.COUNT
        return 1

    def _count(self, boundary: Boundary) -> int:
        self._progress("counting operators")
        measurement = self._at_replay(boundary)
        if measurement.count(self._rounds, self._step_ns(boundary), self._limit(boundary)):
            self._stage = Stage.MEASURE
        return 1

    def _measure(self, boundary: Boundary) -> int:
        measurement = self._at_replay(boundary)
        step_ns, limit_ns = self._step_ns(boundary), self._limit(boundary)
        what = measurement.upcoming(step_ns, limit_ns)
        if what is not None:
            self._progress(what)
            measurement.replay(step_ns, limit_ns)
            self._emit_so_far(measurement)
        if measurement.upcoming(step_ns, limit_ns) is None:
            self._stage = Stage.DONE
        return 1

    def _advance(self, boundary: Boundary, found: dict[int, Slicing] | None) -> bool:
        """Run the generator at hand until half a pause is used up; whether it has ended."""
        work = cast("Generator[str, None, object]", self._work)
        began = self._clock()
        spoken = ""
        while True:
            try:
                activity = next(work)
            except StopIteration as end:
                self._work = None
                if found is not None:
                    found.update(cast("dict[int, Slicing]", end.value))
                return True
            if activity != spoken:
                self._progress(activity)
                spoken = activity
            if self._clock() - began > self._limit(boundary) // 6:
                return False

    def _at_replay(self, boundary: Boundary) -> Measurement:
        """Before a replay: nothing may have come up that rules it out."""
        self._check_replay()
        boundary.mark |= ring_layout.AFTER_SHADOW
        return cast(Measurement, self._measurement)

    def _check_replay(self) -> None:
        before_replay(self._torch, cast(Tape, self._tape), frozenset(self._hooks))

    def _parameters(self, tape: Tape) -> list[Tensor]:
        """Of the root modules, of the optimizers, and those that the loop uses directly."""
        torch = self._torch
        found: dict[int, Tensor] = {}
        direct = [value.tensor for value in tape.values.values() if value.stays]
        for part in (
            *(one for module in tape.modules for one in module.parameters()),
            *self._updated(),
            *direct,
        ):
            if is_tensor(part, torch) and part.is_leaf:
                found.setdefault(id(part), part)
        return list(found.values())

    def _updated(self) -> list[Tensor]:
        """What the optimizers update."""
        return [
            part
            for optimizer in self._job.optimizers
            for group in getattr(optimizer, "param_groups", ())
            for part in group["params"]
        ]

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
        self._stage = Stage.DONE
        done = self._measurement
        if done is not None and why is None:
            done.close()
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
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.abandon()
        work, self._work = self._work, None
        if work is not None:
            work.close()
        if self._tape is not None:
            self._tape.release()
        self._guarded.release()
        self._tape = self._measurement = self._scan = None
        self._slicings, self._hooks = {}, {}
