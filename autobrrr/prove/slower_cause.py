"""Where a slower side loses its time: the phase, and the line that the training thread stands at more often.

In: phases and sampled stacks of both sides, in windows that take turns: what the machine does meanwhile is
no cause. Out: a `SlowerCause`, or none where the windows do not agree. Lines move from one version of a file
to the next: places are compared by file and function, and shown with their line in `after`.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autobrrr.machine import procfs
from autobrrr.records import FrameSamples
from autobrrr.records.proof_records import SlowerCause
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.study.timed_turns import AFTER, BEFORE, TimedTurns
from autobrrr.relaunch.trial.live_trial import LOOK_S, LiveTrial
from autobrrr.relaunch.trial.trial_agents import CLOSELY, TrialAgents
from autobrrr.tuner.confidence_sequence import student_quantile

LOOKS = (6, 9, 14, 21)  # windows of each side after which it is asked whether they say it
FRAMES_MS, LONGEST_MS, EVERY_MS, PATIENCE_S = 500, 10_000, 4, 10.0
STEPS = 6  # that a window has at least
FEWEST_SAMPLES = 10  # in each window
# Of the samples asked for. The sampler waits for the interpreter's lock as long as a collection of garbage
# takes: whatever runs after that is no place where time goes.
LEAST_SEEN = 0.2
ALPHA = 0.01  # of the first look; of each further one half as much as of the one before
CLEAR = 0.25  # of what a step has become longer, a phase or a place must explain
PLACE = re.compile(r"(?P<file>[^:]*):(?P<line>\d+)(?P<function>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One side while it ran for a moment.

    Attributes:
        phases_ns: Of one step, lower quartiles; empty: not measured.
        means_ns: The same as means: what only some steps have counts too, and so does what others took.
        waited_ns: Of one step, for a CPU that others had.
        asked_samples: Of stacks; what could not be taken was not seen.
    """

    phases_ns: Mapping[str, float]
    frames: FrameSamples | None
    waited_ns: float = 0.0
    asked_samples: float = 0.0
    means_ns: Mapping[str, float] = field(default_factory=dict)

    @property
    def step_ns(self) -> float:
        return sum(self.phases_ns.values())

    @property
    def seen_share(self) -> float:
        """Of the samples asked for, those that were taken; 0: too few to go by."""
        if self.frames is None or self.frames.samples < max(FEWEST_SAMPLES, LEAST_SEEN * self.asked_samples):
            return 0.0
        return min(1.0, self.frames.samples / max(1.0, self.asked_samples))

    def by_place(self, phase: str) -> dict[str, float]:
        """Share of the samples that stood in this phase, by file and function."""
        if self.frames is None:
            return {}
        found: Counter[str] = Counter()
        for each in self.frames.places:
            if each.phase == phase:
                found[_without_line(each.where)] += each.samples
        return {name: count / self.frames.samples for name, count in found.items()}


def why_slower(sides: TimedTurns) -> SlowerCause | None:
    """Start each side once more and find where the slower one loses its time; None if that is not clear."""
    sides.tell("why it is slower: sampling both")
    try:
        with sides.up(BEFORE, AFTER) as trials:
            return slower_cause(trials[BEFORE], trials[AFTER])
    except Unmeasurable:
        return None


def slower_cause(before: LiveTrial, after: LiveTrial) -> SlowerCause | None:
    """Run each for some moments, the other suspended; longer where that is not clear yet."""
    its, mine = before.witnesses.chief, after.witnesses.chief
    if its is None or mine is None:
        return None
    its.cadence = mine.cadence = CLOSELY
    pairs: list[tuple[Window, Window]] = []
    found: SlowerCause | None = None
    for number, look in enumerate(LOOKS):
        alpha = ALPHA / 2**number
        while len(pairs) < look:
            pairs.append((_window(before, its), _window(after, mine)))
            if before.ending is not None or after.ending is not None:
                return found
        means = [(_of_means(one), _of_means(other)) for one, other in pairs]
        found = cause(pairs, alpha) or cause(means, alpha) or found
        if found is not None and found.place is not None:
            break
    return found


