"""The first screen: regime, step time, phases, device, ranks, the next thing to do. Never scrolls."""

from __future__ import annotations

from autobrrr.records import Diagnosis, Phases, limit_words
from autobrrr_tui import text_bars
from autobrrr_tui.panes.job_header import activity
from autobrrr_tui.panes.rank_strip import strip
from autobrrr_tui.shown_figures import duration, factor, share, size
from autobrrr_tui.text_rows import (
    BLANK,
    LABEL,
    Page,
    Piece,
    Row,
    clipped,
    labelled,
    piece,
    row,
    wrapped,
)
from autobrrr_tui.view_state import ScreenStanding, View

PHASES = (
    ("data_wait", "data", "░", "phase1"),
    ("host_to_device", "copy", "▒", "phase2"),
    ("forward", "forward", "▓", "phase3"),
    ("backward", "backward", "█", "phase4"),
    ("optimizer", "optimizer", "▞", "phase5"),
    ("other", "other", "·", "phase6"),
)
INDENT = 2 + LABEL


def page(view: View, width: int, height: int) -> Page:
    """All of it in at most `height` rows: space goes first, then the legend and the less needed lines."""
    blocks = _blocks(view, width)
    while sum(len(rows) for _, rows in blocks) > height:
        worst = max(blocks, key=lambda block: block[0])
        if worst[0] == 0:
            break
        blocks.remove(worst)
    return Page(rows=_joined(blocks, height)[:height])


Block = tuple[int, list[Row]]  # how dispensable (0: never), rows


def _joined(blocks: list[Block], height: int) -> list[Row]:
    """One under the other, with a blank row between the first ones as far as there is room."""
    spare = height - sum(len(rows) for _, rows in blocks)
    found: list[Row] = []
    for _, rows in blocks:
        if found and spare > 0:
            found.append(BLANK)
            spare -= 1
        found += rows
    return found


def _blocks(view: View, width: int) -> list[Block]:
    found = view.snapshot
    room = width - INDENT - 1
    blocks: list[Block] = [(0, _regime(view, width))]
    if found is None:
        return blocks
    blocks.append((0, _steps(view, found, room)))
    phases = _phases(found.phases_ns, room)
    if phases:
        blocks.append((0, phases[:1]))
        blocks.append((2, phases[1:]))
        blocks = [*blocks[:-2], (0, phases)] if width >= 70 else blocks
    device = device_words(found)
    if device:
        lines = text_bars.flowed([piece(word) for word in device], room)
        blocks.append((1, [labelled("device" if i == 0 else "", *line) for i, line in enumerate(lines[:2])]))
    if view.ranks:
        blocks.append(
            (
                1,
                [
                    labelled("ranks" if i == 0 else "", *line)
                    for i, line in enumerate(strip(view.ranks, room))
                ],
            )
        )
    blocks.append((0, _doing(view, found, room)))
    return blocks


def _regime(view: View, width: int) -> list[Row]:
    found = view.snapshot
    rows = [] if found is None else _limit(found, width)
    rows.append(row(piece(f"  regime: {view.regime}", "regime")))
    if found is None:
        return rows
    reason = found.reason
    if view.regime in ("measuring", "unknown"):
        tone = "dim" if view.regime == "measuring" else "plain"
    else:
        reason, tone = f"confidence {found.confidence}: {reason}", "plain"
    rows += [row(piece(f"  {line}", tone)) for line in wrapped(reason, width - 4, 3)]
    if found.decide_with and view.regime != "measuring":
        rows.append(row(piece(clipped(f"  to decide: {found.decide_with}", width - 2), "accent")))
    return rows


def _limit(found: Diagnosis, width: int) -> list[Row]:
    """Who limits the step, with its sentence; nothing while that is not known."""
    if found.limit == "unknown":
        return []
    lines = wrapped(found.limit_reason, width - 4, 2)
    head = row(piece(f"  {limit_words(found.limit, found.limit_confidence)}", "regime"))
    return [head, *(row(piece(f"  {line}", "plain")) for line in lines)]


def _steps(view: View, found: Diagnosis, room: int) -> list[Row]:
    stats = found.step_ns
    if stats.median is None:
        count = "no step seen yet" if not found.steps else f"{found.steps} steps seen"
        return [labelled("step", piece(count, "dim"))]
    history = view.details.history if view.details is not None else None
    now = [] if history is None or history.last_ns is None else [f"{duration(history.last_ns)} now"]
    words = [*now, f"{duration(stats.median)} median", f"{duration(stats.p99)} p99"]
    of = f"   of {stats.count} steps"
    shown = "   ".join(words)
    rows = [labelled("step", piece(shown, "strong"), piece(of if len(shown + of) <= room else "", "dim"))]
    if history is not None:
        cells = min(60, room - 8)
        line = text_bars.sparkline(history.median_ns, cells)
        if line:
            rows.append(labelled("", piece(line, "accent"), piece(f"  {len(line)} s", "dim")))
    return rows


