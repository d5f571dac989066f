"""Times the calls of a recorded step on the job's CUDA device, each distinct call alone, by CUDA events.

In: the record, and the device it ran on. Out: device nanoseconds of each call at B and 2B. Shapes are learned
on torch's device "meta", so the device never holds a whole step. The job pauses while calls are timed: this
process stops itself; the sidecar drains the job, which then holds still, and lets this process go on.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from .player import ONE_BY_ONE, CallPlayer, NoAnswer, ReplayedStep, Shape
from .step_record import RecordedStep, StepValue, tensors_in

# Free beside what the calls need: the job's next step may want more than its last, and no card has shown yet
# what this takes. A CUDA context is 0.4 to 0.6 GiB, a library's workspace some 0.1 GiB.
SPARE_BYTES = 4 << 30
OWN_BYTES = 1 << 30  # of it, what this process may take
SLICE_NS, SLICES = 80_000_000, 3  # the agent holds the job up for 0.1 s each time
ROUNDS = 3  # or as many as the slices hold; one reading of a long kernel is sure enough
TIMED = 0.9  # of the device's time: what takes the rest is not worth a pause, its first reading stands
BATCHED_NS, MOST_REPEATS = 12_000, 6  # events resolve 0.5 us: shorter calls are timed several at a time
NO_KERNEL_NS = 500  # no kernel is as short: a view, an allocation
AHEADS, LEAST_AHEAD_NS = (2, 8, 32), 30_000  # times the host's own time that the device sleeps first
CYCLES = 1_000_000  # of a sleep that tells the device's clock
Call = Callable[[], object]


@dataclass(slots=True)
class DistinctCall:
    """Calls of one operator on arguments alike, and what is known of one, by width."""

    places: list[int] = field(default_factory=list)
    host_ns: dict[int, float] = field(default_factory=dict)  # on an idle device
    device_ns: dict[int, float] = field(default_factory=dict)
    waits_ns: float | None = None  # it waits for the device; then what the host does in it

    def all_ns(self) -> float:
        return sum(self.device_ns.values()) * len(self.places)


class DeviceReplay:
    """Times the calls at B and 2B."""

    def __init__(self, torch: ModuleType, program: RecordedStep, batch: int, flat: Shape) -> None:
        self._torch, self._program, self._batch = torch, program, batch
        self._player = CallPlayer(torch, program, batch, flat, "cuda")
        self._runs: dict[int, ReplayedStep] = {}
        for width in (batch, 2 * batch):
            learner = CallPlayer(torch, program, batch, flat, "meta")
            self._runs[width] = ReplayedStep(learner, width)
            if any(ONE_BY_ONE in why for why in learner.failed.values()):
                raise NoAnswer(ONE_BY_ONE)
        self._until_ns = self._slices = 0
        self._cycle_ns, self._floor_ns = 1.0, 0.0

    def timed(self, uuid: str, free_bytes: int) -> Mapping[str, Any]:
        """Device times of all calls, by width and round, and which calls wait for the device.

        Raises:
            NoAnswer: there is too little memory or time, or another device.
        """
        runs, failed, batch = self._runs, self._player.failed, self._batch
        alike: dict[str, DistinctCall] = {}
        for index, call in enumerate(self._program.calls):
            if any(value.on_device for value in tensors_in([*call.args, *call.outputs])):
                key = repr((call.name, *map(self._described, call.args)))
                alike.setdefault(key, DistinctCall()).places.append(index)
        self._open(uuid, free_bytes, max((self._bytes(one.places[0]) for one in alike.values()), default=0))
        for one in alike.values():
            self._warm(one)
        known = [one for one in alike.values() if one.places[0] not in failed]
        rounds: dict[int, list[list[float]]] = {width: [] for width in runs}
        worth = self._worth(known)
        while len(rounds[batch]) < ROUNDS and all(self._retimed(one) for one in worth):
            for width, columns in rounds.items():
                column = [0.0] * len(self._program.calls)
                for one in known:
                    for index in one.places:
                        column[index] = one.device_ns[width]
                columns.append(column)
        if not rounds[batch]:
            raise NoAnswer(f"timing {len(worth)} different operators would pause training for over 0.3 s")
        peak, peak_2x = (self._player.peak_bytes(run.shapes) for run in runs.values())
        return {
            "batch": batch,
            "times": rounds,
            "failed": failed,
            "waits": {
                index: one.waits_ns for one in known if one.waits_ns is not None for index in one.places
            },
            "peak": peak,
            "peak_2x": peak_2x,
            "scaled": runs[batch].shapes != runs[2 * batch].shapes,
        }

    def _described(self, thing: Any) -> Any:
        """All of an argument that decides how long a call takes."""
        if isinstance(thing, StepValue):
            shapes = [run.shapes.get(thing.number, thing.shape) for run in self._runs.values()]
            return (*shapes, thing.stride, thing.dtype, thing.on_device)
        return list(map(self._described, thing)) if isinstance(thing, list) else thing

    def _bytes(self, index: int) -> int:
        """What a call takes at most of the device at 2B; twice, for what it needs meanwhile."""
        call, shapes = self._program.calls[index], self._runs[2 * self._batch].shapes
        values = {value.number: value for value in tensors_in([*call.args, *call.outputs]) if value.on_device}
        return 2 * sum(
            math.prod(shapes.get(number, value.shape)) * value.item_bytes for number, value in values.items()
        )

    def _open(self, uuid: str, free_bytes: int, most_bytes: int) -> None:
        """Take the job's device, if there is room, and read its clock."""
        cuda, needed = self._torch.cuda, most_bytes + SPARE_BYTES
        if self._torch.version.hip:
            raise NoAnswer("only NVIDIA's devices are replayed on")
        if needed > free_bytes:
            raise NoAnswer(
                f"it needs {needed >> 20} MiB of the GPU's memory; {free_bytes >> 20} MiB are free"
            )
        os.environ["CUDA_VISIBLE_DEVICES"] = f"GPU-{uuid}"
        if str(cuda.get_device_properties(0).uuid) != uuid:
            raise NoAnswer("the job's device can't be reached from another process")
        free_now, all_bytes = cuda.mem_get_info(0)
        if free_now < needed - OWN_BYTES:
            raise NoAnswer("the device's memory ran short")
        cuda.set_per_process_memory_fraction(min(1.0, (most_bytes + OWN_BYTES) / all_bytes))
        self._events = [cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(2):  # the first one loads what it needs
            self._floor_ns = 0.0
            self._cycle_ns = self._elapsed(lambda: cuda._sleep(CYCLES), 1, 0)[0] / CYCLES
            self._floor_ns = min(self._elapsed(lambda: None, 1, 10 * LEAST_AHEAD_NS)[0] for _ in range(3))

    def _warm(self, one: DistinctCall) -> None:
        """Run a call until all that is slow once is done, and see how it is to be timed."""
        try:
            for width in self._runs:
                call = self._call(one, width)
                self._elapsed(call, 1, 0)
                one.host_ns[width] = min(self._elapsed(call, 1, 0)[1] for _ in range(2))
                taken = self._read(one, width)
                one.device_ns[width] = taken if taken >= NO_KERNEL_NS else 0.0
        except self._torch.cuda.OutOfMemoryError as error:
            raise NoAnswer("the device's memory ran short") from error
        except Exception as error:  # noqa: BLE001 - whatever an operator says of made-up arguments
            text = str(error).strip().partition("\n")[0][:160]
            name = self._program.calls[one.places[0]].name
            self._player.failed.update(dict.fromkeys(one.places, f"{name}: {type(error).__name__}: {text}"))

    def _worth(self, known: list[DistinctCall]) -> list[DistinctCall]:
        """Those that take most of the device's time, the dearest first."""
        known = sorted(known, key=DistinctCall.all_ns, reverse=True)
        before_ns = accumulate(map(DistinctCall.all_ns, known), initial=0.0)
        all_ns = sum(map(DistinctCall.all_ns, known))
        return [one for one, ns in zip(known, before_ns, strict=False) if ns < TIMED * all_ns]

    def _retimed(self, one: DistinctCall) -> bool:
        """Time a call while the job pauses; False once the pauses are used up."""
        if perf_counter_ns() >= self._until_ns:
            if self._slices == SLICES:
                return False
            self._slices += 1
            os.kill(os.getpid(), signal.SIGSTOP)
            self._until_ns = perf_counter_ns() + SLICE_NS
        one.device_ns = {width: self._read(one, width) for width in self._runs}
        return True

    def _call(self, one: DistinctCall, width: int) -> Call:
        """The call, ready to run on new tensors."""
        index, run, player = one.places[0], self._runs[width], self._player
        call = self._program.calls[index]
        func, schema = player.operator(call.name)
        values = tensors_in(call.args)
        table = {value.number: player.make(value, run.shapes[value.number]) for value in values}
        plain, named = run.ready(index, schema, table, "cuda")
        return lambda: func(*plain, **named)

    def _read(self, one: DistinctCall, width: int) -> float:
        """Device nanoseconds of one call.

        The device sleeps while the host issues it, so that it then works without a pause. A call that returns
        only after the sleep waits for the device: its time is that on an idle one.
        """
        call, host_ns = self._call(one, width), one.host_ns[width]
        usual_ns = one.device_ns.get(width) or BATCHED_NS
        repeats = max(1, min(MOST_REPEATS, int(BATCHED_NS / usual_ns)))
        for ahead in AHEADS if one.waits_ns is None else ():
            taken, _, waited = self._elapsed(call, repeats, LEAST_AHEAD_NS + ahead * repeats * host_ns)
            if not waited:
                return taken
        taken, host_ns, _ = self._elapsed(call, 1, 0)
        one.waits_ns = max(0.0, host_ns - taken)
        return taken

    def _elapsed(self, call: Call, repeats: int, sleep_ns: float) -> tuple[float, float, bool]:
        """Nanoseconds of the device and of the host for each, and whether the host had to wait."""
        before, after = self._events
        if sleep_ns:
            self._torch.cuda._sleep(int(sleep_ns / self._cycle_ns))
        before.record()
        began_ns = perf_counter_ns()
        for _ in range(repeats):
            call()
        host_ns = perf_counter_ns() - began_ns
        after.record()
        waited = before.query()
        after.synchronize()
        device_ns = 1e6 * before.elapsed_time(after) - self._floor_ns
        return max(0.0, device_ns) / repeats, host_ns / repeats, waited
