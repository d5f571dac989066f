"""The replays of one tape: which size comes next, what fits into a pause and into memory.

In: the tape with its proven batch dimension. Each call makes one replay; out come the durations
by batch size, what one replay consists of, and notes on sizes that were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ..live_torch import available_memory
from ..live_torch.handler_errors import raised_by_handler
from ..live_torch.torch_types import Abstain, tensor_bytes
from . import replay_schedule
from .batch_dim import Slicing
from .probe_axes import BATCH, Axis
from .resize_plan import ResizePlan
from .step_replay import Census, Player, Timing

_IN_A_ROW = 3
_MARGIN = 1.25  # a replay may take longer than those before it
_ENOUGH_QUIET = 3
_SPARED = 0.7  # of what is planned for: the proof and the guards take the rest
_SHORT_NS = 10_000_000  # what three in a row may take


class Measurement:
    """All replays of a probe.

    Args:
        player: Replays the tape.
        slicings: The proven batch dimensions, by node number.
        factors: Of the batch size; None for the axis' own.
        axis: Along what it is measured, where that is not the batch.
        root: Where `proc` and `sys` are.
    """

    def __init__(
        self,
        player: Player,
        *,
        slicings: dict[int, Slicing],
        factors: Sequence[float] | None,
        root: Path,
        axis: Axis,
    ) -> None:
        self._player = player
        self._slicings = slicings
        self._root = root
        self._guess = 0
        self._axis = axis
        self._plan: ResizePlan = axis.plan(player.tape, slicings, axis.guesses[0])
        self._sizes = replay_schedule.batches(self._plan.batch, factors or axis.factors)
        self._queue: list[tuple[int, bool]] = []
        self._timings: dict[int, list[Timing]] = {}
        self._points: dict[int, list[Timing]] = {}
        self._pauses: dict[int, list[int]] = {}
        self._guard_ns = 0
        self._replayed = 0
        self._long = False  # steps are so long that few replays are made
        self._spent_ns = 0
        self._census: Census | None = None
        self._counted_at = 0
        self._counting_ns = 0
        self._small: Census | None = None  # the same at the smallest size
        self._smallest = self._sizes[0]
        self.notes: list[str] = []

    @property
    def batch(self) -> int:
        """B, or the length or width in its place."""
        return self._plan.batch

    @property
    def operations(self) -> int | None:
        """Operators of one replay."""
        return self._census.operations if self._census is not None else None

    @property
    def flops(self) -> int | None:
        """Floating-point operations of one replay at B."""
        census = self._census
        return census.flops if census is not None and self._counted_at == self.batch else None

    def points(self) -> list[dict[str, object]]:
        """Durations by batch size; of replays that nobody interrupted, where there are enough."""
        found: list[dict[str, object]] = []
        for size, timings in sorted(self._points.items()):
            kept = timings[1:] if self._long and len(timings) > replay_schedule.DECIDES else timings
            quiet = [timing for timing in kept if not timing.interrupted]
            used = quiet if len(quiet) >= _ENOUGH_QUIET else kept
            found.append(
                {
                    "batch": size,
                    "shadow_ns": [timing.shadow_ns for timing in used],
                    "minor_faults": int(median(timing.minor_faults for timing in used)),
                }
            )
        return found

    def progress(self) -> dict[str, object]:
        """How far the replays are: those made, all that are planned, and how many are needed to decide."""
        decisive = replay_schedule.decisive(self.batch, self._sizes)
        missing = (replay_schedule.DECIDES - len(self._points.get(size, ())) for size in decisive)
        return {
            "replays": self._replayed,
            "planned": self._replayed + len(self._queue),
            "decides_in": sum(max(0, one) for one in missing),
        }

    def memory(self) -> dict[str, object] | None:
        """What a step keeps for its backward, by size, and the largest batch that would fit."""
        census, small = self._census, self._small
        if census is None or self._axis.name != "batch":
            return None
        each = census.saved_bytes / self._counted_at
        if small is not None and self._counted_at > self._smallest:
            each = (census.saved_bytes - small.saved_bytes) / (self._counted_at - self._smallest)
        fixed = max(0.0, census.saved_bytes - each * self._counted_at)
        saved = fixed + each * self.batch
        free = available_memory.free_bytes(self._player.torch, self._root)
        bounded = free is not None and each >= 1
        return {
            "saved_bytes": int(saved),
            "per_sample_bytes": each,
            "peak_bytes": available_memory.peak_bytes(saved),
            "peak_2x_bytes": available_memory.peak_bytes(saved + each * self.batch),
            "free_bytes": free,
            "largest_batch": available_memory.largest(self.batch, int(saved), each, free or 0)
            if bounded
            else None,
        }

    def close(self) -> None:
        """Add what is to be said about the measurement as a whole."""
        timings = [timing for size in self._points.values() for timing in size]
        interrupted = sum(timing.interrupted for timing in timings)
        if interrupted:
            self.notes.append(f"{interrupted} of {len(timings)} replays were interrupted by other processes")

    def first(self) -> bool:
        """The first replay, at the smallest batch; False if it is to be tried again, another way.

        Raises:
            Abstain: the code around the modules can't be replayed at another batch.
        """
        try:
            self._play(self._sizes[0], timed=False)
        except Abstain:
            raise
        except Exception as error:  # the user's loss code may raise anything on a wrong guess
            if raised_by_handler(error):
                raise
            if "use_reentrant" in str(error) and not self._player.guarded.accumulates:
                self._player.guarded.accumulates = True
                return False
            self._guess += 1
            if self._guess >= len(self._axis.guesses):
                raise Abstain(
                    f"the step can't be replayed at a {self._axis.name} of {self._sizes[0]} "
                    f"({one_line(error)})"
                ) from None
            self._plan = self._axis.plan(self._player.tape, self._slicings, self._axis.guesses[self._guess])
            return False
        return True

    def count(self, rounds: int, step_ns: int, limit_ns: int) -> bool:
        """Count operators, FLOPs and bytes; then it is known what fits, and the replays are queued.

        Counting takes a replay up to three times its time: it is done at the smallest batch, and at the
        largest up to B that stays within the limit: what the two differ by is a sample's. False where
        another boundary is needed.
        """
        if self._small is None:
            began = self._player.clock()
            self._small = self._census = self._player.census(self._plan, self._smallest)
            self._counting_ns = self._player.clock() - began
            self._counted_at = self._smallest
            return False
        batch = self.batch
        dearer = max(1.0, self._counting_ns / self._pause(self._smallest, step_ns))
        self._long = self._axis is BATCH and step_ns >= replay_schedule.LONG_STEP_NS
        fitting = [
            size
            for size in self._sizes
            if not self._long and size <= batch and _MARGIN * dearer * self._pause(size, step_ns) <= limit_ns
        ]
        if max(fitting, default=self._smallest) > self._smallest:
            self._counted_at = max(fitting)
            self._census = self._player.census(self._plan, self._counted_at)
        census = self._census or self._small
        self._sizes = [size for size in self._sizes if self._fits(size, census)]
        replay_ns = self._expected(batch, step_ns) + self._guard_ns
        usual = [size for size in self._sizes if size <= 2 * batch]  # larger ones take what is left
        rounds = replay_schedule.rounds(rounds, step_ns, replay_ns, batch, usual)
        if self._long:
            self._queue = [(size, True) for size in replay_schedule.by_decision(batch, self._sizes)]
            return True
        dropped = replay_schedule.warm_ups(step_ns)
        self._queue = [(size, False) for _ in range(dropped) for size in sorted(self._sizes)][1:]
        for number in range(rounds):
            self._queue += [(size, True) for size in replay_schedule.cycle(self._sizes, batch, number)]
        return True

    def upcoming(self, step_ns: int, limit_ns: int) -> str | None:
        """What `replay` will do, in words; None when all is done. Leaves out what takes too long.

        Raises:
            Abstain: already a replay at B, or below, takes too long.
        """
        while self._queue:
            size, _ = self._queue[0]
            pause = self._pause(size, step_ns)
            expected = pause if size in self._pauses else int(_MARGIN * pause)
            if size > self.batch and expected > limit_ns:
                self._leave_out(size, f"a replay would take {expected / 1e6:.0f} ms, more than a pause may")
                continue
            if size in self._pauses and pause > limit_ns:
                spoken = f"a replay at {self._spoken(size)} would take {pause / 1e6:.0f} ms"
                raise Abstain(f"{spoken}, more than a pause may ({limit_ns / 1e6:.0f} ms)")
            coming = sum(entry[0] == size for entry in self._queue) * expected
            if size > 2 * self.batch and self._spent_ns + coming > _SPARED * replay_schedule.allowance_ns(
                step_ns
            ):
                self._leave_out(size, "its replays would take more of training than a probe may")
                continue
            return (
                f"probing {self._spoken(size)}, {self._replayed + 1} of {self._replayed + len(self._queue)}"
            )
        return None

    def replay(self, step_ns: int, limit_ns: int) -> None:
        """The next replay of the queue: three in a row where they are short, the first dropped.

        Right after a real step the allocator and the caches are as steps at B leave them, which
        flatters B; a step of some milliseconds is hardly touched by it.
        """
        size, timed = self._queue.pop(0)
        once = self._expected(size, step_ns)
        row = self._pause(size, step_ns) + (_IN_A_ROW - 1) * once
        short = timed and _IN_A_ROW * once < min(limit_ns // 3, _SHORT_NS) and row < limit_ns // 2
        try:
            self._play(size, timed=timed, replays=_IN_A_ROW if short else 1)
        except Exception as error:
            if size <= self.batch or isinstance(error, Abstain) or raised_by_handler(error):
                raise
            full = "memory" in f"{type(error).__name__} {error}".lower()
            self._leave_out(size, "out of memory" if full else f"refused ({one_line(error)})")

    def _play(self, size: int, *, timed: bool, replays: int = 1) -> None:
        began = self._player.clock()
        timings = self._player.time(self._plan, size, replays)
        spent_ns = self._player.clock() - began
        self._spent_ns += spent_ns
        again = sum(timing.shadow_ns for timing in timings[1:])
        trial_ns = 0 if self._replayed else spent_ns - sum(timing.shadow_ns for timing in timings)
        self._pauses.setdefault(size, []).append(spent_ns - again - trial_ns)
        around = max(0, spent_ns - sum(timing.shadow_ns for timing in timings))
        self._guard_ns = around if self._replayed == 0 else min(self._guard_ns, around)
        self._replayed += 1
        for timing in timings[1:] or timings:
            self._timings.setdefault(size, []).append(timing)
            if timed:
                self._points.setdefault(size, []).append(timing)

    def _fits(self, size: int, census: Census) -> bool:
        free = available_memory.available_bytes(self._player.torch, self._root)
        weights = sum(tensor_bytes(parameter) for parameter in self._player.guarded.parameters)
        scale = (size / self._counted_at) ** self._axis.power
        need = available_memory.needed_bytes(census.saved_bytes, weights, scale)
        if free is None or need <= free:
            return True
        amounts = f"needs {need >> 20} MiB of memory, {free >> 20} MiB are free"
        if size <= self.batch:
            raise Abstain(f"a replay at {self._spoken(size)} {amounts}")
        self.notes.append(f"{self._spoken(size)} left out: {amounts}")
        return False

    def _leave_out(self, size: int, why: str) -> None:
        self._sizes = [other for other in self._sizes if other != size]
        self._queue = [entry for entry in self._queue if entry[0] != size]
        self._points.pop(size, None)
        self.notes.append(f"{self._spoken(size)} left out: {why}")

    def _expected(self, size: int, step_ns: int) -> int:
        """From quiet replays; interrupted ones only tell once there are several of a size."""
        measured: dict[int, list[int]] = {}
        for at, timings in self._timings.items():
            quiet = [timing.shadow_ns for timing in timings if not timing.interrupted]
            if not quiet and len(timings) >= _ENOUGH_QUIET:
                quiet = [timing.shadow_ns for timing in timings]
            measured[at] = quiet
        return replay_schedule.predicted_ns(size, measured, step_ns, self.batch, self._axis.power)

    def _pause(self, size: int, step_ns: int) -> int:
        """What one replay takes of training, guard and copies included."""
        return replay_schedule.predicted_pause_ns(size, self._pauses, step_ns, self.batch, self._axis.power)

    def _spoken(self, size: int) -> str:
        letter = self._axis.letter
        if size == self.batch:
            return letter
        whole, rest = divmod(size, self.batch)
        if whole and not rest:
            return f"{whole}{letter}"
        share = f"{letter}/{self.batch // size}"
        return share if self.batch % size == 0 else f"a {self._axis.name} of {size}"


def one_line(error: BaseException) -> str:
    """An error in one line: its type and the first line of its message."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160]}" if text else type(error).__name__
