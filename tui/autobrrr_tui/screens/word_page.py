"""The words that stand on a page, explained: which of the glossary's they are, and a line for each.

The glossary is the session's: names go out, explanations come in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from autobrrr.records.record_base import Limit, Regime
from autobrrr.records.wire_answers import Explained
from autobrrr_tui.text_rows import Row, plain
from autobrrr_tui.view_state import View

WORDS = (  # what a page shows, and the name of the glossary that explains it
    ("[Ll]imited by", "limit"),
    ("regime", "regime"),
    ("[●○]|\\((high|medium|low)\\)", "confidence"),
    ("provisional", "provisional"),
    ("signals?", "signal"),
    ("shares", "shares"),
    ("batch probe", "batch_probe"),
    ("predicted", "predicted"),
    ("achieved", "achieved"),
    (r"\[\d+\.\d+–", "interval"),
    ("A/B pairs?", "ab_pair"),
    ("together", "speed_up"),
    ("(?:own )?cost", "own_cost"),
    ("p99", "p99"),
    ("traced", "traced"),
    ("bitwise", "bitwise"),
    ("rounding", "rounding"),
    ("stream", "stream"),
    ("changes training", "changes_training"),
    ("next epoch", "next_epoch"),
    ("not tried", "not_tried"),
    *((state, state) for state in ("trying", "confirming", "watched", "kept", "reverted", "refused")),
    *((state, state) for state in ("skipped", "queued", "manual", "restart")),
    ("slowest", "straggler"),
    ("window", "window"),
    ("recipe", "recipe"),
)

LIMITS = frozenset(get_args(Limit)) - frozenset(get_args(Regime))  # that are no regime
NOTHING = ("", "unknown", "measuring")


def words_of(view: View, rows: Sequence[Row]) -> list[str]:
    """Names of what these rows show; the verdict's own words first."""
    text = "\n".join(map(plain, rows))
    found = view.snapshot
    limit = "unknown" if found is None else found.limit
    named = [each for each in (limit if limit in LIMITS else "", view.regime) if each not in NOTHING]
    shown = [name for words, name in WORDS if re.search(rf"(?<!\w)(?:{words})", text)]
    return list(dict.fromkeys([*named, *shown]))


def word_of(found: Explained | str) -> list[tuple[str, str]]:
    """A word with the first sentence of what it means."""
    if isinstance(found, str):
        return [("", found)]
    return [(found.name.replace("_", " "), found.meaning.split(". ")[0].rstrip(".") + ".")]
