"""A simulated job for the tuner: noise that clings, drift, slow steps, evaluations; no real time passes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.wire import ring_layout
from autobrrr.errors import TargetGone
from autobrrr.records import ExactnessClass, Shares, Verdict, from_registry
from autobrrr.records.tuning_records import MemoryPeaks, highest
from autobrrr.records.wire_answers import ActiveRemedy
from autobrrr.tuner.job_under_test import STEP, Compilation, NotApplied, RemedyLost, StepClock, Steps
from support.sessions.sidecar import job_facts

CHUNK = 4096
CLASSES: tuple[ExactnessClass, ...] = get_args(ExactnessClass)

NO_PROCESS = "no process can"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one remedy does to the simulated job."""

    speed: float = 1.0  # factor on speed
    refuses: str | None = None
    beside: Mapping[str, float] = field(default_factory=dict)  # another factor where that remedy is on too
    lost_after_steps: int | None = None
    pause_ns: int = 0
    host_bytes: int | None = None  # the most memory of the job with it
    warm_up_ns: int = 0  # what the first step takes longer, when it goes on for the first time
    compiles_ns: int | None = None  # what that takes in a process beside the job; None: none can
    slowed: float = 1.0  # factor on speed beside that process


NOTHING = Effect()


@dataclass
class SimulatedCompilation:
    """Takes the job's own time, and slows it down meanwhile."""

    job: "SimulatedJob"
    remedy: str
    effect: Effect

    def __post_init__(self) -> None:
        self.why = NO_PROCESS if self.effect.compiles_ns is None else None
        self.end_ns = self.job.now_ns() + (self.effect.compiles_ns or 0)

    @property
    def slowed(self) -> float:
        return 1.0 if self.done() else self.effect.slowed

    def done(self) -> bool:
        over = self.why is not None or self.job.now_ns() >= self.end_ns
        if over and self.why is None:
            self.job.compiled.add(self.remedy)
        return over

    def stop(self, why: str) -> None:
        self.why = None if self.done() else why


