"""A study of relaunched trials as a page: the confirmed figure, every trial, what made the difference."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from autobrrr.machine.kernel_text import number
from autobrrr.records import Trial, Tuning
from autobrrr.records.gain_words import CLASS_WORDS, factor_words, gain_words
from autobrrr.report import page_model as pm
from autobrrr.report.page_model import gain_scale
from autobrrr.report.pages.tuning_parts import trials_table

UNITS = {"samples_per_s": "samples/s", "tokens_per_s": "tokens/s"}
OBJECTIVES = {
    "step_ns": "the time of a step",
    "samples_per_s": "samples a second",
    "tokens_per_s": "tokens a second",
}
TITLE = "Every trial against the command as given, the fastest first."
GUIDE = "How well each parameter tells fast trials from slow ones (PED-ANOVA); a guide only."
OUTCOMES = {"undone": "tried", "refused": "not possible"}
LEAST_TRIALS = 4  # that were measured, before an importance is said
MOST_LEVELS = 24  # of a parameter, in a slice
SLICE_HEIGHT = 260.0


def study_page(tuning: Tuning) -> pm.ReportPage:
    """The page."""
    named = [msgspec.structs.replace(each, options={}) for each in tuning.trials]  # its name holds them
    ranked = sorted(named, key=lambda each: -(each.achieved or 0.0))
    measured = [each for each in tuning.trials if each.achieved]
    heads, found = ("parameter", "importance:share", "-"), importance(tuning.trials)
    weights = [(name, part, pm.bar(part, "memory")) for name, part in found.items()]
    return pm.ReportPage(
        kind="tune",
        title=tuning.job.script if tuning.job is not None else "a study of relaunched trials",
        about=[
            f"{len(tuning.trials)} trials, {len(measured)} measured",
            f"judged by {OBJECTIVES.get(tuning.objective, tuning.objective)}",
        ],
        sections=pm.filled(
            _result(tuning),
            pm.section("What made the difference", pm.table(GUIDE, heads, weights)),
            pm.section("By parameter", *_slices(measured), on="page"),
            pm.section("History", _history(tuning.trials) if measured else None, on="page"),
            pm.section("All trials", trials_table(TITLE, ranked, tuning if tuning.kept else None, OUTCOMES)),
        ),
        data=tuning,
        file="study.json",
    )


def _result(tuning: Tuning) -> pm.Section:
    figures = [pm.Line(text=_rate(tuning, tuning.baseline), name="as given")]
    command = f"autobrrr run --recipe {tuning.recipe} -- CMD"
    if not tuning.kept:
        ran = sum(trial.outcome != "skipped" for trial in tuning.trials)
        said = f"No faster setting was proven ({ran} of {len(tuning.trials)} trials ran)."
    else:
        said = f"{gain_words(tuning.speedup, tuning.interval)} as fast with {', '.join(tuning.kept)}"
        said += f" (class {tuning.class_}), proven by fresh starts side by side."
        figures.append(pm.Line(text=_rate(tuning, tuning.best), name=f"with {', '.join(tuning.kept)}"))
        figures.append(pm.Line(text=tuning.class_, name=CLASS_WORDS.get(tuning.class_, "")))
    is_faster = bool(tuning.kept and tuning.interval and tuning.interval[0] > 1)
    return pm.section(
        "Result",
        pm.Line(text=said, tone="better" if is_faster else ""),
        pm.Line(text=tuning.note, tone="muted") if tuning.note else None,
        pm.LineGroup(lines=figures, shape="figures"),
        pm.Line(name="Start the job with it", text=command, tone="code") if tuning.recipe else None,
    )


def _rate(tuning: Tuning, value: float | None) -> str:
    """A figure of the objective with its unit."""
    if value is None:
        return "not measured"
    unit = UNITS.get(tuning.objective)
    return f"{value / 1e6:.3g} ms a step" if unit is None else f"{value:.4g} {unit}"


def importance(trials: Sequence[Trial]) -> Mapping[str, float]:
    """Share of each parameter in what tells the fast trials from the rest (PED-ANOVA of Optuna); sums to 1.

    Empty for fewer than four measured trials, and where the intervals of all trials overlap: then there is no
    difference to explain.
    """
    measured = [each for each in trials if each.achieved and each.interval and each.options]
    intervals = [each.interval for each in measured if each.interval is not None]
    if len(measured) < LEAST_TRIALS or max(low for low, _ in intervals) <= min(high for _, high in intervals):
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


def _history(trials: Sequence[Trial]) -> pm.Chart:
    """Every trial in its order, and the best so far."""
    points, best, path = [], 1.0, []
    for index, trial in enumerate(trials):
        if trial.achieved:
            best = max(best, trial.achieved)
            points.append(_point(trial, index))
        path.append(pm.Point(x=index, y=best))
    lines = [
        pm.Series(name="best so far", colour="overhead", points=path, is_dotted=False),
        pm.Series(name="trial, with its interval", colour="memory", points=points, is_joined=False),
    ]
    says = f"Speed of {len(points)} trials in their order; the best reaches {factor_words(best)}."
    return _speeds("", says, [str(i + 1) for i in range(len(trials))], lines)


def _slices(measured: Sequence[Trial]) -> Iterator[pm.Chart]:
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
        line = pm.Series(name="", colour="memory", points=points, is_joined=False)
        yield _speeds(name, f"Speed of the trials by {name}", levels, [line], SLICE_HEIGHT)


def _point(trial: Trial, at: float) -> pm.Point:
    said = f"{trial.remedy}: {gain_words(trial.achieved, trial.interval)}"
    return pm.Point(x=at, y=trial.achieved or 1.0, words=said, interval=trial.interval)


def _speeds(
    title: str, says: str, places: Sequence[str], lines: Sequence[pm.Series], height: float = 320.0
) -> pm.Chart:
    """Speeds over named places, logarithmic around 1x; every interval is held whole."""
    points = [point for line in lines for point in line.points]
    scale = gain_scale(value for point in points for value in (point.y, *(point.interval or ())))
    return pm.Chart(
        title=title,
        says=says,
        lines=lines,
        name_y=lambda value: f"{value:g}x",
        name_x="" if title else "trial",
        places=places,
        up=scale,
        up_ticks=scale.factors(),
        strong=1.0,
        height=height,
    )
