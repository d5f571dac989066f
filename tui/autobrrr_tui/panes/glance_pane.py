"""The first screen: who limits the step, what was gained, the steps, the next thing to do. Never scrolls.

Wide terminals show its parts in boxes around a chart that grows with them, others one under the other.
"""

from __future__ import annotations

from typing import NamedTuple

from autobrrr.records import Diagnosis, LateRank
from autobrrr.records.rank_records import straggler_words
from autobrrr.report import text_bars
from autobrrr.report.page_rows import table_rows
from autobrrr.report.pages.diagnosis_parts import evidence_table, ranks_table
from autobrrr.report.text_rows import (
    BLANK,
    EDGES,
    LABEL,
    Page,
    Row,
    beside,
    boxed,
    cut,
    labelled,
    piece,
    row,
    shortened,
    wrapped,
)
from autobrrr_tui.panes import glance_parts as parts
from autobrrr_tui.panes.glance_parts import strip
from autobrrr_tui.panes.steps_pane import chart, seconds_shown
from autobrrr_tui.view_state import View

INDENT = 2 + LABEL
PANELS = (100, 27)  # cells and rows from which on there are boxes
NARROW = 70  # cells
ROOMY = 16  # rows from which on the next step may take two
TIGHT = 14  # rows below which the verdict's second sentence is left to mode 2
LEAST_CHART = 8  # rows of its box


def page(view: View, width: int, height: int) -> Page:
    """All of it in at most `height` rows."""
    found = view.snapshot
    known = found is None or view.regime != "unknown" or found.limit == "unknown"
    regime = row(piece(f"  regime: {view.regime}", "head" if known else "muted"))  # scripts may read it
    if found is None:
        return Page(rows=[regime, BLANK, *_after(view, width, height)][:height])
    wide = width >= PANELS[0] and height >= PANELS[1]
    return Page(rows=[regime, *(_boxes if wide else _list)(view, found, width, height - 1)][:height])


