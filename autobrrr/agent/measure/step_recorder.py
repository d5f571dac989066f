"""Records one real step: its operators, and the tensors between them, in a file without a name.

Torch's ExecutionTraceObserver writes it. In: the step, and timed ones that ran the same operators. Out: the
event `recorded` with the open file, from which `replay` tells their work and what other batches would take.

The observer sees the operators of every thread. Where one of them is in its code as it is removed, or a range
has begun under one and ends under the next, the process ends with SIGSEGV (torch 2.13). So it is switched off
first, and removed some time later. A compressed sparse tensor (CSR) also ends the process.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from ..job_facts import package_folders
from ..live_torch.dispatch_modes import unwatched
from ..live_torch.torch_log import RECORDER, quiet
from ..live_torch.torch_types import Tensor
from ..loop.task_runner import abstained
from ..loop.train_loop import TrainLoop
from ..phases.phase_clock import NAMES
from ..wire.recording import STATE, WEIGHTS, Times
from .cpu_profiler import ProfiledStep, StepWatch
from .kernel_times import Floors

MOST_BYTES = 64 << 20
MOST_TIMED = 3  # steps that are sent along
FATAL = re.compile(r"sparse_(?:compressed|cs|bs)|c(?:row|col)_indices")  # operators of such tensors
LEAVE_S = 0.5  # an operator takes some us to leave the observer, and is off its CPU for 0.1 s at most
Sent = tuple[dict[str, object], int | None]


_OFF_S: list[float] = []  # since when torch's observer is off, while it is there: a process has one


def remove_observer(torch: ModuleType) -> None:
    """Remove what was switched off, as soon as it may be; its file is whole then."""
    if _OFF_S:
        time.sleep(max(0.0, _OFF_S.pop() + LEAVE_S - time.monotonic()))
        with quiet(torch, RECORDER):
            torch._C._profiler._remove_execution_trace_observer()


class StepRecorder:
    """Writes the record of a step that `watch` has on."""

    def __init__(self, loop: TrainLoop, watch: StepWatch) -> None:
        self._loop, self._watch = loop, watch
        self._torch: ModuleType = loop.torch
        self._record: int | None = None  # a file in memory: who is killed leaves none behind

    def start(self) -> Callable[[], bool]:
        """Switch the observer on and show it what belongs to the model and the optimizers; what ends it."""
        inside, loop, torch = self._torch._C._profiler, self._loop, self._torch
        self.remove()
        remove_observer(torch)
        self._record = os.memfd_create("autobrrr-record", os.MFD_CLOEXEC)
        with quiet(torch, RECORDER):
            if not inside._add_execution_trace_observer(f"/proc/self/fd/{self._record}"):
                raise RuntimeError("the job records an execution trace of its own")
            inside._enable_execution_trace_observer()

        def end() -> bool:
            with quiet(torch, RECORDER):
                inside._disable_execution_trace_observer()
            _OFF_S.append(time.monotonic())
            return True

        marked = torch.autograd.profiler.record_function
        try:
            with torch.no_grad(), unwatched(torch):
                for name, tensors in ((WEIGHTS, _weights(loop)), (STATE, _state(torch, loop))):
                    with marked(name):
                        for tensor in tensors:
                            tensor.detach()
        except BaseException:
            end()
            raise
        return end

    def sent(
        self, told: Mapping[str, object], timed: Sequence[tuple[int, ProfiledStep]], floors: Floors
    ) -> Callable[[], Sent]:
        """Makes the event with the file's descriptor; the file has no name any more."""
        record, self._record = self._record, None
        threads = self._torch.get_num_threads()
        paths = package_folders(self._torch)

        def make() -> Sent:
            steps = [(ns, _times(step, floors), step.held_ns) for ns, step in timed[-MOST_TIMED:]]
            head = json.dumps({**told, "threads": threads, "paths": paths, "timed": steps}).encode()
            if record is None:
                return abstained("recorded", "no step was recorded"), None
            try:
                remove_observer(self._torch)
                with open(record, "r+b", closefd=False) as file:
                    trace = file.read(MOST_BYTES + 1)
                    if len(trace) <= MOST_BYTES:
                        file.seek(0)
                        file.write(head[:-1] + b', "trace": ' + trace + b"}")
                        file.flush()
                        return {"event": "recorded", "fd": True, "recorded": {"status": "ok"}}, record
                why = f"its record has more than {MOST_BYTES >> 20} MiB"
            except OSError as error:
                why = f"its record can't be written: {error}"
            os.close(record)
            return abstained("recorded", why), None

        return make

    def remove(self) -> None:
        """Of a record that is not sent."""
        record, self._record = self._record, None
        if record is not None:
            os.close(record)


def _times(step: ProfiledStep, floors: Floors) -> Times:
    own = [
        max(0, ns - floors.of(name, within))
        for name, ns, within in zip(step.names, step.spent_ns, step.within, strict=True)
    ]
    where = (NAMES[one] for one in step.where)
    return list(zip(step.names, step.spent_ns, own, where, step.began_ns, strict=True))


def _weights(loop: TrainLoop) -> list[Tensor]:
    found = [*loop.job.updated, *(each for root in loop.job.roots for each in root.parameters())]  # type: ignore[attr-defined]
    return list({id(each): each for each in found}.values())


def _state(torch: ModuleType, loop: TrainLoop) -> list[Tensor]:
    found = [each for root in loop.job.roots for each in root.buffers()]  # type: ignore[attr-defined]
    for optimizer in loop.job.optimizers:
        for state in getattr(optimizer, "state", {}).values():
            if isinstance(state, dict):
                found += [each for each in state.values() if isinstance(each, torch.Tensor)]
    found += [each.grad for each in _weights(loop) if each.grad is not None]
    return list({id(each): each for each in found}.values())
