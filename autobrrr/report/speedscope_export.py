"""Sampled stacks of a session as a file for speedscope: one profile for each time that some were taken.

In: a session log that was read. Out: JSON of speedscope's own format; weights are samples.
"""

from __future__ import annotations

import json

from autobrrr.errors import AutobrrrError
from autobrrr.readable import readable
from autobrrr.records import FrameSamples
from autobrrr.report.text.session_text import PastSession

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def exported(session: PastSession) -> str:
    """The file's text: all that was sampled.

    Raises:
        AutobrrrError: no stacks were taken.
    """
    taken = [each for each in session.sampled if stacks(each)]
    if not taken:
        raise AutobrrrError(
            f"{session.path.stem} holds no sampled stacks",
            "attach for longer and not with --readonly: stacks are sampled after traced steps, on a CPU",
        )
    return json.dumps(speedscope(session.path.stem, taken))


def stacks(taken: FrameSamples) -> list[tuple[list[str], int]]:
    """Each stack from its phase down, and how often it was found; of older logs the innermost frames."""
    if taken.paths:
        return [([each.phase, *each.frames], each.samples) for each in taken.paths]
    return [([each.phase, each.where], each.samples) for each in taken.places]


def speedscope(name: str, taken: list[FrameSamples]) -> dict[str, object]:
    """The file's object."""
    numbers: dict[str, int] = {}
    profiles = []
    for count, each in enumerate(taken, 1):
        found = stacks(each)
        samples = [
            [numbers.setdefault(readable(frame), len(numbers)) for frame in frames] for frames, _ in found
        ]
        weights = [weight for _, weight in found]
        profiles.append(
            {
                "type": "sampled",
                "name": f"{name}, {count} of {len(taken)}",
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": "autobrrr",
        "shared": {"frames": [{"name": frame} for frame in numbers]},
        "profiles": profiles,
    }
