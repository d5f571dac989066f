"""A study of relaunched trials as one HTML page without scripts: history, parameter importance, the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from autobrrr.records import Trial, Tuning
from autobrrr.records.gain_words import factor_words, interval_words
from autobrrr.report.text.study_text import memory, outcome, rate, verdict

WIDTH, HEIGHT, EDGE, BAR = 720, 220, 40, 360
STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px system-ui;margin:2em auto;max-width:60em;padding:0 1em}"
    "table{border-collapse:collapse}"
    "td,th{padding:.2em .8em .2em 0;text-align:left;border-bottom:1px solid #8884}"
    ".bar{background:#48c;height:.8em;display:inline-block}"
)


def relaunch_html(tuning: Tuning) -> str:
    """The page."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(trial)) + "</tr>"
        for trial in sorted(tuning.trials, key=lambda each: -(each.achieved or 0.0))
    )
    weights = importance(tuning.trials)
    bars = "".join(
        f"<tr><td>{escape(name)}</td><td><span class=bar style='width:{300 * share:.0f}px'></span>"
        f" {100 * share:.0f} %</td></tr>"
        for name, share in weights.items()
    )
    return (
        "<!doctype html><meta charset=utf-8><title>autobrrr tune</title>"
        f"<style>{STYLE}</style><h1>autobrrr tune</h1><p>{escape(verdict(tuning))}</p>"
        + (f"<p>{escape(tuning.note)}</p>" if tuning.note else "")
        + _against_default(tuning)
        + f"<h2>History</h2>{_history(tuning.trials)}"
        + (f"<h2>What made the difference</h2><table>{bars}</table>" if bars else "")
        + "<h2>Trials</h2><table><tr><th>trial<th>speed<th>interval<th>class<th>outcome"
        "<th>memory<th>predicted<th>why</tr>" + f"{rows}</table>\n"
    )


def importance(trials: Sequence[Trial]) -> Mapping[str, float]:
    """Share of the variance of the log-speed that the levels of each parameter explain by themselves.

    Between-level variance over total variance, one parameter at a time; interactions belong to none.
    """
    measured = [(each, math.log(each.achieved)) for each in trials if each.achieved]
    if len(measured) < 3:
        return {}
    mean = sum(value for _, value in measured) / len(measured)
    total = sum((value - mean) ** 2 for _, value in measured)
    found = {}
    for name in dict.fromkeys(name for each, _ in measured for name in each.options):
        groups: dict[str, list[float]] = {}
        for each, value in measured:
            groups.setdefault(str(each.options.get(name)), []).append(value)
        between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups.values())
        found[name] = between / total if total else 0.0
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _cells(trial: Trial) -> list[str]:
    return [
        trial.remedy,
        factor_words(trial.achieved),
        interval_words(trial.interval),
        trial.class_,
        outcome(trial),
        memory(trial.memory_bytes),
        memory(trial.predicted_memory_bytes),
        trial.why,
    ]


def _against_default(tuning: Tuning) -> str:
    """Two bars: the command as given, and the best with its interval; nothing where nothing was proven."""
    if tuning.interval is None or not tuning.kept:
        return ""
    low, high = tuning.interval
    scale = BAR / max(high, 1.0)
    rows = (
        ("as given", 1.0, rate(tuning, tuning.baseline), ""),
        (
            ", ".join(tuning.kept),
            tuning.speedup,
            rate(tuning, tuning.best),
            f"<path d='M{low * scale:.1f} 9H{high * scale:.1f}' stroke='currentColor' stroke-width='2'/>",
        ),
    )
    bars = "".join(
        f"<tr><td>{escape(name)}</td><td><svg width='{BAR}' height='18' role='img'>"
        f"<rect width='{speed * scale:.1f}' height='18' fill='#48c'/>{whisker}</svg></td>"
        f"<td>{escape(figure)}</td></tr>"
        for name, speed, figure, whisker in rows
    )
    return f"<h2>Best against default</h2><table>{bars}</table>"


def _history(trials: Sequence[Trial]) -> str:
    """Speed of every trial in its order, with intervals, and the best so far as a line."""
    speeds = [each.achieved for each in trials if each.achieved]
    low, high = min([1.0, *speeds]), max([1.0, *speeds])
    low, high = low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1)

    def x(i: int) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * (i + 0.5) / max(1, len(trials))

    def y(value: float) -> float:
        return HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (min(max(value, low), high) - low) / (high - low)

    parts, best, path = [], 1.0, []
    for i, trial in enumerate(trials):
        if trial.achieved is None:
            parts.append(
                f"<text x='{x(i):.0f}' y='{y(low):.0f}' fill='#c44' text-anchor='middle'>&times;"
                f"<title>{escape(trial.remedy)}: {escape(trial.why)}</title></text>"
            )
        else:
            best = max(best, trial.achieved)
            if trial.interval is not None:
                ends = [y(bound) for bound in trial.interval]
                parts.append(f"<path d='M{x(i):.0f} {ends[0]:.0f}V{ends[1]:.0f}' stroke='#888' fill='none'/>")
            parts.append(
                f"<circle cx='{x(i):.0f}' cy='{y(trial.achieved):.0f}' r='4' fill='#48c'>"
                f"<title>{escape(trial.remedy)}: {factor_words(trial.achieved)}</title></circle>"
            )
        path.append(f"{x(i):.0f},{y(best):.0f}")
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' role='img'>"
        f"<line x1='{EDGE}' x2='{WIDTH - EDGE}' y1='{y(1.0):.0f}' y2='{y(1.0):.0f}' stroke='#8888'/>"
        f"<text x='4' y='{y(1.0) + 4:.0f}' fill='currentColor'>1.00x</text>"
        f"<text x='4' y='{y(best) + 4:.0f}' fill='currentColor'>{factor_words(best)}</text>"
        f"<polyline points='{' '.join(path)}' fill='none' stroke='#48c'/>{''.join(parts)}</svg>"
    )
