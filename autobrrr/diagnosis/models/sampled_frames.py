"""What signals over sampled stacks share: the part of the samples that stands at some places."""

from __future__ import annotations

from collections.abc import Callable

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import FrameCount, FrameSamples, Regime

UNIT = "share of samples"


def frames_reading(
    measured: Measurements, name: str, regime: Regime, belongs: Callable[[FrameCount], bool], where: str
) -> Reading:
    """Speaks for the regime at half of the samples, against it at a quarter."""
    frames = measured.frames
    if frames is None:
        return abstention(name, UNIT, "no stack sampled yet")
    if frames.samples < thresholds.FRAME_SAMPLES:
        return abstention(name, UNIT, f"{frames.samples} of {thresholds.FRAME_SAMPLES} samples")
    places = [place for place in frames.places if place.samples > 0 and belongs(place)]
    share = min(1.0, sum(place.samples for place in places) / frames.samples)
    top = f", most at {busiest(places)}" if places else ""
    says: Regime | None = regime if share >= thresholds.NAMED_AT else None
    against: tuple[Regime, ...] = (regime,) if share <= thresholds.EXCLUDED_AT else ()
    # Two standard errors of a share of that many samples.
    error = 2 * (share * (1 - share) / frames.samples) ** 0.5
    return Reading(
        signal=name,
        value=share,
        unit=UNIT,
        note=f"{of_one(share)} of {frames.samples} samples {where}{top}",
        says=says,
        against=against,
        firm=frames.samples >= thresholds.FRAME_SAMPLES_FIRM and share - error >= thresholds.NAMED_AT,
    )


def in_own_code(place: FrameCount) -> bool:
    """Whether the place lies in the user's code between the phases, loads nothing and waits for no rank."""
    return place.phase == "other" and not is_loading(place) and not place.in_collective


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
    return min(1.0, sum(place.samples for place in frames.places if place.in_feed) / frames.samples)


def busiest(places: list[FrameCount]) -> str:
    """The place with most samples."""
    return max(places, key=lambda place: place.samples).where


def busiest_own_code(frames: FrameSamples | None) -> str | None:
    """Where the user's own code stands most often."""
    places = [
        place for place in (frames.places if frames else []) if in_own_code(place) and place.samples > 0
    ]
    return busiest(places) if places else None


def busiest_in_collective(frames: FrameSamples | None) -> str | None:
    """Where the user's code calls a collective, and stands there most often."""
    places = [
        place for place in (frames.places if frames else []) if place.in_collective and place.samples > 0
    ]
    return busiest(places) if places else None


def busiest_loading(frames: FrameSamples | None) -> str | None:
    """Where loading stands most often."""
    places = [place for place in (frames.places if frames else []) if is_loading(place) and place.samples > 0]
    return busiest(places) if places else None
