"""What signals over sampled stacks share: the part of the samples that stands at some places."""

from __future__ import annotations

import math
from collections.abc import Callable

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed
from autobrrr.records import CodeSite, FrameCount, FrameSamples, Regime

UNIT = "share of samples"


def frames_reading(
    measured: Measurements, name: str, regime: Regime, counted: Callable[[FrameCount], int], where: str
) -> Reading:
    """Speaks for the regime at half of the samples, against it at a quarter; `counted`: of a place's."""
    frames = measured.frames
    if frames is None:
        return abstention(name, UNIT, "no stack sampled yet")
    if frames.samples < thresholds.FRAME_SAMPLES:
        return abstention(name, UNIT, f"{frames.samples} of {thresholds.FRAME_SAMPLES} samples")
    share = standing(frames, counted)
    top = busiest(frames, counted)
    most = f", most at {top}" if top else ""
    note = f"{of_one(share)} of {frames.samples} samples {where}{most}"
    return weighed(name, UNIT, regime, share, note, firm=is_firm(share, frames.samples))


def is_firm(share: float, samples: int) -> bool:
    """Whether two standard errors leave half of the samples."""
    error = 2 * (share * (1 - share) / samples) ** 0.5
    return samples >= thresholds.FRAME_SAMPLES_FIRM and share - error >= thresholds.NAMED_AT


def standing(frames: FrameSamples, counted: Callable[[FrameCount], int]) -> float:
    """The share of the samples that count, 0-1; of none: 0."""
    found = sum(max(0, counted(place)) for place in frames.places)
    return min(1.0, found / frames.samples) if frames.samples > 0 else 0.0


def standing_at_least(measured: Measurements, counted: Callable[[FrameCount], int]) -> float | None:
    """The same less two standard errors; None where too few stacks were sampled."""
    frames = measured.frames
    if frames is None or frames.samples < thresholds.FRAME_SAMPLES:
        return None
    share = standing(frames, counted)
    return share - 2 * math.sqrt(share * (1 - share) / frames.samples)


def in_own_code(place: FrameCount) -> int:
    """Samples in the user's code between the phases that loads nothing and waits for no rank."""
    own = place.phase == "other" and not is_loading(place) and not place.in_collective
    return place.samples - place.in_between if own else 0


def in_library(place: FrameCount) -> int:
    """Samples in torch's or a framework's code, which gets to the operators."""
    return 0 if is_loading(place) or place.in_collective else place.in_between


def in_loading(place: FrameCount) -> int:
    """Samples in what the loop reads its batches from."""
    return place.samples * is_loading(place)


def is_loading(place: FrameCount) -> bool:
    """Whether it lies in what the loop reads its batches from: a DataLoader, or the script's own generator.

    By the frames themselves, never by the phase: that would be the loader's clock once more.
    """
    return place.in_loader or place.in_feed


def feed_standing(measured: Measurements) -> float:
    """Of the sampled stacks, those in a generator of the script's own that the loop reads from."""
    frames = measured.frames
    if frames is None or frames.samples < thresholds.FRAME_SAMPLES:
        return 0.0
    return standing(frames, lambda place: place.samples * place.in_feed)


def in_collective(place: FrameCount) -> int:
    """Samples in which the user's code waits in a collective."""
    return place.samples * place.in_collective


def placed(where: str) -> tuple[str, int, str]:
    """File, line and function of "train.py:31 main"."""
    place, _, function = where.partition(" ")
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdecimal() else 0, function


def sites(measured: Measurements, *kinds: str) -> list[CodeSite]:
    """Places of these kinds in the code that was running, the dearest first."""
    found = measured.frames.code if measured.frames is not None else []
    return sorted((site for site in found if site.what in kinds), key=lambda site: -site.samples)


def busiest(frames: FrameSamples | None, counted: Callable[[FrameCount], int]) -> str | None:
    """The place with most of the samples that count."""
    places = [place for place in (frames.places if frames else []) if counted(place) > 0]
    return max(places, key=counted).where if places else None
