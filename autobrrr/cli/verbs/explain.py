"""`autobrrr explain`: what a signal, regime or figure means, where it comes from, its guards."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from autobrrr.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from autobrrr.diagnosis.glossary import Explanation

WIDTH = 79
KINDS = ("signal", "regime", "figure")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("signal", nargs="?", metavar="WORD", help="a name (default: list all names)")


def run(args: argparse.Namespace) -> int:
    """Print one explanation, or the list of all.

    Raises:
        UsageError: there is no such name.
    """
    from autobrrr.diagnosis.glossary import EXPLANATIONS  # not for --help: it brings numpy

    if args.signal is None:
        print(listing(EXPLANATIONS))
        return EXIT_DONE
    name = str(args.signal).strip().lower().replace("-", "_")
    if name not in EXPLANATIONS:
        near = difflib.get_close_matches(name, EXPLANATIONS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`autobrrr explain` lists all"
        raise UsageError(f"explain: nothing is called {args.signal!r}", hint)
    print(text(EXPLANATIONS[name]))
    return EXIT_DONE


def listing(explanations: Mapping[str, Explanation]) -> str:
    """All names with the first sentence of each."""
    lines = []
    for kind in KINDS:
        lines.append(f"{kind}s")
        for entry in explanations.values():
            if entry.kind == kind:
                first = entry.meaning.split(". ")[0].rstrip(".")
                lines += textwrap.wrap(
                    first, WIDTH, initial_indent=f"  {entry.name:<15} ", subsequent_indent=" " * 18
                )
    return "\n".join(lines)


def text(entry: Explanation) -> str:
    """One explanation in full."""
    lines = [f"{entry.name} ({entry.kind})", *_wrapped(entry.meaning), *_wrapped(f"From: {entry.source}")]
    if entry.guards:
        lines.append("  Guards:")
        lines += [line for guard in entry.guards for line in _wrapped(f"- {guard}", hanging=2)]
    return "\n".join(lines)


def _wrapped(sentence: str, hanging: int = 0) -> list[str]:
    indent = " " * (2 + hanging)
    return textwrap.wrap(sentence, WIDTH, initial_indent=indent, subsequent_indent=indent + " " * hanging)