def _boxes(view: View, found: Diagnosis, width: int, height: int) -> list[Row]:
    """The chart of steps takes what the others leave."""
    half, side, whole = width // 2, max(38, width * 3 // 10), width - EDGES
    after = _after(view, width, height)
    verdict = parts.verdict(view, half - EDGES)
    verdict += [*parts.grounds(found, half - EDGES), *parts.machine(found)]
    gain = parts.gain(view, width - half - EDGES)
    gained = [*(parts.large(gain.proven) if gain.proven else ()), *gain.rows]
    top = min(12, max(len(verdict), len(gained), 4) + 2)
    spare = height - top - len(after)
    phases = parts.phases(found.phases_ns, side - EDGES)
    phases += [BLANK, *_device(found, side - EDGES)]
    remedies = parts.remedies(view, width - side - EDGES, max(5, spare // 2 - 2))
    low = min(max(8, spare // 2), max(len(phases), len(remedies)) + 2)
    ranks = _ranks(view, whole, spare // 3) if view.ranks else []
    below = [*boxed("RANKS", ranks, width, len(ranks) + 2)] if ranks else []
    signals = _signals(found, whole)
    if signals and spare - low - len(below) - len(signals) - 2 >= 2 * LEAST_CHART:
        below += boxed("SIGNALS", signals, width, len(signals) + 2)
    middle = spare - low - len(below)
    steps = [parts.step_figures(view, whole), *chart(view, whole, middle - 3)]
    return [
        *beside(
            boxed("VERDICT", verdict, half, top),
            boxed(gain.head.upper(), gained, width - half, top, gain.note),
            half,
        ),
        *boxed("STEP", steps, width, middle, seconds_shown(view, whole)),
        *below,
        *beside(boxed("PHASES", phases, side, low), boxed("REMEDIES", remedies, width - side, low), side),
        *after,
    ]


def _ranks(view: View, room: int, most: int) -> list[Row]:
    """The strip, and in at most so many rows a line for each rank, or which one is late."""
    straggler = view.snapshot.straggler if view.snapshot is not None else None
    rows = strip(view.ranks, room)
    lines = table_rows(ranks_table(view.ranks, straggler), room)
    if len(rows) + len(lines) <= most and len(view.ranks) > 1:
        return [*rows, *lines]
    return [*rows, *_said(straggler, room, 1)]


def _said(straggler: LateRank | None, room: int, most: int) -> list[Row]:
    """Who the others wait for, and why; nothing where the ranks were not compared."""
    words = "" if straggler is None else straggler_words(straggler)
    late = straggler is not None and straggler.rank is not None
    return [row(piece(line, "worse" if late else "")) for line in wrapped(words, room, most)]


def _device(found: Diagnosis, room: int) -> list[Row]:
    return text_bars.flowed([piece(word) for word in parts.device_words(found)], room)


def _signals(found: Diagnosis, room: int) -> list[Row]:
    """What each signal with a figure says."""
    known = [each for each in found.evidence if each.value is not None]
    return table_rows(evidence_table(known), room)[1:] if known else []


def _after(view: View, width: int, height: int) -> list[Row]:
    """What happens now, what to do next, whether it is safe: the last rows of every state and size."""
    room, most = width - INDENT - 1, 2 if height >= ROOMY else 1
    words, action = parts.next_step(view)
    safe, tone = parts.safety(view)
    return [
        *_headed("now", parts.now_line(view, room, most)),
        *_headed("next", [row(piece(line, "strong", action)) for line in shortened(words, room, most)]),
        *_headed("safe", [row(piece(line, tone)) for line in shortened(safe, room, 1)]),
    ]


class RowGroup(NamedTuple):
    """Rows that stay or go together."""

    dispensable: int  # the highest goes first; 0 never
    rows: list[Row]
    joined: bool = False  # to the block above it: no blank row between them


def _list(view: View, found: Diagnosis, width: int, height: int) -> list[Row]:
    """One under the other: space goes first, then the legend and the less needed lines."""
    blocks = [block for block in _blocks(view, found, width, height) if block.rows]
    while sum(len(block.rows) for block in blocks) > height:
        worst = max(blocks, key=lambda block: block.dispensable)
        if worst.dispensable == 0:
            break
        blocks.remove(worst)
    spare = height - sum(len(block.rows) for block in blocks)
    rows: list[Row] = []
    for block in blocks:
        if rows and not block.joined and spare > 0:
            rows.append(BLANK)
            spare -= 1
        rows += block.rows
    return rows


def _blocks(view: View, found: Diagnosis, width: int, height: int) -> list[RowGroup]:
    room, tight = width - INDENT - 1, height < TIGHT
    said = [row("  ", *line) for line in parts.verdict(view, width - 4, 3 if tight else 2, brief=tight)]
    grounds = [row("  ", *line) for line in parts.grounds(found, width - 4)]
    steps = _headed("step", [parts.step_figures(view, room), *_spark(view, room)])
    narrow = width < NARROW
    phases = _headed("phases", (parts.phase_words if narrow else parts.phases)(found.phases_ns, room))
    ranks = _headed("ranks", strip(view.ranks, room)) if view.ranks else []
    gain = parts.gain(view, room)
    return [
        *(RowGroup(0, said), RowGroup(4, grounds, joined=True)),
        *(RowGroup(0, steps[:1]), RowGroup(5, steps[1:], joined=True)),
        *(RowGroup(int(narrow), phases[:1]), RowGroup(1, phases[1:], joined=True)),
        RowGroup(3, _headed("device", _device(found, room)[:2])),
        *(RowGroup(1, ranks), RowGroup(3, _headed("", _said(found.straggler, room, 2)), joined=True)),
        RowGroup(0, _headed(gain.head, [cut(line, room) for line in gain.rows[:2]])),
        RowGroup(0, _after(view, width, height)),
    ]


def _headed(name: str, rows: list[Row]) -> list[Row]:
    return [labelled(name if at == 0 else "", *line) for at, line in enumerate(rows)]


def _spark(view: View, room: int) -> list[Row]:
    """The steps of the last minutes in one line."""
    history = None if view.details is None else view.details.history
    line = "" if history is None else text_bars.sparkline(history.median_ns, room - 8)
    return [row(piece(line, "accent"), piece(f"  {len(line)} s", "muted"))] if line else []
