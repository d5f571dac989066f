"""`autobrrr explain`: what a word of a screen means, where it comes from, its guards."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autobrrr.cli.printed import show
from autobrrr.errors import EXIT_DONE, UsageError
from autobrrr.readable import nearest

if TYPE_CHECKING:
    from autobrrr.diagnosis.glossary_words import Explanation

WIDTH = 79
PLURALS = {"remedy": "remedies", "class": "classes", "reach": "reaches"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("signal", nargs="?", metavar="WORD", help="a name (default: list all names)")


def run(args: argparse.Namespace) -> int:
    """Print one explanation, or the list of all.

    Raises:
        UsageError: there is no such name.
    """
    from autobrrr.diagnosis.glossary import EXPLANATIONS  # not for --help: it brings numpy
    from autobrrr.diagnosis.glossary_words import KINDS

    if args.signal is None:
        show(listing(EXPLANATIONS, KINDS))
        return EXIT_DONE
    name = re.sub(r"[-\s/]+", "_", str(args.signal).strip().lower())
    name = name if name in EXPLANATIONS else name.replace("a_b_", "ab_")
    if name not in EXPLANATIONS:
        near = nearest(name, EXPLANATIONS)
        hint = f"did you mean {near}?" if near else "`autobrrr explain` lists all words"
        raise UsageError(f"nothing is called {args.signal!r}", hint)
    show(text(EXPLANATIONS[name]))
    return EXIT_DONE


def listing(explanations: Mapping[str, Explanation], kinds: Sequence[str]) -> str:
    """All names with the first sentence of each."""
    lines = []
    for kind in kinds:
        lines.append(PLURALS.get(kind, f"{kind}s"))
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
