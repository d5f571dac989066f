"""`autobrrr recipe`: list, show, copy, check, compare recipes; their schema; an empty one to fill in."""

from __future__ import annotations

import argparse
from pathlib import Path


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
    compared.add_argument("recipes", nargs=2, metavar="FILE")
    actions.add_parser("schema", help="print the JSON Schema of recipes, for editors")
    new = actions.add_parser("new", help="print or write an empty recipe with every remedy in comments")
    new.add_argument("to", type=Path, nargs="?", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    from autobrrr.cli import recipe_actions

    return recipe_actions.run(args)
