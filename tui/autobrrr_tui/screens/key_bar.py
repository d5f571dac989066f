"""The table of keys; the line of keys at the bottom and the line of modes at the top, both clickable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from autobrrr.report.page_model import Line
from autobrrr.report.text_rows import Piece, Row, piece
from autobrrr_tui.panes.tuning_pane import RemedyRow
from autobrrr_tui.view_state import ScreenStanding, View

MODES = ("glance", "steps", "diagnosis", "tuning", "gaps", "recipe", "log")
SHORT = ("glance", "steps", "diag", "tune", "gaps", "recipe", "log")


class ScreenKey(NamedTuple):
    """A key as it is written, what it does in a word and in a sentence, what it costs the job."""

    key: str
    action: str
    word: str
    means: str
    cost: str = ""


KEYS = tuple(
    ScreenKey(*each)
    for each in (
        ("space", "pause", "pause", "pause the tuner after this pair; again: continue"),
        ("t", "tune", "tune", "tune: try the matching remedies on the running job, keep what is proven; "
         "steps take longer while a slower one is tried"),
        ("a", "apply", "apply", "apply the remedy chosen in mode 3"),
        ("u", "undo", "undo", "undo: revert the remedy chosen in mode 3, or the last"),
        ("e", "export", "export", "export: write the applied remedies as a recipe"),
        ("w", "window", "profile", "profile a few steps under torch; they take longer", "slows some steps"),
        ("p", "probe", "measure", "measure again, with the batch probe: short pauses", "short pauses"),
        ("d", "detach", "detach", "detach: revert all, end the session; the job runs on", "reverts all"),
        ("Enter", "enter", "details", "details of what is chosen; y copies its name"),
        ("/", "search", "search", "search the list; Esc shows all again"),
        ("s", "sort", "sort", "sort the list by its next column"),
        ("?", "help", "help", "the keys, and the words of this page"),
        ("q", "quit", "quit", "quit this screen; the session continues"),
    )
)  # fmt: skip
TOUCHING = ("pause", "tune", "detach", "window", "probe", "apply", "undo")
SPARE = ("probe", "window", "export", "sort", "search", "enter", "apply")  # left out in this order
HELP = (
    Line(name="0 to 6, Esc", text=f"modes: {', '.join(MODES)}"),
    *(Line(name=key.key, text=key.means) for key in KEYS if key.action != "help"),
    Line(name="up, down", text="choose, scroll"),
    Line(name="Ctrl-P", text="all commands by name"),
)


def modes_line(mode: str, width: int) -> Row:
    """`autobrrr  0 Glance  1 Steps ...`; the one that is shown is set off, also without colours."""
    pieces: list[Piece] = []
    names = dict(zip(MODES, MODES if width >= 70 else SHORT, strict=True))
    wide = width >= 80
    if wide:
        pieces.append(piece(" autobrrr ", "strong"))
    for number, name in enumerate(MODES):
        shown = names[name].capitalize()
        text = f"[{number} {shown}]" if name == mode else f" {number} {shown} "
        text = text if wide or name == mode else text[:-1]
        pieces.append(piece(text, "here" if name == mode else "", f"screen.mode('{name}')"))
    return tuple(pieces)


def why_not(view: View, line: RemedyRow | None, action: str) -> str:
    """Why a key that touches the job does nothing now; empty where it does something.

    Args:
        line: The remedy that is chosen, where remedies are listed.
    """
    if view.readonly:
        return f"read-only: {action} would touch the job"
    if view.standing is ScreenStanding.RECORDED:
        return f"this is a recorded session: there is no job to {action}"
    if not view.acting:
        return (
            f"the session is not there: {view.why}"
            if view.standing is not ScreenStanding.OPENING
            else "not attached yet"
        )
    if action == "pause" and not view.tuning:
        return "nothing is being tuned; t starts it"
    if action == "undo" and not view.active:
        return "no remedy is on"
    if action == "apply" and line is None:
        return "choose a remedy with up and down, then a"
    if action == "apply" and line is not None and line.token is not None:
        return f"{line.key} is already on; u reverts it"
    if action == "apply" and line is not None and not line.is_live:
        return f"{line.key} can't be applied now ({line.remedy.reach}): autobrrr run --recipe FILE"
    return ""


def able(view: View, line: RemedyRow | None) -> frozenset[str]:
    """The keys that would do something to the job now, and export; while a tuner works its own alone."""
    acts = ("pause", "tune", "detach") if view.tuning else TOUCHING
    found = {action for action in acts if not why_not(view, line, action)}
    return frozenset(found | ({"export"} if view.details.recipe is not None else set()))


def keys_line(width: int, can: frozenset[str], words: Mapping[str, str]) -> Row:
    """Keys that do something now, with what they cost the job; with little room that goes first,
    then the keys that can be missed.

    Args:
        can: Their actions; help and quit are always there.
        words: By action: what a key does now where that is not its usual word.
    """
    keys = [key for key in KEYS if key.action in can | {"help", "quit"}]
    for left_out, costs in (("", True), *((name, False) for name in ("", *SPARE))):
        keys = [key for key in keys if key.action != left_out]
        pieces: list[Piece] = []
        for key in keys:
            action = f"screen.{key.action}"
            pieces += [piece(f" {key.key} ", "key", action)]
            pieces += [piece(f"{words.get(key.action, key.word)} ", "", action)]
            pieces += [piece(f"({key.cost}) ", "muted")] if key.cost and costs else []
        if sum(len(text) for text, _, _ in pieces) <= width:
            break
    return tuple(pieces)
