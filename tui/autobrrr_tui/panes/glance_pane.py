"""The first screen: who limits the step, what was gained, the steps, the next thing to do. Never scrolls.

Wide terminals show it as panels that grow with them, others as a list.
"""

from __future__ import annotations

from typing import NamedTuple

from autobrrr.quantities import duration
from autobrrr.records import Diagnosis, LateRank
from autobrrr.records.rank_records import straggler_words
from autobrrr.report.page_model import Cell, PageTable
from autobrrr.report.text.rank_text import ranks_table
from autobrrr_tui import text_bars
from autobrrr_tui.page_rows import table_rows
from autobrrr_tui.panes import glance_parts as parts
from autobrrr_tui.panes.chart_over_time import chart, seconds_shown
from autobrrr_tui.panes.rank_strip import strip
from autobrrr_tui.text_boxes import EDGES, beside, boxed, cut
from autobrrr_tui.text_rows import (
    BLANK,
    LABEL,
    Page,
    Row,
    fitted,
    labelled,
    piece,
    row,
    wrapped,
)
from autobrrr_tui.view_state import View

INDENT = 2 + LABEL
PANELS = (100, 27)  # cells and rows from which on there are panels
NARROW = 70  # cells
ROOMY = 16  # rows from which on the next step may take two
TIGHT = 14  # rows below which the verdict's second sentence is left to mode 2
CHART = 18  # rows of the chart's box: more show nothing more


def page(view: View, width: int, height: int) -> Page:
    """All of it in at most `height` rows."""
    known = view.snapshot is None or view.regime != "unknown" or view.snapshot.limit == "unknown"
    regime = row(piece(f"  regime: {view.regime}", "regime" if known else "dim"))  # scripts may read it
    if view.snapshot is None:
        return Page(rows=[regime, BLANK, *_after(view, width, height)][:height])
    wide = width >= PANELS[0] and height >= PANELS[1]
    return Page(rows=[regime, *(_panels if wide else _list)(view, width, height - 1)][:height])