def _phases(phases: Phases, room: int) -> list[Row]:
    """A bar that sums to the step, and what its parts are; what is not timed apart lies in `other`."""
    inside = [name for name in ("forward", "optimizer") if getattr(phases, name) is None]
    other = f"other with {' and '.join(inside)}" if inside else "other"
    known = [
        ((other if field == "other" else name, value / 1.0, glyph, tone), value)
        for field, name, glyph, tone in PHASES
        if (value := getattr(phases, field)) is not None
    ]
    whole = sum(value for _, value in known)
    if whole <= 0:
        return []
    parts = [part for part, _ in known]
    said = [share(value / whole) for _, value in known]
    shown = [i for i, (_, value) in enumerate(known) if value / whole >= 0.0005]
    pieces = text_bars.legend([parts[i] for i in shown], [said[i] for i in shown])
    lines = text_bars.flowed([*pieces, piece(f"= {duration(whole)}", "dim")], room)
    return [labelled("phases", *text_bars.bar(parts, room)), *(labelled("", *line) for line in lines)]


def device_words(found: Diagnosis) -> list[str]:
    """The GPU where there is one, else the processors as the machine shows them."""
    words: list[str] = []
    device = found.device or {}
    used, total = device.get("memory_used_bytes"), device.get("memory_total_bytes")
    both = isinstance(used, int) and isinstance(total, int)
    for name, value in device.items():
        if both and name in ("memory_used_bytes", "memory_total_bytes"):
            said = (
                f"memory {size(float(str(used)))} of {size(float(str(total)))}"
                if name == "memory_used_bytes"
                else ""
            )
        else:
            said = _device_word(name, value)
        if said:
            words.append(said)
    host = found.host
    if host is not None:
        if host.cpu_share is not None:
            words.append(f"CPU {share(host.cpu_share)} of a core")
        if host.children_cpu_share:
            words.append(f"workers {share(host.children_cpu_share)}")
        if host.threads is not None:
            words.append(f"{host.threads} thread{'s' * (host.threads != 1)}")
        if host.rss_bytes is not None:
            words.append(f"{size(host.rss_bytes)} resident")
        if host.run_delay_share is not None and host.run_delay_share >= 0.01:
            words.append(f"waits for a CPU {share(host.run_delay_share)}")
    return words


def _device_word(name: str, value: object) -> str:
    """One figure of a device record; its unit is the end of its name."""
    if value is None or isinstance(value, dict):
        return ""
    if isinstance(value, list | tuple):
        return f"{_spoken(name)} {', '.join(map(str, value))}" if value else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value) if name in ("name", "device") else f"{_spoken(name)} {value}"
    for ending, said in (
        ("_share", share(value)),
        ("_bytes", size(value)),
        ("_w", f"{value:.0f} W"),
        ("_mw", f"{value / 1000:.0f} W"),
        ("_mhz", f"{value:.0f} MHz"),
        ("_hz", f"{value / 1e6:.0f} MHz"),
        ("_c", f"{value:.0f} C"),
        ("_percent", f"{value:.0f} %"),
    ):
        if name.endswith(ending):
            return f"{_spoken(name.removesuffix(ending))} {said}"
    return f"{_spoken(name)} {value:g}"


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("gpu util", "GPU-Util").replace("gpu ", "GPU ")


def _doing(view: View, found: Diagnosis, room: int) -> list[Row]:
    """What is on, what could be done, what happens right now."""
    rows: list[Row] = []
    if found.levers:
        said = ", ".join(found.levers)
        if view.tuned is not None and view.tuned.kept and view.tuned.interval is not None:
            said += f": {factor(view.tuned.speedup)} proven"
        hint: tuple[Piece, ...] = (piece("   u undoes it", "key", "screen.undo"),) if view.acting else ()
        rows.append(labelled("on", piece(clipped(said, room - 16), "good"), *hint))
    elif found.advice and not view.tuning:
        best = next((each for each in found.advice if each.reach == "live"), found.advice[0])
        gain = "" if best.expected is None else f", {factor(best.expected)} expected"
        hint = (piece("   t tries it", "key", "screen.tune"),) if view.acting and best.reach == "live" else ()
        rows.append(labelled("cure", piece(clipped(f"{best.remedy}{gain}", room - 14), "accent"), *hint))
    if view.failed:
        rows.append(labelled("tuning", piece(clipped(view.failed, room), "bad")))
    tone = "warn" if view.standing is not ScreenStanding.LIVE or view.silent_s >= 5 else "plain"
    rows += [
        labelled("now" if i == 0 else "", piece(line, tone))
        for i, line in enumerate(wrapped(activity(view), room, 2))
    ]
    return rows
