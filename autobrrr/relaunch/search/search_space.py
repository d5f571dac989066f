"""What is searched: parameters with finite levels, points made of them, and what a trial of a point found.

In: specs such as `--batch-size=int:8..512:log`, the command, the script's own flags. Out: parameters,
and for every point a recipe: a trial is started exactly as `run --recipe` would start it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.errors import UsageError
from autobrrr.recipe import Recipe
from autobrrr.recipe.recipe_contents import Value
from autobrrr.records import ExactnessClass, from_registry
from autobrrr.relaunch.search.argparse_flags import Declared, given_value
from autobrrr.tuner.candidate_space import widest

BATCH = re.compile(r"-(?!.*(eval|test|val)\w*[-_])(?:.*[-_])?(batch[-_]?size|bs|batch)$", re.IGNORECASE)
ACCUMULATE = re.compile(r"-(?!.*(eval|test|val)\w*[-_]).*(accum|grad[-_]acc)", re.IGNORECASE)
FEEDING = "loader."  # remedies that say how batches are fed
WORKERS = re.compile(
    r"--?((no|n|num|train|data|loader|data[-_]?loader|dl|persistent)[-_])*"
    r"((n|num)?workers?|prefetch([-_](factor|batches|size))?|pin[-_]?mem(ory)?)$|-j$",
    re.IGNORECASE,
)
PINS = re.compile(r"-.*pin[-_]?mem", re.IGNORECASE)
LENGTH = re.compile(
    r"-.*(seq(uence)?|max|block|context|ctx)[-_]?(len(gth)?|size|tokens)$|-.*[-_]len(gth)?$", re.IGNORECASE
)
SHAPE = (
    "write NAME=int:LOW..HIGH[:log], NAME=float:LOW..HIGH[:log], NAME=choice:A,B,… or the name of a remedy"
)
EFFECTS = {"stream": "draws other random numbers", "changes-training": "may change training results"}
Kind = Literal["flag", "variable", "remedy"]
Point = tuple[int, ...]  # the level of each parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One thing that is varied. A level that is None leaves it as the command has it.

    Attributes:
        given: The level that the command has already.
        ordered: Neighbouring levels are alike.
    """

    name: str
    kind: Kind
    levels: tuple[Value | None, ...]
    given: int
    ordered: bool
    cls: ExactnessClass
    remedy: str = ""
    option: str = ""

    @property
    def sets_length(self) -> bool:
        """It is a flag that seems to say how long a sample is."""
        return self.kind == "flag" and LENGTH.match(self.name) is not None

    @property
    def feeds(self) -> bool:
        """It says how batches are fed: the same samples in the same order."""
        by_flag = self.kind == "flag" and WORKERS.match(self.name) is not None
        return by_flag or self.remedy.startswith(FEEDING)

    def label(self, level: int) -> str:
        value = self.levels[level]
        if self.kind == "remedy" and not self.option:
            return self.name if value else f"no {self.name}"
        return f"{self.name}={'as given' if value is None else shown(value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All points of the parameters.

    Attributes:
        accumulate: The flag that keeps the product with the batch the same.
    """

    parameters: tuple[Parameter, ...]
    accumulate: str | None = None
    samples_an_update: int | None = None

    @property
    def base(self) -> Point:
        """The command as it was given."""
        return tuple(parameter.given for parameter in self.parameters)

    @property
    def batch(self) -> int | None:
        """Which parameter is the batch size."""
        flags = ((i, each.name) for i, each in enumerate(self.parameters) if each.kind == "flag")
        return next((i for i, name in flags if BATCH.match(name)), None)

    def points(self) -> list[Point]:
        """All that can be started but the command as given: those that differ least from it first."""
        found = [
            point
            for point in itertools.product(*(range(len(each.levels)) for each in self.parameters))
            if point != self.base and self.problem(point) is None
        ]
        return sorted(found, key=lambda point: (len(self.changed(point)), point))

    def changed(self, point: Point, other: Point | None = None) -> list[int]:
        """Parameters that differ from another point, or from the command as given."""
        levels = zip(point, other or self.base, strict=True)
        return [i for i, (level, its) in enumerate(levels) if level != its]

    def label(self, point: Point) -> str:
        return ", ".join(self.kept(point)) or "as given"

    def kept(self, point: Point) -> list[str]:
        """What differs from the command as given, one label each."""
        return [self.parameters[i].label(point[i]) for i in self.changed(point)]

    @property
    def lengths(self) -> list[str]:
        """Flags that are varied and seem to say how long a sample is."""
        return [each.name for each in self.parameters if each.sets_length and len(each.levels) > 1]

    def resized(self, point: Point, other: Point | None = None) -> list[str]:
        """Flags that differ and seem to say how long a sample is: its samples are not those of the other."""
        return [self.parameters[i].name for i in self.changed(point, other) if self.parameters[i].sets_length]

    def redrawn(self, point: Point) -> list[str]:
        """What differs and with which a dataset that draws random numbers draws others."""
        differing = (self.parameters[i] for i in self.changed(point))
        return [each.name for each in differing if each.feeds and each.cls == "stream"]

    def settings(self, point: Point) -> dict[str, object]:
        return {self.parameters[i].name: self.parameters[i].levels[point[i]] for i in self.changed(point)}

    def problem(self, point: Point) -> str | None:
        """Why a point can't be started; None where it can."""
        names = {self.parameters[i].remedy for i in self.changed(point) if self.parameters[i].remedy}
        for one, other in itertools.combinations(sorted(names), 2):
            if both := set(REGISTRY[one].targets) & set(REGISTRY[other].targets):
                return f"{one} and {other} both set {', '.join(sorted(both))}"
        if self.accumulate is not None and self.batch is not None:
            batch = self.batch_of(point)
            if batch is None or not self.samples_an_update or self.samples_an_update % batch:
                return "the samples of an update can't be kept"
        return None

    def batch_of(self, point: Point) -> int | None:
        """Value of the batch flag; None where it is not known."""
        value = None if self.batch is None else self.parameters[self.batch].levels[point[self.batch]]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def samples(self, point: Point) -> int | None:
        """Samples of an update as flags say; None where they don't."""
        return self.samples_an_update if self.accumulate is not None else self.batch_of(point)

    def told_ratio(self, point: Point, other: Point) -> float | None:
        """Samples of a step of one point against another's, as flags say; None where they don't.

        Variables of libraries, remedies (but `batch.larger`) and flags of the loader leave the samples of a
        step alone; of other flags only the batch size is understood.
        """
        for i in self.changed(point, other):
            parameter = self.parameters[i]
            unknown = parameter.kind == "flag" and not parameter.feeds
            if (unknown or parameter.remedy == "batch.larger") and i != self.batch:
                return None
        if self.batch is None or point[self.batch] == other[self.batch]:
            return 1.0
        mine, its = self.samples(point), self.samples(other)
        return mine / its if mine and its else None

    def cls(self, point: Point) -> ExactnessClass:
        """The widest class of what differs from the command as given."""
        return widest([self.parameters[i].cls for i in self.changed(point)])

    def recipe(self, point: Point) -> Recipe:
        """The point as a recipe."""
        args: dict[str, Value] = {}
        env: dict[str, str] = {}
        options: dict[str, dict[str, Value]] = {}
        for i in self.changed(point):  # a remedy that is off is as given
            parameter, value = self.parameters[i], self.parameters[i].levels[point[i]]
            if value is None:
                continue
            if parameter.kind == "flag":
                args[parameter.name] = value
            elif parameter.kind == "variable":
                env[parameter.name.removeprefix("env:")] = str(value)
            else:
                options.setdefault(parameter.remedy, {})
                if parameter.option:
                    options[parameter.remedy][parameter.option] = value
        batch = self.batch_of(point)
        if self.accumulate and self.samples_an_update and batch and self.batch in self.changed(point):
            args[self.accumulate] = self.samples_an_update // batch
        return Recipe(
            args=args, env=env, remedies=tuple(from_registry(name, found) for name, found in options.items())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a trial found: `value` is the log of the speed-up, None where it could not be measured.

    `low` and `high` are the bounds of its interval; None: as good as the value. `origin` says who found it,
    where it was not this run of the study. `memory_bytes` is what the trial took at most.
    """

    point: Point
    value: float | None
    kind: str
    why: str = ""
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    steps: int = 0
    duration_ns: int = 0
    memory_bytes: int | None = None
    predicted_memory_bytes: int | None = None
    origin: str = field(default="", compare=False)

    @property
    def sure(self) -> float | None:
        """The log of the speed-up that it has at least."""
        return self.value if self.low is None else self.low


def agreed_ratio(told: float | None, seen: float | None, *, accumulates: bool = False) -> float:
    """Samples of a step against another trial's, to count with.

    Args:
        told: As flags say. Where they say the same, agents are not asked: they may have seen something else.
        seen: As agents saw. Where both speak and differ, the smaller gain counts.
        accumulates: Flags say the same only if one does what its name says; agents are asked.
    """
    if seen is None or (told == 1.0 and not accumulates):
        return told or 1.0
    return seen if told is None else min(told, seen)


def make_space(
    parameters: Sequence[Parameter],
    command: Sequence[str],
    declared: Mapping[str, Declared],
    allowed: Sequence[ExactnessClass],
) -> Space:
    """The space of these parameters, with the global batch kept where the script can accumulate.

    How batches are fed needs no leave: most datasets draw no random numbers, and the result tells the class.

    Raises:
        UsageError: a name stands twice, or one changes the training and `allowed` does not have that.
    """
    names = [parameter.name for parameter in parameters]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--param {name}: given twice")
    space = Space(parameters=tuple(parameters))
    flag, rounds = accumulation(command, declared) or (None, 0)
    which, batch = space.batch, space.batch_of(space.base)
    may_keep = rounds and flag not in names and "changes-training" not in allowed
    if which is not None and batch and may_keep:
        keeps = list(parameters)
        keeps[which] = replace(keeps[which], cls="rounding")
        space = replace(space, parameters=tuple(keeps), accumulate=flag, samples_an_update=batch * rounds)
    for parameter in space.parameters:
        cls = parameter.cls
        if cls not in allowed and not parameter.feeds:
            does = EFFECTS.get(cls, f"is of class {cls}")
            raise UsageError(f"--param {parameter.name}: it {does}", f"add --allow {cls} to include it")
    if not space.points():
        raise UsageError("there is nothing to try: every parameter has only one value", SHAPE)
    return space


def accumulation(command: Sequence[str], declared: Mapping[str, Declared]) -> tuple[str, int] | None:
    """The flag that says over how many batches gradients are accumulated, and its number; None: not known."""
    given = [word.partition("=")[0] for word in command if word.startswith("--")]
    flag = next((flag for flag in [*declared, *given] if ACCUMULATE.match(flag)), None)
    number = None if flag is None else given_value(command, flag, declared)
    return (flag, number) if flag is not None and type(number) is int and number > 0 else None


def shown(value: Value) -> str:
    """A level for people, and to compare levels by."""
    return f"{value:g}" if isinstance(value, float) else str(value)
