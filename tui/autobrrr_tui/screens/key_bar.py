"""The line of keys at the bottom and the line of modes at the top, both clickable."""

from __future__ import annotations

from autobrrr_tui.text_rows import Piece, Row, piece
from autobrrr_tui.view_state import ScreenStanding, View

MODES = ("glance", "steps", "diagnosis", "tuning", "gaps", "recipe", "log")
SHORT = ("glance", "steps", "diag", "tune", "gaps", "recipe", "log")
TOUCHING = ("tune", "pause", "apply", "undo", "window", "probe", "detach")


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


def keys_line(view: View, width: int) -> Row:
    """Keys that do something now; those that may not are struck through, and still there."""
    words: list[tuple[str, str, str]] = [("t", "tune", "tune")]
    if view.tuning:
        words = [("space", "go on" if view.paused else "pause", "pause"), ("t", "stop", "tune")]
    words += [
        ("a", "apply", "apply"),
        ("u", "undo", "undo"),
        ("e", "export", "export"),
        ("w", "window", "window"),
        ("p", "probe", "probe"),
        ("d", "detach", "detach"),
        ("?", "help", "help"),
        ("q", "quit", "quit"),
    ]
    if view.standing in (ScreenStanding.RECORDED, ScreenStanding.ENDED, ScreenStanding.REFUSED):
        words = [word for word in words if word[2] not in TOUCHING]
    spare = ("probe", "window", "export", "apply")
    for name in ("", *spare):
        words = [word for word in words if word[2] != name]
        pieces: list[Piece] = []
        for key, text, action in words:
            can = view.acting or action not in TOUCHING
            pieces += [
                piece(f" {key} ", "key" if can else "off", f"screen.{action}"),
                piece(f"{text} ", "plain" if can else "off", f"screen.{action}"),
            ]
        if sum(len(text) for text, _, _ in pieces) <= width:
            break
    return tuple(pieces)
