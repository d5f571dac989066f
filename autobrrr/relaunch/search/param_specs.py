"""Reads one `--param`: `--batch-size=int:8..512:log`, `env:NAME=choice:1,2`, a remedy.

In: the spec, the command, the script's own flags. Out: a parameter with its levels, and which of them
is given.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.errors import UsageError
from autobrrr.recipe import dump, parse
from autobrrr.recipe.recipe_contents import Value
from autobrrr.recipe.script_flags import NO_PLACE, overruled, own_words, script_of, unknown_flags, with_flags
from autobrrr.records import ExactnessClass, from_registry
from autobrrr.relaunch.search.argparse_flags import Declared, as_number, given_value
from autobrrr.relaunch.search.search_space import PINS, SHAPE, WORKERS, Parameter, Space, shown

MOST_LEVELS = 16
FLOAT_LEVELS = 9
SWITCHED = {"on": True, "off": False}


def parse_parameter(
    spec: str, command: Sequence[str], env: Mapping[str, str], declared: Mapping[str, Declared]
) -> Parameter:
    """Read one `--param`.

    Raises:
        UsageError: it can't be read; the hint says how to write it.
    """
    name, equals, body = spec.partition("=")
    if not equals and name in REGISTRY:
        return remedy_parameter(name)
    kind, colon, rest = body.partition(":")
    if not name or not colon or kind not in ("int", "float", "choice"):
        raise UsageError(f"--param {spec}: can't be read", SHAPE)
    levels, ordered = _levels(spec, kind, rest)
    if name.startswith("-"):
        found = flag_parameter(name, levels, ordered, command, declared)
    elif name.startswith("env:"):
        variable = name.removeprefix("env:")
        if why := overruled(command, [variable]):
            raise UsageError(f"--param {spec}: {next(iter(why.values()))}", "leave it out of the command")
        texts, given = _with_given([str(level) for level in levels], env.get(variable))
        found = Parameter(
            name=name, kind="variable", levels=texts, given=given, ordered=ordered, cls="rounding"
        )
    else:
        found = _option(spec, name, levels)
    _refuse_what_no_recipe_says(spec, found)
    return found


def flag_parameter(
    name: str,
    levels: Sequence[Value | None],
    ordered: bool,
    command: Sequence[str],
    declared: Mapping[str, Declared],
) -> Parameter:
    """A flag of the script; where its value is not among the levels, leaving it as given is one more."""
    if own_words(command) is None:
        raise UsageError(
            f"--param {name}: {NO_PLACE}", "name the script itself: python train.py, or python -m train"
        )
    if name not in declared and unknown_flags(script_of(command), [name]):
        near = ", ".join(sorted(declared)[:8])
        raise UsageError(f"--param {name}: the script does not have this flag", f"it has {near}")
    read = [SWITCHED.get(str(level), level) for level in levels]
    now = given_value(command, name, declared)
    found, given = _with_given(read, now)
    for i, level in enumerate(found):
        if i != given and level is not None and with_flags(command, {name: level}) == list(command):
            raise UsageError(
                f"--param {name}: {shown(level)} leaves the command as it is",
                "name the flag that sets it, such as --no-amp, or its values as the script reads them",
            )
    cls: ExactnessClass = "changes-training"
    if WORKERS.match(name):  # a dataset that draws random numbers draws others in workers
        cls = "bitwise" if PINS.match(name) else "stream"
    return Parameter(name=name, kind="flag", levels=found, given=given, ordered=ordered, cls=cls)


def remedy_parameter(name: str, option: str = "", levels: Sequence[Value] = ()) -> Parameter:
    """A remedy that is off or on, or off and on with each value of one of its options."""
    return Parameter(
        name=f"{name}.{option}" if option else name,
        kind="remedy",
        levels=(False, *(levels or (True,))),
        given=0,
        ordered=len(levels) > 1 and not isinstance(levels[0], str),
        cls=from_registry(name).class_,
        remedy=name,
        option=option,
    )


def _option(spec: str, name: str, levels: Sequence[Value]) -> Parameter:
    remedy, _, option = name.rpartition(".")
    if remedy not in REGISTRY:
        raise UsageError(
            f"--param {spec}: not a flag (--NAME), a variable (env:NAME) or an option of a remedy", SHAPE
        )
    switches = {each.name for each in REGISTRY[remedy].options if each.kind == "bool"}
    meant = {**SWITCHED, "true": True, "false": False} if option in switches else {}
    values = [meant.get(str(level), level) for level in levels]
    return remedy_parameter(remedy, option, values)


def _refuse_what_no_recipe_says(spec: str, found: Parameter) -> None:
    """Raises UsageError: a trial is started by a recipe, and one of these levels can't stand in any."""
    space = Space(parameters=(found,))
    for level in range(len(found.levels)):
        try:
            parse(dump(space.recipe((level,))), "")
        except UsageError as error:
            said = error.message.partition(": ")[2]  # after the line of that recipe
            hint = "autobrrr recipe schema shows what can be set; to vary another setting, make it a flag"
            raise UsageError(f"--param {spec}: {said}", hint) from None


def _levels(spec: str, kind: str, rest: str) -> tuple[list[Value], bool]:
    if kind == "choice":
        words = [word.strip() for word in rest.split(",")]
        if len(words) != len(set(words)) or not all(words):
            raise UsageError(f"--param {spec}: choices must be different and not empty", SHAPE)
        read = [word if (number := as_number(word)) is None else number for word in words]
        known = [each for each in read if not isinstance(each, str)]
        return read, len(known) == len(words) and known == sorted(known)
    found = re.fullmatch(r"(-?[\d.eE+-]+?)\.\.(-?[\d.eE+-]+?)(:log)?", rest)
    low, high = (as_number(found.group(i)) for i in (1, 2)) if found else (None, None)
    if found is None or low is None or high is None or not low < high:
        raise UsageError(f"--param {spec}: the range must be LOW..HIGH", SHAPE)
    logarithmic = found.group(3) is not None
    if logarithmic and low <= 0:
        raise UsageError(f"--param {spec}: a logarithmic range must begin above zero", SHAPE)
    if kind == "float" and logarithmic:
        return [float(f"{each:.4g}") for each in np.geomspace(low, high, FLOAT_LEVELS)], True
    if kind == "float":
        return np.linspace(low, high, FLOAT_LEVELS).tolist(), True
    if not isinstance(low, int) or not isinstance(high, int):
        raise UsageError(f"--param {spec}: the bounds of int must be whole numbers", SHAPE)
    if logarithmic:
        return [*doubled(low, high)[-MOST_LEVELS:]], True
    spaced = np.linspace(float(low), float(high), min(MOST_LEVELS, high - low + 1))
    return [*dict.fromkeys(map(round, spaced.tolist()))], True


def doubled(low: int, high: int) -> list[int]:
    """`low`, twice that, …, and `high` itself."""
    return [*itertools.takewhile(lambda each: each < high, (low << i for i in range(64))), high]


def _with_given(levels: Sequence[Value | None], now: Value | None) -> tuple[tuple[Value | None, ...], int]:
    for i, level in enumerate(levels):
        if now is not None and level is not None and shown(level) == shown(now):
            return tuple(levels), i
    off = next((i for i, level in enumerate(levels) if level is False), None)
    if now is None and off is not None:  # a switch that is not given is off
        return tuple(levels), off
    return (None, *levels), 0
