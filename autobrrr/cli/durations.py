"""Durations and shares as users write them: `300ms`, `10s`, `1.5m`, `2h`; `2%`."""

from __future__ import annotations

import argparse
import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)


def duration_s(text: str) -> float:
    """Seconds, for `type=` of an argument.

    Raises:
        argparse.ArgumentTypeError: it is none, or zero.
    """
    found = _WRITTEN.fullmatch(text.strip())
    seconds = float(found.group(1)) * _SECONDS[found.group(2)] if found else 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 300ms, 10s, 5m or 2h")
    return seconds


def share_of_work(text: str) -> float:
    """A share from 0 to 1, for `type=` of an argument.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    found = _PERCENT.fullmatch(text.strip())
    if found is None or float(found.group(1)) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 2%")
    return float(found.group(1)) / 100
