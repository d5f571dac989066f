"""`autobrrr explain`: what a word of a screen means, where it comes from, its guards."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autobrrr.cli.printed import NARRATOR, show
from autobrrr.errors import EXIT_DONE, UsageError
from autobrrr.readable import nearest

if TYPE_CHECKING:
    from autobrrr.records.wire_answers import Explained

PLURALS = {"remedy": "remedies", "class": "classes", "reach": "reaches"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("word", nargs="*", metavar="WORD", help="a name (default: list all names)")


def run(args: argparse.Namespace) -> int:
    """Print one explanation, or the list of all.

    Raises:
        UsageError: there is no such name.
    """
    from autobrrr.agent.remedies.families import REGISTRY
    from autobrrr.diagnosis.glossary import EXPLANATIONS, KINDS  # not for --help: it brings numpy
    from autobrrr.report.next_step import after_explanation

    if not args.word:
        show(listing(EXPLANATIONS, KINDS))
        NARRATOR.next_step("autobrrr explain WORD   (says all of it)")
        return EXIT_DONE
    word = " ".join(args.word)
    name = re.sub(r"[-\s/]+", "_", word.strip(": ").lower())
    name = name if name in EXPLANATIONS else name.replace("a_b_", "ab_")
    if name not in EXPLANATIONS:
        near = nearest(name, EXPLANATIONS)
        lists = "`autobrrr explain` lists all words"
        hint = f"did you mean {near}? {lists}" if near else lists
        raise UsageError(f"nothing is called {word!r}", hint)
    show(text(EXPLANATIONS[name]))
    remedy = REGISTRY.get(name)
    reach, class_ = (None, None) if remedy is None else (remedy.reach, remedy.cls)
    NARRATOR.next_step(after_explanation(name, reach, class_))
    return EXIT_DONE


def listing(explanations: Mapping[str, Explained], kinds: Sequence[str]) -> str:
    """All names with the first sentence of each."""
    lines = []
    for kind in kinds:
        firsts = {one.name: one.meaning.split(". ")[0] for one in explanations.values() if one.kind == kind}
        wide = max(map(len, firsts), default=0)
        lines.append(PLURALS.get(kind, f"{kind}s"))
        lines += [f"  {name:<{wide}}  {first.rstrip('.')}" for name, first in firsts.items()]
    return "\n".join(lines)


def text(entry: Explained) -> str:
    """One explanation in full."""
    lines = [f"{entry.name} ({entry.kind})", f"  {entry.meaning}"]
    lines += [f"    {line}" for line in entry.example.splitlines()]
    lines.append(f"  From: {entry.source}")
    if entry.guards:
        lines += ["  Guards:", *(f"    - {guard}" for guard in entry.guards)]
    return "\n".join(lines)
