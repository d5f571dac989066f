"""A recipe as a file: TOML in, a valid `Recipe` out; written from one, and from a tuning's result.

Every fault of a file ends as `FILE:LINE: cause`, exit code 2, before anything is started.
"""

from __future__ import annotations

import glob
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn, get_args

import msgspec

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.errors import UsageError
from autobrrr.folders import open_plain
from autobrrr.readable import nearest, readable
from autobrrr.recipe.recipe_contents import SCHEMA, FileTable, Match, Measured, Numerics, Recipe, Value
from autobrrr.recipe.recipe_fit import versions_problem
from autobrrr.recipe.recipe_variables import VARIABLES, meant
from autobrrr.records import Advice, ExactnessClass, JobFacts, Tuning, from_registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_BYTES = 1 << 16
MOST_LINE_CHARACTERS = 1000  # of one in which a key is looked for
PACKAGE = Path(__file__).resolve().parent.parent
MOST_NUMBER = 1 << 64  # as TOML has them; `0xfff...` of any length is read, and can't be written
GONE = {"loader.cache": "keep the items in the dataset itself"}  # remedies that there were, and what to do
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")

Keys = tuple[str, ...]
Table = Mapping[str, object]


def shipped(package: Path = PACKAGE) -> dict[str, Path]:
    """The recipes that come with the program, by name: beside the code in a wheel, beside the package in a
    checkout.
    """
    for folder in (package / "_recipes", package.parent / "recipes"):
        found = {file.stem: file for file in sorted(folder.glob("*.toml"))}
        if found:
            return found
    return {}


def load(path: Path | str) -> Recipe:
    """Read a recipe from a file, or a shipped one by its name.

    Raises:
        UsageError: it can't be read, or is not valid.
    """
    file = Path(path)
    try:
        if not file.exists() and str(path) in shipped():
            file = shipped()[str(path)]
        with open(open_plain(file), "rb") as opened:
            body = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        names = _nearest(str(path), shipped())
        reason = error.strerror if isinstance(error, OSError) else "not a valid file name"
        raise UsageError(f"{path}: {reason}{names}", "autobrrr recipe ls lists the shipped ones") from None
    if len(body) > MOST_BYTES:
        raise UsageError(f"{file}:1: larger than {MOST_BYTES >> 10} KiB; a recipe is a page of text")
    try:
        text = body.decode("utf-8-sig")  # some editors put a mark in front
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{file}:{line}: not UTF-8 text") from None
    return parse(text, str(file))


def parse(text: str, source: str = "recipe") -> Recipe:
    """Read a recipe from a text.

    Raises:
        UsageError: it is not valid.
    """
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{source}:1: nested too deeply") from None
    except ValueError as error:
        found = _AT_LINE.search(str(error))
        line = (
            int(found.group(1)) if found else text.count("\n") + 1 if "end of document" in str(error) else 1
        )
        raise UsageError(f"{source}:{line}: {readable(_AT_LINE.sub('', str(error))).strip()}") from None
    return _Reader(source, text).recipe(table)


def key_line(text: str, path: Keys) -> int:
    """The line in which a key stands, or the nearest key above it; 1 for the whole.

    The TOML reader does not tell. Lines are searched for one key after the other.
    """
    lines, at = [line[:MOST_LINE_CHARACTERS] for line in text.split("\n")], 0
    for key in path:
        bare = re.escape(key)
        wanted = re.compile(rf"""(?:^(?:[^=#]*[\s.\[])?|=.*[{{,]\s*)(?:{bare}|"{bare}"|'{bare}')\s*[=.\]]""")
        at = next((place for place in range(at, len(lines)) if wanted.search(lines[place])), at)
    return at + 1


class _File(FileTable, frozen=True, kw_only=True):
    """A recipe as it is written; the tables with keys of any name are looked at key by key."""

    schema: int
    description: str | None = None
    match: Match = Match()
    remedies: dict[str, object] = {}
    args: dict[str, object] = {}
    env: dict[str, object] = {}
    evidence: Measured | None = None
    numerics: Numerics = Numerics()


KEYS = (*_File.__struct_fields__, *Match.__struct_fields__, *Measured.__struct_fields__, "class")


