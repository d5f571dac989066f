"""What every word that is shown means: where it comes from, and the guards that may silence it.

In: the rows of `glossary.toml`, the table of remedies, the table of agreement, the constants that rows name.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import chain
from typing import Any

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Option, Remedy
from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.advice import job_settings, ledger_edits
from autobrrr.diagnosis.advice.script_edits import EDITS
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signals import device, steps
from autobrrr.diagnosis.toml_rows import rows_beside
from autobrrr.diagnosis.verdict.agreement import AGREEMENT, TIMELINE
from autobrrr.errors import UsageError
from autobrrr.op_replay import replay
from autobrrr.records.gain_words import CLASS_WORDS
from autobrrr.records.wire_answers import Explained

SOURCES = {  # of the kinds whose rows say no more than what a word means
    "edit": "the diagnosis, which names your line",
    "class": "the remedy's entry; the job may widen it, by dropout or randomness in a dataset",
    "reach": "the remedy's entry",
    "column": "tables and screens",
    "state": "tables and screens",
    "proof": "what `prove` says",
    "cause": "the gaps of a trace, and of a profiler window",
    "term": "documentation and messages",
}
KINDS = ("signal", "regime", "limit", "figure", "remedy", *SOURCES)
CONSTANTS = {each.__name__.split(".")[-1]: each for each in (replay, thresholds, device, steps)}


class _Filled(string.Formatter):
    """Puts the program's own constants into a row: `!p` in per cent, `!n` in hundredths, `!m` ns in ms."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        match conversion:
            case "p":
                return of_one(value)
            case "n":
                return f"{100 * value:.0f}"
            case "m":
                return f"{value / 1e6:g}"
        return super().convert_field(value, conversion)


def _rows() -> Iterator[Explained]:
    for kind, table in rows_beside(__file__).items():
        for name, row in table.items():
            if kind == "regime":
                yield _of_regime(name, row)
            elif kind == "edit":
                yield _of_edit(name, row)
            elif kind in SOURCES:
                yield Explained(name=name, kind=kind, meaning=row, source=SOURCES[kind])
            else:
                filled = {key: _filled(row[key]) for key in ("meaning", "source")}
                guards = tuple(map(_filled, row.get("guards", ())))
                yield Explained(name=name, kind=kind, guards=guards, **filled)


def _filled(text: str) -> str:
    return _Filled().vformat(text, (), CONSTANTS)


def _of_regime(name: str, meaning: str) -> Explained:
    pairs = [f"{pair.first} + {pair.second}" for pair in AGREEMENT if pair.regime == name]
    of_device = [f"{pair.first} + {pair.second}" for pair in TIMELINE if pair.regime == name]
    named = [
        f"{where}: {', or '.join(agreeing)}"
        for where, agreeing in (("on a CPU", pairs), ("on a GPU and in traces", of_device))
        if agreeing
    ]
    source = f"named when these agree, {'; '.join(named)}"
    source = source if named else "the reason says which, and the command that would decide it"
    takes = f"takes {of_one(thresholds.NAMED_AT)} of the step"
    guards = (takes, f"leads by {100 * thresholds.LEAD:.0f} points") if pairs else ()
    return Explained(name=name, kind="regime", meaning=meaning, source=source, guards=guards)


def _of_edit(name: str, text: str) -> Explained:
    """With its class, and what of the step it is predicted to save, by the table that it stands in."""
    tables = (rows_beside(each.__file__).values() for each in (ledger_edits, job_settings))
    known = [row for row in chain(*tables) if row["edit"] == name]
    (cls, *_) = [row.get("class", "bitwise") for row in known] or [EDITS[name][0]]
    saved = [f"{of_one(row['removed'])} of its time" for row in known if "removed" in row]
    saved += [row["gain"].replace("_", " ") for row in known if "gain" in row]
    gain = f"predicted to save: {saved[0]}" if saved else "its gain is not predicted"
    meaning, _, example = text.partition("\n")
    source = f"{SOURCES['edit']}; class {cls} ({CLASS_WORDS[cls]}); {gain}"
    return Explained(name=name, kind="edit", meaning=meaning, source=source, example=example)


def _of_remedy(remedy: Remedy) -> Explained:
    guards = [f"reach {remedy.reach}, class {remedy.cls}", *map(_option, remedy.options)]
    if remedy.unproven:
        guards.append("never run on a GPU yet: tried only by name (--only)")
    elif remedy.only_named:
        guards.append("tried only by name (--only)")
    elif remedy.only_predicted:
        guards.append("tried only where the diagnosis predicts a gain, or by name (--only)")
    return Explained(
        name=remedy.name,
        kind="remedy",
        meaning=remedy.doc,
        source=f"tried where the regime is {' or '.join(remedy.treats)}",
        guards=tuple(guards),
    )


def _option(option: Option) -> str:
    if option.choices:
        values = ", ".join(map(str, option.choices))
    elif option.kind == "bool":
        values = "true or false"
    else:
        values = f"{option.low:g} to {option.high:g}" if option.high is not None else option.kind
    default = "" if option.default is None else f"; {str(option.default).lower()} unless given"
    return f"option {option.name}: {values}{default}"


EXPLANATIONS: dict[str, Explained] = {
    entry.name: entry for entry in (*map(_of_remedy, REGISTRY.values()), *_rows())
}


def explained(name: str) -> Explained:
    """What a word means. Raises UsageError: nothing is called so."""
    if name not in EXPLANATIONS:
        raise UsageError(f"nothing is called {name!r}")
    return EXPLANATIONS[name]
