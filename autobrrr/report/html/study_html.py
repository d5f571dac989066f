"""A study of relaunched trials as one page: trials with intervals, what made the difference, slices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from autobrrr.machine.kernel_text import number
from autobrrr.quantities import duration, share
from autobrrr.records import Trial, Tuning
from autobrrr.records.gain_words import CLASS_WORDS, factor_words, gain_words
from autobrrr.report.html.interval_chart import Gain, IntervalChart, gain_scale, gain_ticks, interval_chart
from autobrrr.report.html.page_charts import ChartFrame, ChartLine, ChartPoint, DrawnChart, chart
from autobrrr.report.html.page_tables import Cell, PageTable, bar, figure, words
from autobrrr.report.html.page_template import render
from autobrrr.report.text.study_text import memory, outcome, rate, verdict

OBJECTIVES = {
    "step_ns": "the time of a step",
    "samples_per_s": "samples a second",
    "tokens_per_s": "tokens a second",
}
LEAST_TRIALS = 4  # that were measured, before an importance is said
MOST_LEVELS = 24  # of a parameter, in a slice
WIDE, SLICE = (900.0, 320.0), (640.0, 260.0)


def relaunch_html(tuning: Tuning) -> str:
    """The page."""
    ranked = sorted(tuning.trials, key=lambda each: -(each.achieved or 0.0))
    measured = [each for each in tuning.trials if each.achieved]
    weights = importance(tuning.trials)
    return render(
        "study",
        data=tuning,
        data_name="study.json",
        kind="tune",
        title=tuning.job.script if tuning.job is not None else "a study of relaunched trials",
        about=[
            f"{len(tuning.trials)} trials, {len(measured)} measured",
            f"judged by {OBJECTIVES.get(tuning.objective, tuning.objective)}",
        ],
        verdict=verdict(tuning),
        note=tuning.note,
        figures=list(_figures(tuning)),
        gains=_gains(tuning, ranked) if measured else None,
        importance=_importance(weights) if weights else None,
        history=_history(tuning.trials) if measured else None,
        slices=list(_slices(measured)),
        trials=_table(ranked),
        command=f"autobrrr run --recipe {tuning.recipe} -- CMD" if tuning.recipe else None,
    )


def importance(trials: Sequence[Trial]) -> Mapping[str, float]:
    """Share of each parameter in what tells the fast trials from the rest (PED-ANOVA of Optuna); sums to 1.

    Empty for fewer than four measured trials, and where the intervals of all trials overlap: then there is no
    difference to explain.
    """
    measured = [each for each in trials if each.achieved and each.interval and each.options]
    if len(measured) < LEAST_TRIALS or not _differ(measured):
        return {}
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = list(measured[0].options)
    levels = {name: sorted({str(each.options.get(name)) for each in measured}) for name in names}
    kinds = {name: optuna.distributions.CategoricalDistribution(found) for name, found in levels.items()}
    study = optuna.study.create_study(
        storage=optuna.storages.InMemoryStorage(),
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the evaluator is new, and says so
        for each in measured:
            levels_of = {name: str(each.options.get(name)) for name in names}
            study.add_trial(
                optuna.trial.create_trial(params=levels_of, distributions=kinds, value=each.achieved)
            )
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _differ(measured: Sequence[Trial]) -> bool:
    """Whether the interval of one trial lies above that of another."""
    intervals = [each.interval for each in measured if each.interval is not None]
    return max(low for low, _ in intervals) > min(high for _, high in intervals)


def _figures(tuning: Tuning) -> Iterator[tuple[str, str, str]]:
    if tuning.kept and tuning.interval is not None:
        tone = "better" if tuning.interval[0] > 1 else ""
        yield gain_words(tuning.speedup, tuning.interval), "faster, from fresh starts side by side", tone
        yield rate(tuning, tuning.baseline), "as given", ""
        yield rate(tuning, tuning.best), f"with {', '.join(tuning.kept)}", ""
        yield tuning.class_, CLASS_WORDS.get(tuning.class_, "what it does to results"), ""
    else:
        yield rate(tuning, tuning.baseline), "as given", ""


def _gains(tuning: Tuning, ranked: Sequence[Trial]) -> IntervalChart:
    rows = [
        Gain(
            name=each.remedy,
            achieved=each.achieved,
            interval=each.interval,
            predicted=each.predicted,
            outcome=outcome(each),
            is_kept=each.outcome == "kept",
        )
        for each in ranked
        if each.achieved
    ]
    if tuning.kept and tuning.interval is not None:
        confirmed = f"{', '.join(tuning.kept)}: fresh starts"
        rows.append(Gain(name=confirmed, achieved=tuning.speedup, interval=tuning.interval, is_total=True))
    return interval_chart(rows)


def _importance(weights: Mapping[str, float]) -> PageTable:
    return PageTable(
        caption="How well each parameter tells fast trials from slow ones (PED-ANOVA); a guide only.",
        heads=("parameter", "#importance", "-"),
        rows=[
            [Cell(text=name), figure(share(part), part), bar(part, "memory")]
            for name, part in weights.items()
        ],
    )


def _history(trials: Sequence[Trial]) -> DrawnChart:
    """Every trial in its order, and the best so far."""
    points, best, path = [], 1.0, []
    for index, trial in enumerate(trials):
        if trial.achieved:
            best = max(best, trial.achieved)
            points.append(_point(trial, index))
        path.append(ChartPoint(x=index, y=best))
    lines = [
        ChartLine(name="best so far", colour="overhead", points=path, is_dotted=False),
        ChartLine(name="trial, with its interval", colour="memory", points=points, is_joined=False),
    ]
    says = f"Speed of {len(points)} trials in their order; the best reaches {factor_words(best)}."
    frame = _speeds([str(i + 1) for i in range(len(trials))], lines)
    return chart(replace(frame, says=says, name_x="trial", size=WIDE), lines)


def _slices(measured: Sequence[Trial]) -> Iterator[DrawnChart]:
    """One chart a parameter: the speed of each trial by the level it had."""
    for name in dict.fromkeys(name for each in measured for name in each.options):
        levels = list(dict.fromkeys(str(each.options.get(name)) for each in measured))
        levels.sort(key=lambda level: (number(level) is None, number(level) or 0, level))
        if not 1 < len(levels) <= MOST_LEVELS:
            continue
        points = []
        for place, level in enumerate(levels):
            at_level = [each for each in measured if str(each.options.get(name)) == level]
            apart = 0.6 / max(1, len(at_level))
            points += [
                _point(each, place + apart * (i - (len(at_level) - 1) / 2)) for i, each in enumerate(at_level)
            ]
        line = ChartLine(name="", colour="memory", points=points, is_joined=False)
        said = f"Speed of the trials by {name}"
        yield chart(replace(_speeds(levels, [line]), title=name, says=said, size=SLICE), [line])


def _point(trial: Trial, at: float) -> ChartPoint:
    said = f"{trial.remedy}: {gain_words(trial.achieved, trial.interval)}"
    return ChartPoint(x=at, y=trial.achieved or 1.0, words=said, interval=trial.interval)


def _speeds(places: Sequence[str], lines: Sequence[ChartLine]) -> ChartFrame:
    """Axes for speeds: logarithmic around 1x, and every interval is held whole."""
    scale = gain_scale(
        value for line in lines for point in line.points for value in (point.y, *(point.interval or ()))
    )
    return ChartFrame(
        title="",
        says="",
        name_y=lambda value: f"{value:g}x",
        places=places,
        up=scale,
        up_ticks=gain_ticks(scale),
        strong=1.0,
    )


def _table(trials: Sequence[Trial]) -> PageTable:
    return PageTable(
        caption="Every trial, the fastest first.",
        heads=("trial", "#speed", "class", "outcome", "#memory", "#predicted memory", "#took", "why"),
        rows=[
            [
                Cell(text=each.remedy),
                figure(gain_words(each.achieved, each.interval), each.achieved),
                *words(each.class_, outcome(each)),
                figure(memory(each.memory_bytes), each.memory_bytes),
                figure(memory(each.predicted_memory_bytes), each.predicted_memory_bytes),
                figure(duration(each.duration_ns), each.duration_ns),
                Cell(text=each.why),
            ]
            for each in trials
        ],
    )
