"""A past session as one page: no network, no script, light and dark; trials with their intervals as SVG.

In: the session as read from its log. Out: HTML. Each trial is a row: the gain predicted as a hollow mark,
the gain achieved as a dot with its interval, on one logarithmic axis around 1.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from importlib import resources

from autobrrr.records import Advice, Diagnosis, Trial, Tuning, limit_words
from autobrrr.records.gain_words import factor_words, gain_words
from autobrrr.report.log_scale import LogScale
from autobrrr.report.quantities import duration, parts, share
from autobrrr.report.text.session_text import PastSession
from autobrrr.report.text.tuning_text import HEADINGS, cells, label, verdict
from autobrrr.report.text.verdict_text import carrying

WIDTH, NAMES, FIGURES, ROW = 960, 270, 200, 26
LEAST_SPAN = 1.1  # the axis shows at least this factor to both sides
STYLES = ("roofline_page.css", "session_page.css")


def page(session: PastSession) -> str:
    """The page."""
    folder = resources.files("autobrrr.report.html")
    style = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in STYLES)
    found = session.last
    title = f"{found.job.script if found.job is not None else 'job'} (pid {found.pid})"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)} - autobrrr session</title><style>{style}</style></head>"
        f"<body><main>{''.join(_body(session, title))}</main></body></html>"
    )


def _body(session: PastSession, title: str) -> Iterator[str]:
    found = session.last
    yield f"<h1>{_text(title)}</h1>"
    about = [f"session of {duration(found.t_ns or 0)}", f"{found.steps or 0} steps", session.ended]
    if found.job is not None:
        about[:0] = [f"torch {found.job.torch}", f"Python {found.job.python}"]
    yield f'<p class="muted">{_text(", ".join(each for each in about if each))}</p>'
    if session.unread:
        yield f'<p class="muted">{_text(session.unread)}</p>'
    yield from _verdict(found)
    trials = session.tuned.trials if session.tuned is not None else session.trials
    if session.tuned is not None or trials:
        yield from _tuning(session.tuned, trials)
    if found.advice:
        yield from _advice(found.advice)


def _verdict(found: Diagnosis) -> Iterator[str]:
    confidence = "" if found.regime == "unknown" else f", confidence {found.confidence}"
    yield "<section><h2>Verdict</h2>"
    if found.limit != "unknown":
        head = limit_words(found.limit, found.limit_confidence)
        yield f"<p class='regime'>{head}</p><p>{_text(found.limit_reason)}</p>"
    yield f"<p class='regime'>regime: {found.regime}<span>{confidence}</span></p>"
    yield f"<p>{_text(found.reason if found.limit == 'unknown' else found.adds)}</p>"
    spent = parts(found.shares, 0.005) or []
    if spent:
        yield "<div class='spent'>" + "".join(
            f"<i class='s{i % 6}' style='flex:{part:.4f}' title='{_text(name)} {share(part)}'></i>"
            for i, (name, part) in enumerate(spent)
        )
        yield "</div><p class='keys'>" + "".join(
            f"<span><i class='s{i % 6}'></i>{_text(name)} {share(part)}</span>"
            for i, (name, part) in enumerate(spent)
        )
        yield "</p>"
    rows = [(one.signal.replace("_", " "), one.says or "", one.note) for one in carrying(found)]
    steps = found.step_ns
    if steps.median is not None:
        rows[:0] = [("step", "", f"{duration(steps.median)} median, {duration(steps.p99)} p99")]
    if rows:
        yield _table(("signal", "says", "what it saw"), rows)
    yield "</section>"


def _tuning(tuned: Tuning | None, trials: Sequence[Trial]) -> Iterator[str]:
    yield "<section><h2>Trials</h2>"
    if tuned is not None:
        yield f"<p>{_text(verdict(tuned))}</p>"
        yield f"<p class='muted'>{_text(tuned.note)}</p>" if tuned.note else ""
        for undone in tuned.guard_undid:
            yield f"<p class='bad'>the guard reverted {_text(undone.remedy)}: {_text(undone.why)}</p>"
    measured = [trial for trial in trials if trial.achieved is not None or trial.predicted is not None]
    if measured:
        yield _forest(measured, tuned)
        yield "<p class='keys'><span>&#9679; achieved, with its interval</span>"
        yield "<span>&#9671; predicted</span></p>"
    yield _table(HEADINGS, [cells(trial) for trial in trials], {1, 2, 3})
    yield "</section>"


def _forest(trials: Sequence[Trial], tuned: Tuning | None) -> str:
    """One row a trial, and one for all together."""
    rows: list[tuple[str, float | None, float | None, list[float] | None, str]] = [
        (label(each), each.predicted, each.achieved, each.interval, each.outcome) for each in trials
    ]
    if tuned is not None and tuned.interval is not None:
        rows.append(("all together", None, tuned.speedup, tuned.interval, "final"))
    scale = _scale([value for row in rows for value in (row[1], row[2], *(row[3] or [])) if value])
    left, right = NAMES, WIDTH - FIGURES

    def x(value: float) -> float:
        return left + (right - left) * min(1.0, max(0.0, scale.share(value)))

    height = ROW * (len(rows) + 1)
    drawn = []
    for mark in _marks(scale):
        drawn.append(
            f"<line class='{'one' if mark == 1 else 'grid'}' x1='{x(mark):.1f}' x2='{x(mark):.1f}' y1='4' "
            f"y2='{height - ROW}'/><text class='m' x='{x(mark):.1f}' y='{height - 8}'>{mark:g}x</text>"
        )
    for i, (name, predicted, achieved, interval, outcome) in enumerate(rows):
        y = ROW * i + ROW / 2
        drawn.append(f"<g class='{outcome}'><text class='name' x='0' y='{y + 4}'>{_text(name)}</text>")
        if interval is not None:
            low, high = (x(bound) for bound in interval)
            drawn.append(f"<line class='bar' x1='{low:.1f}' x2='{high:.1f}' y1='{y}' y2='{y}'/>")
        if predicted is not None:
            at = x(predicted)
            drawn.append(f"<path class='told' d='M{at:.1f} {y - 5}l5 5l-5 5l-5 -5z'/>")
        if achieved is not None:
            said = gain_words(achieved, interval)
            drawn.append(f"<circle cx='{x(achieved):.1f}' cy='{y}' r='4.5'/>")
            drawn.append(f"<text class='n' x='{WIDTH}' y='{y + 4}'>{_text(said)}</text>")
        drawn.append("</g>")
    return f"<svg class='forest' viewBox='0 0 {WIDTH} {height}' role='img'>{''.join(drawn)}</svg>"


def _scale(values: Sequence[float]) -> LogScale:
    """Around 1, with room at both ends."""
    return LogScale(
        low=min([1 / LEAST_SPAN, *(value / 1.03 for value in values)]),
        high=max([LEAST_SPAN, *(value * 1.03 for value in values)]),
    )


def _marks(scale: LogScale) -> list[float]:
    every = (0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
    kept: list[float] = []
    for mark in sorted((each for each in every if scale.low <= each <= scale.high), key=lambda one: one != 1):
        if all(abs(scale.share(mark) - scale.share(other)) > 0.06 for other in kept):
            kept.append(mark)
    return kept


def _advice(advice: Sequence[Advice]) -> Iterator[str]:
    yield "<section><h2>Remedies</h2>"
    yield _table(
        ("remedy", "predicted", "reach", "class", "why"),
        [(one.remedy, factor_words(one.expected), one.reach, one.class_, one.why) for one in advice],
        {1},
    )
    yield "</section>"


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int] = frozenset()
) -> str:
    kind = [' class="n"' if i in numbers else "" for i in range(len(heads))]
    head = "".join(f"<th{kind[i]}>{_text(name)}</th>" for i, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{kind[i]}>{_text(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _text(words: str) -> str:
    return html.escape(words)
