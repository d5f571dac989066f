"""Where a slower side loses its time: the phase, and the line that the training thread stands at more often.

In: phases and sampled stacks of both sides, while each runs alone. Out: a `SlowerCause`. Lines move from one
version of a file to the next: places are compared by file and function, and shown with their line in `after`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping

from autobrrr.records import FrameSamples
from autobrrr.records.proof_records import SlowerCause
from autobrrr.relaunch.study.paired_comparison import typical_ns
from autobrrr.relaunch.trial.live_trial import LOOK_S, LiveTrial

FRAMES_MS, EVERY_MS, PATIENCE_S = 1500, 4, 10.0
FEWEST_SAMPLES = 50
CLEAR = 0.25  # of what a step has become longer, a place must explain
PLACE = re.compile(r"(?P<file>[^:]*):(?P<line>\d+)(?P<function>.*)")


def slower_cause(before: LiveTrial, after: LiveTrial) -> SlowerCause | None:
    """Run each for a moment, the other suspended; None where too little was seen."""
    frames = [_frames(trial) for trial in (before, after)]
    return cause(
        (before.steps.phases_ns, after.steps.phases_ns),
        (typical_ns(before), typical_ns(after)),
        (frames[0], frames[1]),
    )


def cause(
    phases: tuple[Mapping[str, float], Mapping[str, float]],
    step_ns: tuple[float, float],
    frames: tuple[FrameSamples | None, FrameSamples | None],
) -> SlowerCause | None:
    """Each pair is (before, after).

    Args:
        phases: Nanoseconds of one step by phase; empty: not measured.
    """
    longer_ns = step_ns[1] - step_ns[0]
    if longer_ns <= 0 or not phases[0] or not phases[1]:
        return None
    both = {name: [phases[0].get(name, 0.0), phases[1].get(name, 0.0)] for name in phases[1]}
    phase = max(both, key=lambda name: both[name][1] - both[name][0])
    place, place_ns = _place(step_ns, frames)
    return SlowerCause(
        phase=phase,
        phases_ns=both,
        place=place if place_ns >= CLEAR * longer_ns else None,
        place_ns=place_ns if place_ns >= CLEAR * longer_ns else None,
    )


def _place(
    step_ns: tuple[float, float], frames: tuple[FrameSamples | None, FrameSamples | None]
) -> tuple[str | None, float]:
    """The place at which a step of `after` stands longer than one of `before`, and by how much."""
    spent: list[Counter[str]] = []
    shown: dict[str, Counter[str]] = {}
    for typical, found in zip(step_ns, frames, strict=True):
        if found is None or found.samples < FEWEST_SAMPLES:
            return None, 0.0
        by_place: Counter[str] = Counter()
        for each in found.places:
            name = _without_line(each.where)
            by_place[name] += each.samples
            if found is frames[1]:
                shown.setdefault(name, Counter())[each.where] += each.samples
        spent.append(Counter({name: typical * count / found.samples for name, count in by_place.items()}))
    if not shown:
        return None, 0.0
    name = max(shown, key=lambda each: spent[1][each] - spent[0][each])
    return shown[name].most_common(1)[0][0], float(spent[1][name] - spent[0][name])


def _without_line(where: str) -> str:
    found = PLACE.fullmatch(where)
    return where if found is None else found["file"] + found["function"]


def _frames(trial: LiveTrial) -> FrameSamples | None:
    trial.resume()
    trial.witnesses.sample_frames(FRAMES_MS, EVERY_MS)
    deadline_s = time.monotonic() + FRAMES_MS / 1000 + PATIENCE_S
    while trial.ending is None and trial.witnesses.frames is None and time.monotonic() < deadline_s:
        trial.look()
        time.sleep(LOOK_S)
    if trial.ending is None:
        trial.pause()
    return trial.witnesses.frames