def _panels(view: View, width: int, height: int) -> list[Row]:
    found = view.snapshot
    assert found is not None
    left = width // 2
    inner = left - EDGES
    verdict = [*parts.verdict(view, inner), *parts.grounds(found, inner), *parts.machine(found)]
    gain = parts.gain(view, width - left - EDGES, badges=True, titled=True)
    top = min(12, max(len(verdict), len(gain), 4) + 2)
    after = _after(view, width, height)
    ranks = _ranks(view, width - EDGES, (height - top - len(after)) // 3) if view.ranks else []
    boxes = boxed("RANKS", ranks, width, len(ranks) + 2) if ranks else []
    spare = height - top - len(after) - len(boxes)
    side = max(38, width * 3 // 10)
    details = _details(view, side - EDGES)
    remedies = parts.remedies(view, width - side - EDGES, max(6, spare // 2 - 2))
    lowest = max(len(details), len(remedies)) + 2
    lowest = min(max(8, spare // 2), lowest)
    middle = min(CHART, spare - lowest)
    signals = _signals(found, width - EDGES)
    free = spare - lowest - middle
    if free < 4 or not signals:
        middle, free = middle + free, 0
    below = min(free, len(signals) + 2)
    lowest += free - below
    steps = [
        parts.step_figures(view, width - EDGES),
        *chart(view, width - EDGES, middle - 3),
    ]
    return [
        *beside(
            boxed("VERDICT", verdict, left, top),
            boxed(parts.gain_head(view).upper(), gain, width - left, top, parts.gain_of(view)),
            left,
        ),
        *boxed("STEP", steps, width, middle, seconds_shown(view, width - EDGES)),
        *boxes,
        *(boxed("SIGNALS", signals, width, below) if below else []),
        *beside(
            boxed("PHASES", details, side, lowest),
            boxed("REMEDIES", remedies, width - side, lowest, parts.remedies_of(view)),
            side,
        ),
        *after,
    ]


def _ranks(view: View, room: int, most: int) -> list[Row]:
    """The strip, and in at most so many rows a line for each rank, or which one is late."""
    straggler = view.snapshot.straggler if view.snapshot is not None else None
    rows = [tuple(line) for line in strip(view.ranks, room)]
    lines = table_rows(ranks_table(view.ranks, straggler), room)
    if len(rows) + len(lines) <= most and len(view.ranks) > 1:
        return [*rows, *lines]
    return [*rows, *_said(straggler, room, 1)]


def _said(straggler: LateRank | None, room: int, most: int) -> list[Row]:
    """Who the others wait for, and why; nothing where the ranks were not compared."""
    words = "" if straggler is None else straggler_words(straggler, duration)
    late = straggler is not None and straggler.rank is not None
    return [row(piece(line, "bad" if late else "plain")) for line in wrapped(words, room, most)]


def _details(view: View, room: int) -> list[Row]:
    """A bar for each phase, then the device."""
    found = view.snapshot
    assert found is not None
    words = text_bars.flowed([piece(word, "dim") for word in parts.device_words(found)], room)
    return [
        *parts.phase_rows(found.phases_ns, room),
        *[BLANK] * bool(words),
        *(tuple(line) for line in words),
    ]


def _signals(found: Diagnosis, room: int) -> list[Row]:
    """What each signal says, in a line; those without a figure only by how many they are."""
    known = [each for each in found.evidence if each.value is not None]
    rows = [
        [
            Cell(text=each.signal.replace("_", " ")),
            Cell(text=each.says or "", tone="accent"),
            Cell(text=each.note, tone="" if each.says else "muted"),
        ]
        for each in known
    ]
    without = len(found.evidence) - len(known)
    more = piece(f"{without} more without a figure: 2 lists them", "dim", "screen.mode('diagnosis')")
    table = PageTable(title="", heads=("-", "-", "-"), rows=rows, tall=1)
    return [*table_rows(table, room), *([row(more)] if known and without else [])]


def _after(view: View, width: int, height: int) -> list[Row]:
    """What happens now, what to do next, whether it is safe: the last rows of every state and size."""
    room, most = width - INDENT - 1, 2 if height >= ROOMY else 1
    words, action = parts.next_step(view)
    safe, tone = parts.safety(view)
    return [
        *_headed("now", parts.now_line(view, room, most)),
        *_headed("next", [row(piece(line, "key", action)) for line in fitted(words, room, most)]),
        *_headed("safe", [row(piece(line, tone)) for line in fitted(safe, room, 1)]),
    ]


class RowGroup(NamedTuple):
    """Rows that stay or go together."""

    dispensable: int  # the highest goes first; 0 never
    rows: list[Row]
    joined: bool = False  # to the block above it: no blank row between them


def _list(view: View, width: int, height: int) -> list[Row]:
    """One under the other: space goes first, then the legend and the less needed lines."""
    blocks = [block for block in _blocks(view, width, height) if block.rows]
    while sum(len(block.rows) for block in blocks) > height:
        worst = max(blocks, key=lambda block: block.dispensable)
        if worst.dispensable == 0:
            break
        blocks.remove(worst)
    spare = height - sum(len(block.rows) for block in blocks)
    found: list[Row] = []
    for block in blocks:
        if found and not block.joined and spare > 0:
            found.append(BLANK)
            spare -= 1
        found += block.rows
    return found


def _blocks(view: View, width: int, height: int) -> list[RowGroup]:
    found = view.snapshot
    assert found is not None
    room = width - INDENT - 1
    tight = height < TIGHT
    said = [row("  ", *line) for line in parts.verdict(view, width - 4, 3 if tight else 2, brief=tight)]
    grounds = [row("  ", *line) for line in parts.grounds(found, width - 4)]
    blocks = [RowGroup(0, said), RowGroup(4, grounds, joined=True)]
    blocks.append(RowGroup(0, [labelled("step", *parts.step_figures(view, room))]))
    blocks.append(RowGroup(5, [labelled("", *line) for line in _spark(view, room)], joined=True))
    phases = parts.phase_bar(found.phases_ns, room)
    if phases and width < NARROW:  # a bar without its legend means nothing
        blocks.append(RowGroup(1, [labelled("phases", *parts.phase_words(found.phases_ns, room))]))
    elif phases:
        blocks.append(RowGroup(0, [labelled("phases", *phases[0])]))
        blocks.append(RowGroup(1, [labelled("", *line) for line in phases[1:]], joined=True))
    device = text_bars.flowed([piece(word) for word in parts.device_words(found)], room)[:2]
    if parts.device_words(found):
        blocks.append(RowGroup(3, _headed("device", [tuple(line) for line in device])))
    if view.ranks:
        blocks.append(RowGroup(1, _headed("ranks", [tuple(line) for line in strip(view.ranks, room)])))
        blocks.append(RowGroup(3, _headed("", _said(found.straggler, room, 2)), joined=True))
    gain = parts.gain(view, room, badges=True)
    blocks.append(RowGroup(0, _headed(parts.gain_head(view), [cut(line, room) for line in gain[:2]])))
    blocks.append(RowGroup(0, _after(view, width, height)))
    return blocks


def _headed(name: str, rows: list[Row]) -> list[Row]:
    return [labelled(name if at == 0 else "", *line) for at, line in enumerate(rows)]


def _spark(view: View, room: int) -> list[Row]:
    """The steps of the last minutes in one line."""
    history = None if view.details is None else view.details.history
    line = "" if history is None else text_bars.sparkline(history.median_ns, room - 8)
    return [row(piece(line, "accent"), piece(f"  {len(line)} s", "dim"))] if line else []
