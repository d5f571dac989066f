"""What stands on the first screen, part by part: each a few rows for so many cells."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.records import Diagnosis, Phases
from autobrrr.records.gain_words import factor_words, gain_words
from autobrrr.records.limit_words import limit_name
from autobrrr_tui import text_bars, text_charts
from autobrrr_tui.panes.job_header import activity
from autobrrr_tui.panes.tuning_pane import DARING, RemedyRow, lines
from autobrrr_tui.shown_figures import clock, duration, share, size
from autobrrr_tui.text_rows import Piece, Row, clipped, middled, padded, piece, row, wrapped
from autobrrr_tui.view_state import ScreenStanding, View

PHASES = (
    ("data_wait", "data", "░", "data_wait"),
    ("host_to_device", "copy", "▒", "host_to_device"),
    ("forward", "forward", "▓", "forward"),
    ("backward", "backward", "█", "backward"),
    ("optimizer", "optimizer", "▞", "optimizer"),
    ("other", "other", "·", "other"),
)
DOUBT = {"high": "●●●", "medium": "●●○", "low": "●○○"}
CROWDED = 0.05  # of the time without a CPU: from here on a screen says so
OUTCOMES = {"kept": "✓", "on": "✓", "trying": "▸", "confirming": "▸", "watched": "▸", "reverted": "✗"}


def verdict(view: View, room: int, most: int = 3) -> list[Row]:
    """Who limits the step, with what, how sure, by which signals; what was known stays, with its age."""
    found = view.snapshot
    if found is None:
        return []
    named, age = found, ""
    if view.judged is not None and found.regime == "unknown" and found.limit == "unknown":
        named = view.judged
        passed = (found.t_ns or 0) - (named.t_ns or 0)
        age = f"   {clock(passed)} ago, measured again now" if passed > 0 else ""
    strong, plain = ("dim", "dim") if age else ("regime", "plain")
    rows: list[Row] = []
    if named.limit != "unknown":
        rows.append(
            row(
                piece(limit_name(named.limit), strong),
                *_doubt(named.limit_confidence, named.provisional),
                age,
            )
        )
        rows += [row(piece(line, plain)) for line in wrapped(named.limit_reason, room, most)]
    elif named.regime != "unknown":
        rows.append(row(piece(named.regime, strong), *_doubt(named.confidence, named.provisional), age))
    said = named.reason if named.limit == "unknown" else named.adds
    if named.limit != "unknown" and named.regime not in ("unknown", "mixed"):
        said = f"{named.regime} ({named.confidence})" + (f": {said}" if said else "")
    tone = "dim" if view.regime == "measuring" or age else "plain"
    return [*rows, *(row(piece(line, tone)) for line in wrapped(said, room, most))]


def _doubt(confidence: str, provisional: bool) -> tuple[Piece, ...]:
    return (
        piece(f"   {DOUBT[confidence]} {confidence}", "accent"),
        piece(" provisional" if provisional else "", "warn"),
    )


def grounds(found: Diagnosis, room: int) -> list[Row]:
    """Which signals carry the verdict, and what would decide an open one."""
    names = [each.signal.replace("_", " ") for each in found.evidence if each.says == found.regime]
    rows = []
    if names and found.regime != "unknown":
        counted = "1 signal says so" if len(names) == 1 else f"{len(names)} signals say so"
        rows.append(row(piece(clipped(f"{counted}: {', '.join(names)}", room), "dim")))
    if found.decide_with and found.state not in ("tracing", "probing", "watching"):
        rows.append(row(piece(clipped(f"to decide: {found.decide_with}", room), "accent")))
    return rows


def crowd(found: Diagnosis, room: int) -> list[Row]:
    """Whether others take the CPUs from this job, and who; nothing where that was not measured."""
    delay = None if found.host is None else found.host.run_delay_share
    if delay is None:
        return []
    if delay < CROWDED:
        return [row(piece("machine quiet", "dim"))]
    who = ", ".join(f"{each.command} (pid {each.pid}) {share(each.share)}" for each in found.contention[:2])
    said = f"machine busy: the job waits for a CPU {share(delay)} of the time" + (f"; {who}" if who else "")
    return [row(piece(line, "warn")) for line in wrapped(said, room, 2)]


def gain(view: View, room: int) -> list[Row]:
    """What was gained, or is tried, or could be."""
    found = view.snapshot
    if found is None:
        return []
    if view.tuning and view.progress is not None:
        return _tried_now(view, room)
    on = _on(view)
    if on:
        proven, *saved = _proven(view)
        return [proven, row(piece(clipped(f"on: {', '.join(on)}", room), "good"), *_badges(view)), *saved]
    if view.tuned is not None and view.tuned.kept:
        was = gain_words(view.tuned.speedup, view.tuned.interval)
        kept = ", ".join(view.tuned.kept)
        return [
            row(piece(clipped(f"proven: {was} with {kept}", room))),
            row(piece("nothing is on now", "dim")),
        ]
    rows = [row(piece(line, "bad")) for line in wrapped(view.failed, room, 2)] if view.failed else []
    if view.tuned is not None and not view.tuned.kept:
        rows.append(row(piece("tuned: no remedy gave a proven gain", "dim")))
    if not found.advice:
        return rows or [row(piece("nothing tried yet", "dim"))]
    for advice in found.advice[:4]:
        badge = _badge(advice.class_) if room >= 50 else piece("")
        cells = min(20, max(8, room - 27 - len(badge[0])))
        how = "" if advice.reach == "live" else "  restart"
        foreseen = piece(
            f"{padded(middled(advice.remedy, cells), cells)} {_foreseen(advice.expected)}", "accent"
        )
        rows.append(row(foreseen, piece(how, "dim"), badge))
    return rows


def _foreseen(expected: float | None) -> str:
    return " " * 16 if expected is None else f"{factor_words(expected):>6} predicted"


def _on(view: View) -> list[str]:
    return list(view.snapshot.active) if view.snapshot is not None else []


def _proven(view: View) -> list[Row]:
    tuned = view.tuned
    if tuned is None or not tuned.kept or tuned.interval is None:
        return [row(piece("not measured against the job without it; t does", "dim"))]
    rows: list[Row] = []
    figures: list[Piece] = []
    if tuned.objective == "step_ns" and tuned.baseline and tuned.best:
        figures = [piece(f"{duration(tuned.baseline)} → {duration(tuned.best)}   ", "strong")]
    rows.append(row(*figures, piece(gain_words(tuned.speedup, tuned.interval), "good"), "   proven"))
    if tuned.speedup > 1:
        minutes = 60 * (1 - 1 / tuned.speedup)
        rows.append(row(f"saves {minutes:.0f} min of every hour of training"))
    return rows


def _badges(view: View) -> tuple[Piece, ...]:
    classes = {
        each.class_ for each in (view.details.active if view.details is not None else ()) if each.class_
    }
    return tuple(_badge(each) for each in sorted(classes))


def _badge(class_: str) -> Piece:
    return piece(f"  [{class_.partition('-')[0]}]", "warn" if class_ in DARING else "accent")


def _tried_now(view: View, room: int) -> list[Row]:
    now = view.progress
    if now is None:
        return []
    cells = max(4, min(30, room - 20))
    part = 0.0 if now.budget_ns <= 0 else min(1.0, now.elapsed_ns / now.budget_ns)
    full = round(part * cells)
    name = now.remedy or "what is kept, all together"
    rows = [row(piece(clipped(f"trying {name}", room), "warn"))]
    if now.achieved is not None:
        rows.append(row(gain_words(now.achieved, now.interval), piece(f"   after {now.pairs} pairs", "dim")))
    rows.append(
        row(
            piece("━" * full, "accent"),
            piece("─" * (cells - full), "dim"),
            f" {now.elapsed_ns / 1e9:.0f} of {now.budget_ns / 1e9:.0f} s",
        )
    )
    if now.kept:
        rows.append(row(piece(clipped(f"kept so far: {', '.join(now.kept)}", room), "good")))
    return rows


def step_figures(view: View, room: int) -> Row:
    """`4.18 ms now   4.20 ms median   4.69 ms p99   238 steps/s   of 670 steps`."""
    found = view.snapshot
    if found is None or found.step_ns.median is None:
        steps = 0 if found is None or not found.steps else found.steps
        return row(piece("no step seen yet" if not steps else f"{steps} steps seen", "dim"))
    stats, history = found.step_ns, None if view.details is None else view.details.history
    words = [f"{duration(stats.median)} median", f"{duration(stats.p99)} p99"]
    if history is not None and history.last_ns is not None:
        words.insert(0, f"{duration(history.last_ns)} now")
    median = stats.median or 0
    more = [f"{_rate(1e9 / median)} steps/s"] if median > 0 else []
    if more and found.batch_probe.batch:
        more.append(f"{_rate(found.batch_probe.batch * 1e9 / median)} samples/s")
    more.append(f"of {stats.count} steps")
    while more and len("   ".join([*words, *more])) > room:
        more.pop()
    return row(piece("   ".join(words), "strong"), piece("".join(f"   {each}" for each in more), "dim"))


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2f}"


def chart(view: View, room: int, height: int) -> list[Row]:
    """Median step of each second: axis, curve, the step before tuning, what was cut off, marks."""
    found = view.snapshot
    history = None if view.details is None else view.details.history
    if found is None or history is None or height < 4:
        return []
    known = sorted(value for value in history.median_ns if value is not None)
    if not known:
        return []
    before = view.tuned.baseline if view.tuned is not None and view.tuned.objective == "step_ns" else None
    usual = known[len(known) // 2]
    high = min(known[int(0.98 * (len(known) - 1))], 3 * usual)  # a pause of seconds would flatten all else
    top = 1.25 * max(float(high), before or 0.0)
    axis = max(len(duration(value)) for value in (top, top / 2)) + 1
    cells, rows = room - axis - 1, height - 2
    each = max(1, 2 * cells // max(30, len(history.median_ns)))  # columns of dots a second
    columns = [value for value in history.median_ns for _ in range(each)]
    drawn = text_charts.curve(
        [None if value is None else float(value) for value in columns], cells, rows, top
    )
    at = None if not before else min(rows - 1, int(rows * (1 - before / top)))
    body: list[Row] = []
    for line, text in enumerate(drawn):
        label = duration(top) if line == 0 else duration(top / 2) if line == rows // 2 else ""
        pieces = [piece(f"{label:>{axis}}┤", "dim")]
        if line == at:
            tail = f" {duration(before)} before"
            pieces += [piece(text.replace(" ", "╌")[: cells - len(tail)], "accent"), piece(tail, "dim")]
        else:
            pieces.append(piece(text, "accent"))
        body.append(row(*pieces))

    def column(seconds_ago: float) -> int:
        return cells - 1 - int(seconds_ago * 1e9 / history.bucket_ns * each / 2)

    cut = [
        (column(len(history.median_ns) - 1 - index), f"↑{duration(value)}")
        for index, value in enumerate(history.longest_ns)
        if value is not None and value > 1.5 * top
    ]
    happened = [(column(((found.t_ns or 0) - mark.t_ns) / 1e9), f"╵{mark.text}") for mark in view.marks]
    return [
        row(piece(" " * (axis + 1)), piece(_labels(cut, cells), "bad")),
        *body,
        row(piece(f"{'0':>{axis}}┤", "dim"), piece(_labels(happened, cells), "warn")),
    ]


def _labels(placed: Sequence[tuple[int, str]], cells: int) -> str:
    """Words at their cells, the newest first; what would overlap or lies outside is left out."""
    line = [" "] * cells
    for at, text in reversed(placed):
        start = min(at, cells - len(text))
        around = line[max(0, start - 1) : start + len(text) + 1]
        if at >= 0 and start >= 0 and not "".join(around).strip():
            line[start : start + len(text)] = text
    return "".join(line)


def seconds_shown(view: View) -> str:
    history = None if view.details is None else view.details.history
    return "" if history is None or not history.median_ns else f"last {len(history.median_ns)} s"


def phase_parts(phases: Phases) -> list[tuple[str, float, str, str]]:
    """Name, time, glyph and tone of what was timed; what is not timed apart lies in `other`."""
    inside = [name for name in ("forward", "optimizer") if getattr(phases, name) is None]
    other = f"other with {' and '.join(inside)}" if inside else "other"
    return [
        (other if field == "other" else name, float(value), glyph, tone)
        for field, name, glyph, tone in PHASES
        if (value := getattr(phases, field)) is not None
    ]


def phase_bar(phases: Phases, room: int) -> list[list[Piece]]:
    """One bar that sums to the step, and below it what its parts are."""
    known = phase_parts(phases)
    whole = sum(value for _, value, _, _ in known)
    if whole <= 0:
        return []
    shown = [part for part in known if part[1] / whole >= 0.0005]
    said = text_bars.legend(shown, [share(value / whole) for _, value, _, _ in shown])
    flowed = text_bars.flowed([*said, piece(f"= {duration(whole)}", "dim")], room)
    return [text_bars.bar(known, room), *flowed]


def phase_rows(phases: Phases, room: int) -> list[Row]:
    """A bar for each phase."""
    known = phase_parts(phases)
    whole = sum(value for _, value, _, _ in known)
    if whole <= 0:
        return []
    names = min(30, max(len(name) for name, *_ in known))
    cells = max(4, room - names - 18)
    longest = max(value for _, value, _, _ in known)
    return [
        row(
            f"{padded(name, names)} ",
            piece(padded(glyph * max(1, round(value / longest * cells)), cells), tone),
            f" {share(value / whole):>6} {duration(value):>8}",
        )
        for name, value, glyph, tone in known
        if value / whole >= 0.0005
    ]


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
            words.append(f"RSS {size(host.rss_bytes)}")
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


def remedies(view: View, room: int, most: int) -> list[Row]:
    """What was tried and may be: outcome, interval on one logarithmic axis, gain, class."""
    found = lines(view)
    if not found or most < 2:
        return [row(piece("none is known yet for this job", "dim"))]
    tried = [each for each in found if each.achieved is not None]
    names = min(30, max(16, room // 4))
    cells = min(60, room - names - 32)
    cells = cells if cells >= 12 and tried else 0
    names = names if cells else min(38, max(names, room - 32))
    ends = text_charts.log_axis(
        [bound for each in tried for bound in each.interval or [each.achieved or 1.0]]
    )
    rows = [_axis(names, ends, cells)] if cells else []
    left = most - len(rows)
    shown = found if len(found) <= left else found[: left - 1]
    rows += [_remedy(each, names, ends, cells) for each in shown]
    if len(shown) < len(found):
        rows.append(
            row(piece(f"  {len(found) - len(shown)} more: 3 lists them", "dim", "screen.mode('tuning')"))
        )
    return rows


def _axis(names: int, ends: tuple[float, float], cells: int) -> Row:
    line = [" "] * cells
    for factor in (*ends, 1.0):
        said = f"{factor:.1f}x" if factor != 1 else "1x"
        at = min(cells - len(said), text_charts.place(factor, ends, cells))
        line[at : at + len(said)] = said
    return row(piece(f"{'':<{names + 2}}{''.join(line)}", "dim"))


def _remedy(each: RemedyRow, names: int, ends: tuple[float, float], cells: int) -> Row:
    on = each.token is not None
    off = each.state in ("kept", "on") and not on
    glyph = "·" if off else OUTCOMES.get(each.state, "·")
    better = each.interval is not None and each.interval[0] > 1
    worse = each.interval is not None and each.interval[1] < 1
    tone = "good" if better else "bad" if worse else "plain"
    figure = gain_words(each.achieved, each.interval)
    if each.achieved is None:
        figure = each.state if each.predicted is None else f"{factor_words(each.predicted)} predicted"
    tried = each.achieved is not None
    drawn = text_charts.whisker(each.achieved, each.interval, ends, cells) if tried else ""
    return row(
        piece(f"{glyph} ", "good" if on else "warn" if glyph == "▸" else "dim"),
        piece(padded(middled(each.key, names), names), "strong" if on else "plain"),
        *([piece(padded(drawn, cells), tone)] if cells else []),
        piece(f" {figure:<19}", tone if each.achieved is not None else "dim"),
        piece(f" {each.class_.partition('-')[0]}", "warn" if each.class_ in DARING else "dim"),
    )


def now_line(view: View, room: int) -> list[Row]:
    """What happens right now."""
    tone = "warn" if view.standing is not ScreenStanding.LIVE or view.silent_s >= 5 else "plain"
    return [row(piece(line, tone)) for line in wrapped(activity(view), room, 2)]


def next_step(view: View) -> tuple[str, str]:
    """What to press or type now: the words, and the action of a click ("" where there is none)."""
    found = view.snapshot
    if view.standing is ScreenStanding.RECORDED or found is None:
        return "", ""
    if view.over:
        return (
            "q leaves; autobrrr report shows what was measured" if view.pid else "q leaves"
        ), "screen.quit"
    if not view.acting:
        return "", ""
    if view.tuning:
        return ("space continues" if view.paused else "space pauses, t stops and keeps what is proven"), ""
    script = "" if found.job is None else found.job.script.rsplit("/", 1)[-1]
    if found.active:
        run = f", then: autobrrr run --recipe FILE -- python {script}" if script else ""
        return f"e saves what is on as a recipe{run}", "screen.export"
    if view.regime == "measuring":
        return "nothing to do: the first verdict takes seconds", ""
    live = [each for each in lines(view) if each.reach == "live" and each.default]
    if live and (view.tuned is None or view.failed):
        counted = "1 remedy" if len(live) == 1 else f"{len(live)} remedies"
        return f"t tries {counted} in turn; what gives no proven gain is reverted", "screen.tune"
    restart = next((each for each in found.advice if each.reach == "relaunch"), None)
    if restart is not None and script:
        return f"autobrrr tune -- python {script} tries {restart.remedy}, which needs a new start", ""
    return "d detaches and leaves the job as it was", "screen.detach"