class _Reader:
    def __init__(self, source: str, text: str) -> None:
        self.source, self.text_of_file = source, text
        self.lines: dict[str, int] = {}

    def line(self, path: Keys) -> int:
        return key_line(self.text_of_file, path)

    def fail(self, path: Keys, cause: str) -> NoReturn:
        raise UsageError(f"{self.source}:{self.line(path)}: {readable(cause).strip()}")

    def recipe(self, table: Table) -> Recipe:
        self.version(table)
        file = self.converted(table)
        problem = None if file.match.torch is None else versions_problem(file.match.torch)
        if problem is not None:
            self.fail(("match", "torch"), problem)
        interval = None if file.evidence is None else file.evidence.interval
        if interval is not None and not interval[0] <= interval[1]:
            self.fail(("evidence", "interval"), "interval must be two numbers, the lower first")
        return Recipe(
            source=self.source,
            text=self.text_of_file,
            description=file.description,
            match=file.match,
            remedies=self.remedies(file.remedies),
            lines=self.lines,
            args=self.args(file.args),
            env=self.env(file.env),
            evidence=file.evidence,
            numerics=file.numerics.class_,
        )

    def version(self, table: Table) -> None:
        found = table.get("schema")
        if found is None:
            self.fail((), f"`schema = {SCHEMA}` is missing")
        if isinstance(found, bool) or found != SCHEMA:
            self.fail(("schema",), f"schema {_shown(found)}; this version reads schema {SCHEMA}")

    def converted(self, table: Table) -> _File:
        try:
            return msgspec.convert(table, _File)
        except OverflowError:
            self.fail(("evidence",), "a number that large")
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            path = tuple(re.findall(r"\w+", where.partition("[")[0]))
            unknown = re.search("unknown field `(.*)`", what)
            word = unknown or re.search("enum value '(.*)'", what)
            near = "" if word is None else _nearest(word[1], (*KEYS, *get_args(ExactnessClass)))
            self.fail(
                (*path, unknown[1]) if unknown else path, f"{'.'.join(path)}: ".lstrip(": ") + what + near
            )

    def remedies(self, table: Table) -> tuple[Advice, ...]:
        found: list[Advice] = []
        for keys, value in _entries((), table):
            name = ".".join(keys)
            path = ("remedies", *keys)
            if name in GONE:
                self.fail(path, f"{name} is no longer a remedy; {GONE[name]}")
            if name not in REGISTRY:
                self.fail(path, f"no remedy {_shown(name)}{_nearest(name, REGISTRY)}")
            if name in self.lines:
                self.fail(path, f"{name} is already in line {self.lines[name]}")
            self.conflicts(name, path)
            found.append(from_registry(name, self.options(name, path, value)))
            self.lines[name] = self.line(path)
        return tuple(found)

    def conflicts(self, name: str, path: Keys) -> None:
        for other, line in self.lines.items():
            both = set(REGISTRY[name].targets) & set(REGISTRY[other].targets)
            if both:
                what = ", ".join(sorted(both))
                self.fail(path, f"{name} and {other} (line {line}) both set {what}; keep one of them")

    def options(self, name: str, path: Keys, value: object) -> dict[str, Value]:
        if value is True:
            return {}
        if not isinstance(value, dict):
            self.fail(path, f"{name} must be `true` or a table of options, not {_shown(value)}")
        known = {option.name: option for option in REGISTRY[name].options}
        found: dict[str, Value] = {}
        for key, given in value.items():
            if key not in known:
                self.fail((*path, key), f"no option of {name} {_shown(key)}{_nearest(key, known)}")
            problem = known[key].problem_with(given)
            if problem is not None:
                self.fail((*path, key), f"{name}: {key} {problem}, not {_shown(given)}")
            found[key] = given
        return found

    def args(self, table: Table) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for flag, value in table.items():
            problem = None
            if not flag.startswith("-") or not flag.strip("-") or re.search(r"[\s\0]", flag):
                problem = f'{_shown(flag)} is not a flag; write it as the script does: "--workers"'
            elif not isinstance(value, str | int | float | bool):
                problem = f"{flag} must be text, a number or true, not {_shown(value)}"
            elif isinstance(value, str) and "\0" in value:
                problem = f"{flag} holds a NUL character"
            elif not isinstance(value, str) and not abs(value) < (
                math.inf if isinstance(value, float) else MOST_NUMBER
            ):
                problem = f"{flag} is {_shown(value)}; in quotes it is passed on unchanged"
            else:
                found[flag] = value
            if problem is not None:
                self.fail(("args", flag), problem)
        return found

    def env(self, table: Table) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in table.items():
            known = VARIABLES.get(name)
            if known is None:
                self.fail(("env", name), f"no variable {_shown(name)} that a recipe may set{meant(name)}")
            text = str(value) if type(value) is int and abs(value) < MOST_NUMBER else value
            problem = known.problem_with(text) if isinstance(text, str) else f"must be {known.says}"
            if not isinstance(text, str) or problem is not None:
                self.fail(("env", name), f"{name} {problem}, not {_shown(value)}")
            found[name] = text
        return found