@dataclass
class SimulatedJob:
    """Implements `tuner.bench.Bench`.

    Steps take `base_ns` times exp(noise + drift), AR(1) noise of standard deviation `noise` and
    lag-one correlation `cling`, a sine of drift of `drift` from lowest to highest.
    """

    effects: Mapping[str, Effect] = field(default_factory=dict)
    seed: int = 0
    base_ns: float = 1_000_000.0
    noise: float = 0.05
    cling: float = 0.5
    drift: float = 0.06
    drift_steps: int = 2000
    slow_share: float = 0.005
    evaluation_every: int = 500
    checkpoint_every: int = 700
    epoch_steps: int = 0
    switch_ns: int = 5_000_000
    threads: int = 2
    cores: int | None = 2
    cancel_after_steps: int | None = None
    gone_after_steps: int | None = None
    stuck_with: str | None = None  # no step ends while this remedy is on
    stands_still: bool = False
    paused_after_steps: int | None = None
    lengths: float = 0.0  # standard deviation of log(tokens); most of a step's time goes by them
    lengths_seen: bool = True
    clock: StepClock = "host"
    crowded_by: str | None = None
    taken: float = 0.0  # ns of training, by what measures it

    def __post_init__(self) -> None:
        self.facts = job_facts(4711, threads=self.threads)
        self._random = np.random.default_rng(self.seed)
        self._phase = self._random.uniform(0, 2 * np.pi)
        self._carry = 0.0
        self._noise: NDArray[np.float64] = np.empty(0)
        self._records = np.zeros(CHUNK, dtype=STEP)
        self._count = 0
        self._clock_ns = 0
        self._arm = 0
        self._changed = False
        self._pause_ns = 0
        self._stall_ns = 0
        self._warm: set[str] = set()
        self.compiled: set[str] = set()  # beside the job
        self._compiling: SimulatedCompilation | None = None
        self._tokens = 0
        self.on: dict[
            int, tuple[str, str, int]
        ] = {}  # by token: its name, that with options, since which step
        self._this_epoch: list[tuple[str, str, int]] = []  # of those on, what the epoch has begun with
        self.history: list[tuple[str, str]] = []
        self._lost: dict[int, str] = {}
        self._peaks: dict[str, MemoryPeaks] = {}
        self.rested_with: list[list[str]] = []

    @property
    def paused(self) -> bool:
        return self.paused_after_steps is not None and self._count >= self.paused_after_steps

    def taken_ns(self) -> float:
        return self.taken

    def crowd(self, last_ns: int) -> str | None:
        return self.crowded_by

    def rest_while_paused(self) -> None:
        self.rested_with.append(self.names_on)
        self.paused_after_steps = None

    @property
    def names_on(self) -> list[str]:
        return [name for name, _, _ in self.on.values()]

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        self._pass(self.switch_ns)
        key = self._key(remedy, options)
        effect = self._effect(remedy, key)
        if effect.refuses is not None:
            raise NotApplied(effect.refuses)
        self._tokens += 1
        self.on[self._tokens] = (remedy, key, self._count)
        self.history.append(("apply", remedy))
        self._arm, self._changed = self._arm + 1, True
        self._pause_ns = effect.pause_ns
        if remedy not in self._warm:
            self._warm.add(remedy)
            self._stall_ns = effect.warm_up_ns // (10 if remedy in self.compiled else 1)
        return self._tokens, self._count

    def undo(self, token: int) -> int:
        if token in self._lost:
            return self._count
        if token not in self.on:
            raise RemedyLost(f"no remedy {token}")
        self._pass(self.switch_ns)
        if token in self.on:
            name, key, _ = self.on.pop(token)
            self._peaks[name] = MemoryPeaks(host_bytes=self._effect(name, key).host_bytes)
            self.history.append(("undo", name))
        self._arm, self._changed = self._arm + 1, True
        return self._count

    def prepare(self, remedy: str, options: Mapping[str, object]) -> Compilation:
        effect = self._effect(remedy, self._key(remedy, options))
        self._compiling = SimulatedCompilation(self, remedy, effect)
        return self._compiling

    def take_peaks(self, remedies: Collection[str]) -> MemoryPeaks:
        peaks, self._peaks = self._peaks, {}
        return highest(peak for name, peak in peaks.items() if name in remedies)

    def lost(self) -> Mapping[int, str]:
        return dict(self._lost)

    def next_seq(self) -> int:
        return self._count

    def steps(self, first_seq: int, count: int, timeout_ns: int) -> Steps:
        deadline_ns = self._clock_ns + timeout_ns
        if self.stands_still or self.stuck_with in self.names_on:
            self._clock_ns = deadline_ns
            return self._records[first_seq : self._count].copy()
        while self._count < first_seq + count and self._clock_ns < deadline_ns and not self.cancelled():
            self._run(min(16, first_seq + count - self._count))
        return self._records[first_seq : self._count].copy()

    def now_ns(self) -> int:
        return self._clock_ns

    def cancelled(self) -> bool:
        return self.cancel_after_steps is not None and self._count >= self.cancel_after_steps

    def _pass(self, ns: int) -> None:
        """Training goes on while a command is under way: at least to the next boundary."""
        until_ns = self._clock_ns + ns
        self._run(1)
        while (left_ns := until_ns - self._clock_ns) > 0:
            self._run(max(1, int(left_ns / self.base_ns / 2)))

    def _run(self, count: int) -> None:
        if self.gone_after_steps is not None and self._count >= self.gone_after_steps:
            raise TargetGone("pid 4711 has ended")
        first, count = self._count, min(count, CHUNK)
        while len(self._records) < first + count:
            self._records = np.concatenate([self._records, np.zeros_like(self._records)])
        if self.epoch_steps:
            count = min(count, self.epoch_steps - first % self.epoch_steps)
            if first % self.epoch_steps == 0:
                self._this_epoch = [each for each in self.on.values() if _by_epoch(each[0])]
        numbers = np.arange(first, first + count)
        drift = self.drift / 2 * np.sin(2 * np.pi * numbers / self.drift_steps + self._phase)
        took = self.base_ns * np.exp(self._draw(count) + drift) / self._speed()
        took = np.where(self._random.random(count) < self.slow_share, 3 * took, took)
        records = self._records[first : first + count]
        if self.lengths:
            tokens = np.maximum(1, 1000 * np.exp(self._random.normal(0, self.lengths, count))).astype(
                np.int64
            )
            took *= 0.2 + 0.8 * tokens / 1000
            records["tokens"] = tokens if self.lengths_seen else -1
            records["loss_finite"] = -1
        if self.checkpoint_every:
            took = np.where(numbers % self.checkpoint_every == self.checkpoint_every - 1, 20 * took, took)
        if self.evaluation_every:
            evaluating = numbers % self.evaluation_every == self.evaluation_every - 1
            took = np.where(evaluating, 15 * took, took)
            records["flags"] = np.where(evaluating, ring_layout.EVALUATION, 0)
        if self.lengths:
            records["flags"] |= ring_layout.PHASES
        if self.epoch_steps and first % self.epoch_steps == 0:
            records["flags"][0] |= ring_layout.EPOCH
        if self._stall_ns:
            took[0] += self._stall_ns
            self._stall_ns = 0
        took = self._stretched(took)
        ends = self._clock_ns + np.cumsum(took.astype(np.int64))
        records["seq"], records["arm"] = numbers, self._arm
        records["end_ns"], records["start_ns"] = ends, ends - took.astype(np.int64)
        if self._changed:
            records["flags"][0] |= ring_layout.SWITCHED
            records["own_ns"][0] = self._pause_ns
            self._changed = False
        self._clock_ns = int(ends[-1])
        self._count += count
        self._lose()
        if (finite := self._loss()) is not None:
            sampled = records[::8]
            sampled["flags"] |= ring_layout.PHASES
            sampled["loss_finite"] = finite

    def _stretched(self, took: NDArray[np.float64]) -> NDArray[np.float64]:
        """A subclass may make some of these steps longer."""
        return took

    def _loss(self) -> int | None:
        """A subclass may set the loss of sampled steps (every eighth)."""
        return None

    def _draw(self, count: int) -> NDArray[np.float64]:
        while len(self._noise) < count:
            fresh = self._random.normal(0, self.noise * np.sqrt(1 - self.cling**2), CHUNK)
            clinging = accumulate(
                fresh.tolist(), lambda last, new: new + self.cling * last, initial=self._carry
            )
            noise = np.fromiter(clinging, np.float64)[1:]
            self._carry = float(noise[-1])
            self._noise = np.concatenate([self._noise, noise])
        drawn, self._noise = self._noise[:count], self._noise[count:]
        return drawn

    def _speed(self) -> float:
        speed = 1.0 if self._compiling is None else self._compiling.slowed
        names = self.names_on
        at_once = [each for each in self.on.values() if not _by_epoch(each[0])]
        for name, key, _ in (*at_once, *self._this_epoch):
            effect = self._effect(name, key)
            beside = [factor for other, factor in effect.beside.items() if other in names]
            speed *= beside[0] if beside else effect.speed
        return speed

    def _effect(self, name: str, key: str) -> Effect:
        return self.effects.get(key) or self.effects.get(name, NOTHING)

    def lose(self, remedy: str) -> None:
        """It goes off by itself."""
        for token in [token for token, (name, _, _) in self.on.items() if name == remedy]:
            del self.on[token]
            self._lost[token] = "the job replaced its optimizer"

    def _lose(self) -> None:
        for name, _, since in list(self.on.values()):
            limit = self.effects.get(name, NOTHING).lost_after_steps
            if limit is not None and self._count - since > limit:
                self.lose(name)

    @staticmethod
    def _key(remedy: str, options: Mapping[str, object]) -> str:
        inside = ", ".join(f"{name}={value}" for name, value in options.items())
        return f"{remedy}({inside})" if inside else remedy


def _by_epoch(name: str) -> bool:
    return name in REGISTRY and REGISTRY[name].reach == "next_epoch"


def on_already(job: SimulatedJob, remedy: str) -> ActiveRemedy:
    """Switched on before a tuning begins."""
    token, _ = job.apply(remedy, {})
    return ActiveRemedy(**msgspec.structs.asdict(from_registry(remedy)), token=token)


def verdict(**expected: float) -> Verdict:
    """Overhead, with advice on remedies and the gain expected of each; `_` stands for the first `.`."""
    advice = [
        msgspec.structs.replace(from_registry(name.replace("_", ".", 1)), expected=factor)
        for name, factor in expected.items()
    ]
    return Verdict(
        regime="overhead", confidence="high", reason="", shares=Shares(), evidence=[], advice=advice
    )
