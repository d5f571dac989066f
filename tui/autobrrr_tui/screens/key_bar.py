"""The line of keys at the bottom and the line of modes at the top, both clickable."""

from __future__ import annotations

from autobrrr_tui.panes.tuning_pane import RemedyRow
from autobrrr_tui.text_rows import Piece, Row, piece
from autobrrr_tui.view_state import View

MODES = ("glance", "steps", "diagnosis", "tuning", "gaps", "recipe", "log")
SHORT = ("glance", "steps", "diag", "tune", "gaps", "recipe", "log")
TOUCHING = ("tune", "pause", "apply", "undo", "window", "probe", "detach")
SPARE = ("probe", "window", "export", "sort", "search", "enter", "apply")  # left out in this order
COSTS = {
    "window": "slows some steps",
    "probe": "short pauses",
    "detach": "reverts all",
}  # of keys, to the job


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
        pieces.append(piece(text, "here" if name == mode else "plain", f"screen.mode('{name}')"))
    return tuple(pieces)


def able(view: View, line: RemedyRow | None) -> frozenset[str]:
    """The keys that would do something to the job now, and export.

    Args:
        line: The remedy that is chosen, where remedies are listed.
    """
    details = view.details
    found = {"export"} if details is not None and details.recipe is not None else set()
    if not view.acting:
        return frozenset(found)
    found |= {"tune", "detach"}
    if view.tuning:
        return frozenset({*found, "pause"})
    found |= {"window", "probe"}
    if line is not None and line.token is None and line.reach == "live":
        found.add("apply")
    if details is not None and details.active:
        found.add("undo")
    return frozenset(found)


def keys_line(view: View, width: int, can: frozenset[str]) -> Row:
    """Keys that do something now, with what they cost the job; with little room that goes first,
    then the keys that can be missed.
    """
    words = [
        ("space", "go on" if view.paused else "pause", "pause"),
        ("t", "stop" if view.tuning else "tune", "tune"),
        ("a", "apply", "apply"),
        ("u", "undo", "undo"),
        ("e", "export", "export"),
        ("w", "profile", "window"),
        ("p", "measure", "probe"),
        ("d", "detach", "detach"),
        ("Enter", "details", "enter"),
        ("/", "search", "search"),
        ("s", "sort", "sort"),
        ("?", "help", "help"),
        ("q", "quit", "quit"),
    ]
    words = [word for word in words if word[2] in can | {"help", "quit"}]
    shorter: list[tuple[str, dict[str, str]]] = [("", COSTS), *((name, {}) for name in ("", *SPARE))]
    for left_out, costs in shorter:
        words = [word for word in words if word[2] != left_out]
        pieces: list[Piece] = []
        for key, text, action in words:
            pieces += [
                piece(f" {key} ", "key", f"screen.{action}"),
                piece(f"{text} ", "plain", f"screen.{action}"),
                *([piece(f"({costs[action]}) ", "dim")] if action in costs else []),
            ]
        if sum(len(text) for text, _, _ in pieces) <= width:
            break
    return tuple(pieces)