def _entries(keys: Keys, table: Table) -> Iterator[tuple[Keys, object]]:
    """Remedies by the keys that lead to them: one quoted key, or several of the dotted form."""
    for key, value in table.items():
        path = (*keys, key)
        begins = ".".join(path) + "."
        if isinstance(value, dict) and value and any(name.startswith(begins) for name in REGISTRY):
            yield from _entries(path, value)
        else:
            yield path, value


def _nearest(name: str, names: Iterable[str]) -> str:
    near = nearest(name, names)
    return f" (did you mean {near}?)" if near else ""


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value) if isinstance(value, str | int | float) else str(value)
    except ValueError:
        return "a number that large"
    return text if len(text) <= 60 else f"{text[:60]}..."


def from_tuning(tuning: Tuning) -> Recipe:
    """What a tuning on this machine has kept, with its evidence."""
    kept = [each for each in tuning.trials if each.outcome == "kept"]
    interval = None if tuning.interval is None else (tuning.interval[0], tuning.interval[1])
    return Recipe(
        match=match_of(tuning.job),
        remedies=tuple(
            Advice(remedy=one.remedy, reach="live", class_=one.class_, options=one.options) for one in kept
        ),
        # Without an interval the speed-up was not confirmed by a closing run: no evidence.
        evidence=interval
        and Measured(
            speedup=tuning.speedup,
            at_least=True,
            interval=interval,
            baseline_ns=tuning.baseline,
            best_ns=tuning.best,
            host_peak_bytes=tuning.peaks.host_bytes,
            device_peak_bytes=tuning.peaks.device_bytes,
            measured_on=measured_on(tuning.job),
        ),
        numerics=tuning.class_,
    )


def measured_on(job: JobFacts | None) -> str:
    """CPUs of this process, and the torch of a job that was measured beside it."""
    cores = len(os.sched_getaffinity(0))
    machine = f"{cores} {'core' if cores == 1 else 'cores'}"
    return machine if job is None or job.torch is None else f"{machine}, torch {job.torch}"


def match_of(job: JobFacts | None) -> Match:
    """The scripts and device that a recipe of this job is for."""
    if job is None:
        return Match()
    return Match(script=glob.escape(Path(job.script).name) or None, device=job.recipe_device)


def tables(recipe: Recipe) -> dict[str, dict[str, object]]:
    """What a recipe says beside its description, as the file has it: by table, what is there."""
    remedies = {each.remedy: each.options or True for each in recipe.remedies}
    found: dict[str, dict[str, object]] = {
        "match": msgspec.to_builtins(recipe.match),
        "remedies": dict(remedies),
        "args": dict(recipe.args),
        "env": dict(recipe.env),
    }
    found = {name: table for name, table in found.items() if table}
    if recipe.evidence is not None:
        found["evidence"] = msgspec.to_builtins(recipe.evidence)
    return found if recipe.numerics is None else {**found, "numerics": {"class": recipe.numerics}}


def dump(recipe: Recipe) -> str:
    """The recipe as TOML; reading it gives an equal recipe."""
    lines = [line("schema", SCHEMA)]
    lines += [] if recipe.description is None else [line("description", recipe.description)]
    for name, table in tables(recipe).items():
        lines += ["", f"[{name}]", *(line(key, value) for key, value in table.items())]
    return "\n".join(lines) + "\n"


NOTES = {"at_least": "  # gained by a running job; a job that starts with this recipe may gain more"}


def line(key: str, value: object) -> str:
    """A key with its value in one line, so that the order of the file is the recipe's."""
    if isinstance(value, dict):
        return f'"{key}" = {{ {", ".join(line(*option) for option in value.items())} }}'
    if isinstance(value, list | tuple):
        return f"{key} = [{', '.join(map(repr, value))}]"
    import tomli_w  # only where a recipe is written: a sidecar starts without it

    return tomli_w.dumps({key: value}).rstrip("\n") + NOTES.get(key, "")
