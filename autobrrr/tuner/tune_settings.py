"""What a tuning may do: how long, over which horizon, with which classes, how sure."""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.records import ExactnessClass

MINUTE_NS = 60_000_000_000

SEARCH_SHARE = 0.55  # of the budget, for trials
ABLATION_SHARE = 0.65  # until when ablation must be through; the rest belongs to the closing run
CLOSING_SHARE = 1.25  # a closing run that looks promising may run over: else proven gains are thrown away


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """Settings of one tuning of a running job."""

    budget_ns: int = MINUTE_NS
    """Time of the whole tuning. A confirmation run that is not yet sure may take a quarter more."""

    spent_ns: int = 0
    """Of the user's time, what passed before the tuning: attaching and the verdict."""

    horizon_ns: int = 30 * MINUTE_NS
    """Time over which a gain counts against the pause of switching it on."""

    max_loss: float = 0.02
    """Share of its work by which the job may fall behind one that nobody tunes, in any five minutes."""

    allowed: tuple[ExactnessClass, ...] = ("bitwise", "rounding")
    """Exactness classes that may be tried; see `space.allowed_classes`."""
    unproven: bool = False
    """Whether what no device has run yet is tried without being named."""

    only: tuple[str, ...] = ()
    """Names of remedies; empty for all."""

    seed: int = 0
    """Of the order of blocks."""
