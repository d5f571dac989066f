"""The JSON Schema of recipes, and an empty recipe to fill in; both made from the registry."""

from __future__ import annotations

import json

import msgspec

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import CLASSES, Option, Remedy
from autobrrr.recipe.recipe_contents import SCHEMA, Match, Measured, Numerics
from autobrrr.recipe.recipe_variables import MOST_LETTERS, VARIABLES, Variable

Node = dict[str, object]


def json_schema() -> Node:
    """JSON Schema (draft 2020-12), for editors. Remedies in their quoted form."""
    _, plain = msgspec.json.schema_components((Match, Measured, Numerics))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "autobrrr recipe",
        "required": ["schema"],
        **_table(
            {
                "schema": {"const": SCHEMA},
                "description": {"type": "string"},
                "match": plain["Match"],
                "remedies": _table({name: _remedy(remedy) for name, remedy in REGISTRY.items()}),
                "args": {
                    "type": "object",
                    "propertyNames": {"pattern": "^-"},
                    "additionalProperties": {"type": ["string", "number", "boolean"]},
                },
                "env": _table({name: _variable(known) for name, known in VARIABLES.items()}),
                "evidence": plain["Measured"],
                "numerics": plain["Numerics"],
            }
        ),
    }


def _table(properties: dict[str, Node]) -> Node:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _remedy(remedy: Remedy) -> Node:
    options = _table({option.name: _option(option) for option in remedy.options})
    return {"description": _said(remedy), "oneOf": [{"const": True}, options]}


def _said(remedy: Remedy) -> str:
    """What it does, when, and to the numbers."""
    when = {"live": "at once", "next_epoch": "from the next epoch on", "relaunch": "when a run starts"}
    needs = f" Needs {', '.join(remedy.needs)}." if remedy.needs else ""
    unproven = " Unproven: it has never run on such a device." if remedy.unproven else ""
    return f"{remedy.doc} Takes effect {when[remedy.reach]}. Class: {remedy.cls}.{needs}{unproven}"


def _option(option: Option) -> Node:
    if option.kind == "choice":
        node: Node = {"enum": list(option.choices)}
    else:
        node = {"type": {"int": "integer", "float": "number", "bool": "boolean"}[option.kind]}
    if option.low is not None:
        node["minimum"] = option.low
    if option.high is not None:
        node["maximum"] = option.high
    if option.default is not None:
        node["default"] = option.default
    return {**node, "description": option.doc}


def _variable(known: Variable) -> Node:
    written: Node = {"type": "string", "pattern": f"^(?:{known.pattern})$", "maxLength": MOST_LETTERS}
    described: Node = {"description": f"{known.says[0].upper()}{known.says[1:]}."}
    return {"anyOf": [written, {"type": "integer", "minimum": 0}], **described}


HEAD = f"""\
schema = {SCHEMA}
# description = "what it is for"

# When it applies; without this table: always.
# [match]
# script = "train*.py"
# device = "cpu"          # or "cuda"
# torch = ">=2.4"

# Remedies to apply: `true`, or a table of options.
[remedies]
"""
TAIL = f"""
# Flags of the script: the value is replaced where the flag stands, else the flag is appended.
# [args]
# "--num-workers" = 2

# Variables that the script starts with: `autobrrr recipe schema` shows which, and their values.
# [env]
# OMP_NUM_THREADS = 2

# What was measured, on what. `autobrrr tune --recipe FILE` writes it.
# [evidence]
# speedup = 1.25
# interval = [1.21, 1.29]
# measured_on = "2 cores, torch 2.13.0"

# What it does to the numbers: {", ".join(CLASSES)}.
# [numerics]
# class = "rounding"
"""


def template() -> str:
    """A valid recipe in which everything but the version is a comment."""
    remedies = ""
    for name, remedy in REGISTRY.items():
        options = ", ".join(f"{option.name} = {_example(option)}" for option in remedy.options)
        remedies += f'# {_said(remedy)}\n# "{name}" = {f"{{ {options} }}" if options else "true"}\n'
    return f"{HEAD}{remedies}{TAIL}"


def _example(option: Option) -> str:
    if option.default is not None:
        return json.dumps(option.default)
    if option.choices:
        return f'"{option.choices[0]}"'
    return "true" if option.kind == "bool" else f"{option.low or 1:g}"