def cause(pairs: Sequence[tuple[Window, Window]], alpha: float = ALPHA) -> SlowerCause | None:
    """Neighbouring windows (before, after); None where it can't be told from what changes between them."""
    if any(not each.phases_ns for pair in pairs for each in pair):
        return None
    names = list(pairs[0][1].phases_ns)
    spent = np.array([[[each.phases_ns.get(name, 0.0) for name in names] for each in pair] for pair in pairs])
    more = spent[:, 1] - spent[:, 0]  # shape [pairs, phases]
    grown = [_surely(each, alpha) for each in more.T]
    at = max(range(len(names)), key=lambda i: grown[i] or 0.0)
    longer_ns, growth_ns = _surely(more.sum(axis=1), alpha), grown[at]
    if longer_ns is None or growth_ns is None:
        return None
    # Others take the CPU from a thread that never sleeps in all of its phases alike. All of it may lie in
    # this phase: what is left without it must still be clear.
    own_ns, least_ns = _surely(more[:, at] - _waited_ns(pairs), alpha), CLEAR * longer_ns
    if own_ns is None or own_ns < least_ns:
        return None
    place, place_ns = _place(pairs, names[at], least_ns, alpha)
    return SlowerCause(
        phase=names[at],
        phases_ns=dict(zip(names, spent.mean(axis=0).T.tolist(), strict=True)),
        place=place,
        place_ns=None if place_ns is None else min(place_ns, growth_ns),
    )


def _of_means(window: Window) -> Window:
    return replace(window, phases_ns=window.means_ns)


def _surely(values: Sequence[float] | NDArray[np.float64], alpha: float) -> float | None:
    """The mean, where it is above zero by Student's test; None: it may be chance."""
    if len(values) < 3:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean if mean > student_quantile(1 - alpha, len(values) - 1) * error else None


def _place(
    pairs: Sequence[tuple[Window, Window]], phase: str, least_ns: float, alpha: float
) -> tuple[str | None, float | None]:
    """The place in this phase at which a step of `after` stands longer than one of `before`, and by how much.

    It must explain so much by itself: what was not seen, beyond what is not seen of `before` either, stands
    elsewhere, each look that came late fell at this place by chance, and all waits for a CPU were there.
    """
    if not all(each.seen_share for pair in pairs for each in pair):
        return None, None
    seen = min(1.0, sum(each.seen_share for _, each in pairs) / sum(each.seen_share for each, _ in pairs))
    spent = [(before.by_place(phase), after.by_place(phase)) for before, after in pairs]
    waited_ns = _waited_ns(pairs)

    def grown_ns(name: str) -> list[tuple[float, float]]:
        """For each pair: if samples are everywhere as dense; and what is proven."""
        found = []
        for (before, after), (its, mine) in zip(pairs, spent, strict=True):
            its_ns, mine_ns = before.step_ns * its.get(name, 0.0), after.step_ns * mine.get(name, 0.0)
            doubtful_ns = after.step_ns * (1 - seen) + waited_ns
            found.append((mine_ns - its_ns, mine_ns * seen - its_ns - doubtful_ns))
        return found

    every = {name: grown_ns(name) for name in {each for _, mine in spent for each in mine}}
    name = max(every, key=lambda name: sum(proven for _, proven in every[name]), default=None)
    if name is None or (_surely([proven for _, proven in every[name]], alpha) or 0.0) < least_ns:
        return None, None
    shown: Counter[str] = Counter()
    for _, after in pairs:
        for each in after.frames.places if after.frames is not None else ():
            if _without_line(each.where) == name:
                shown[each.where] += each.samples
    return shown.most_common(1)[0][0], _surely([likely for likely, _ in every[name]], alpha)


def _waited_ns(pairs: Sequence[tuple[Window, Window]]) -> float:
    """So much longer a step of `after` waited for a CPU."""
    return max(0.0, float(np.mean([after.waited_ns - before.waited_ns for before, after in pairs])))


def _without_line(where: str) -> str:
    found = PLACE.fullmatch(where)
    return where if found is None else found["file"] + found["function"]


def _window(trial: LiveTrial, agent: TrialAgents) -> Window:
    for_ms = min(LONGEST_MS, max(FRAMES_MS, int(STEPS * trial.steps.typical_ns / 1e6)))
    waited_ns, resumed_ns = procfs.run_delay_ns(agent.pid, agent.pid) or 0, trial.resume()
    agent.sample_frames(for_ms, EVERY_MS)
    deadline_s = time.monotonic() + for_ms / 1000 + PATIENCE_S
    while trial.ending is None and agent.frames is None and time.monotonic() < deadline_s:
        trial.look()
        time.sleep(LOOK_S)
    delayed_ns = (procfs.run_delay_ns(agent.pid, agent.pid) or 0) - waited_ns
    share = delayed_ns / (time.perf_counter_ns() - resumed_ns)
    if trial.ending is None:
        trial.pause()
    phases_ns, means_ns = trial.steps.phases_ns(resumed_ns)
    return Window(
        phases_ns=phases_ns,
        means_ns=means_ns,
        frames=agent.frames,
        waited_ns=max(0.0, share) * sum(phases_ns.values()),
        asked_samples=for_ms / EVERY_MS,
    )
