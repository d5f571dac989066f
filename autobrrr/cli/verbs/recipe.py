"""`autobrrr recipe`: list, show, copy, check, compare recipes; their schema; an empty one to fill in."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr.cli import shown
from autobrrr.cli.printed import NARRATOR, write_file
from autobrrr.errors import EXIT_DONE, UsageError
from autobrrr.readable import readable, readable_lines

if TYPE_CHECKING:  # it brings every remedy, and `--help` need not
    from autobrrr.recipe import Recipe


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("ls", help="list the recipes that come with the program")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    actions.add_parser("show", help="print a recipe").add_argument("recipe", metavar="NAME|FILE")
    copied = actions.add_parser("cp", help="copy a recipe, to change it")
    copied.add_argument("recipe", metavar="NAME|FILE")
    copied.add_argument("to", type=Path, metavar="FILE")
    checked = actions.add_parser("validate", help="check that recipes are valid and fit this machine")
    checked.add_argument("recipes", nargs="+", metavar="FILE")
    compared = actions.add_parser("diff", help="show what two recipes do differently")
    compared.add_argument("recipes", nargs=2, metavar=("BEFORE", "AFTER"))
    actions.add_parser("schema", help="print the JSON Schema of recipes, for editors")
    new = actions.add_parser("new", help="print or write an empty recipe with every remedy in comments")
    new.add_argument("to", type=Path, nargs="?", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    from autobrrr import recipe
    from autobrrr.recipe.recipe_schema import json_schema, template
    from autobrrr.report.next_step import started_with

    if args.action == "ls":
        _list(as_json=args.json)
        if not args.json:
            NARRATOR.next_step("autobrrr recipe show NAME   (autobrrr recipe cp NAME FILE copies it)")
    elif args.action == "show":
        text = recipe.load(args.recipe).text
        sys.stdout.write(readable_lines(text) if sys.stdout.isatty() else text)  # a copy is exact
        NARRATOR.next_step(started_with(args.recipe, ()))
    elif args.action == "cp":
        _write_new(args.to, recipe.load(args.recipe).text)
        NARRATOR.next_step(started_with(str(args.to), ()))
    elif args.action == "validate":
        _validate(args.recipes)
        NARRATOR.next_step(started_with(args.recipes[0], ()))
    elif args.action == "diff":
        _diff(*(recipe.load(name) for name in args.recipes))
        NARRATOR.next_step(started_with(args.recipes[1], ()))
    elif args.action == "schema":
        print(json.dumps(json_schema(), indent=2))
    elif args.to is None:
        sys.stdout.write(template())
        NARRATOR.next_step("autobrrr recipe new FILE   (writes it)")
    else:
        _write_new(args.to, template())
        NARRATOR.next_step(f"fill it in, then autobrrr recipe validate {args.to}")
    return EXIT_DONE


def _list(*, as_json: bool) -> None:
    from autobrrr import recipe
    from autobrrr.agent.remedies.families import REGISTRY

    lines, shown = [], []
    for name, file in recipe.shipped().items():
        found = recipe.load(file)
        remedies = [chosen.remedy for chosen in found.remedies]
        unproven = [each for each in remedies if REGISTRY[each].unproven]
        lines.append(
            {"name": name, "description": found.description, "remedies": remedies, "unproven": unproven}
        )
        doubt = f" (unproven: {', '.join(unproven)})" if unproven else ""
        shown.append(f"{name:<24}{found.description or ''}{doubt}")
    print(json.dumps({"schema": 1, "recipes": lines}) if as_json else "\n".join(shown))


def _write_new(file: Path, text: str) -> None:
    if os.path.lexists(file):
        raise UsageError(f"{file} already exists", "choose another name, or remove it")
    write_file(file, text, failure=UsageError)
    print(file)


def _validate(names: list[str]) -> None:
    """One line for each file, and one for each thing that does not fit here.

    Raises:
        UsageError: for the last that is not valid, when all have been looked at.
    """
    from autobrrr import recipe

    invalid: list[UsageError] = []
    for name in names:
        try:
            found = recipe.load(name)
        except UsageError as error:
            invalid.append(error)
            continue
        count = len(found.remedies)
        print(readable(f"{name}: valid, {count} {'remedy' if count == 1 else 'remedies'}"))
        for misfit in recipe.misfits(found, recipe.here()):
            print(readable(f"{name}: on this machine: {misfit}"))
    for each in invalid[:-1]:
        print(shown(each), file=sys.stderr)
    if invalid:
        raise invalid[-1]


def _diff(old: Recipe, new: Recipe) -> None:
    """`-` only in the first, `+` only in the second; nothing where they do the same."""
    from autobrrr.recipe.recipe_file import line, tables

    def does(found: Recipe) -> dict[tuple[str, str], str]:
        said = tables(found)
        said.pop("evidence", None)  # what was measured
        lines = {}
        for name, table in said.items():
            for key, each in table.items():
                value = dict(sorted(each.items())) if isinstance(each, dict) else each
                lines[name, key] = f"{name}.{line(key, value)}"  # compared as written: 1 is not true
        return lines

    before, after = does(old), does(new)
    for place in sorted({*before, *after}):
        for mark, said in (("-", before), ("+", after)):
            if place in said and before.get(place) != after.get(place):
                print(readable(f"{mark} {said[place]}"))
