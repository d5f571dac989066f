"""What a session was asked for, and how it is passed on to the background process.

Imports nothing heavy: the command line and a sidecar that is about to fork read it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal, get_args

Probing = Literal["on", "off", "overridden"]
Sweep = Literal["batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How far a session may go."""

    readonly: bool = False
    """Neither traced steps nor probe nor remedies."""
    probing: Probing = "on"
    """Whether the batch probe runs; `overridden`: also over code that prints or writes."""
    outside: bool = False
    """No code in the target at all."""
    metrics: str | None = None
    """Where Prometheus may fetch figures: a port of this machine, or HOST:PORT."""

    def words(self) -> list[str]:
        """As arguments of `python -m autobrrr.sidecar`."""
        words = ["--probing", self.probing]
        if self.readonly:
            words.append("--readonly")
        if self.outside:
            words.append("--outside")
        if self.metrics is not None:
            words.append(f"--metrics={self.metrics}")
        return words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that `SessionOptions.words` gives."""
    parser.add_argument("--probing", choices=get_args(Probing), default="on")
    parser.add_argument("--readonly", action="store_true")
    parser.add_argument("--outside", action="store_true")
    parser.add_argument("--metrics")


def from_arguments(args: argparse.Namespace) -> SessionOptions:
    return SessionOptions(
        readonly=args.readonly,
        probing=args.probing,
        outside=args.outside,
        metrics=args.metrics,
    )
