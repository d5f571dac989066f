"""What a function's bytecode says of the names that it uses: loads, attributes, rebinding, files opened.

In: code objects. Out: chains of a loaded name and the attributes taken from it, names given another value.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import cast

_COPIES = ("COPY", "DUP_TOP")  # in `name.attribute += 1`, between the name and the attribute
_IMPORTING = ("IMPORT_FROM", "STORE_FAST", "SWAP", "ROT_TWO", "POP_TOP")  # after the import itself
_BETWEEN = ("CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "PRECALL", "PUSH_NULL")
_WRITING = frozenset(f"{way}{kind}" for way in "wa" for kind in ("", "t", "b"))


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def chains(code: CodeType, itself: str) -> Iterator[tuple[str, list[str]]]:
    """Loads with the attributes taken from them at once: ("name", ["np", "random", "rand"]).

    One more, ("stored", ...), where the last attribute is then set. `itself` is a method's first argument,
    by whatever name: ("self", [...]). Attributes of what no name leads to: ("other", ["", ...]).
    """
    root = ""
    names: list[str] = []
    copied = False
    imported: dict[object, str] = {}
    latest: str | None = None  # module, whose name comes next
    for instruction in dis.get_instructions(code):
        operation, value = instruction.opname, instruction.argval
        if operation in ("LOAD_ATTR", "LOAD_METHOD") and names:
            names.append(cast(str, value))
            if copied and root in ("name", "free"):
                yield "stored", names
            copied = False
            continue
        if operation in ("STORE_ATTR", "DELETE_ATTR"):
            known = names and root in ("name", "free")
            yield ("stored", [*names, cast(str, value)]) if known else ("other", ["", cast(str, value)])
        if operation in _COPIES and names:
            copied = True
            continue
        if operation == "STORE_FAST" and latest is not None:
            imported[value] = latest
        if operation not in _IMPORTING:
            latest = None
        copied = False
        if operation in ("CACHE", "PUSH_NULL", "EXTENDED_ARG", "COPY_FREE_VARS"):
            continue
        if names:
            yield root, names
        root, names = "", []
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            root, names = "name", [cast(str, value)]
        elif operation in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            root, names = ("self" if value == itself else "free"), [cast(str, value)]
        elif operation == "IMPORT_NAME":
            yield "import", [cast(str, value)]
            latest = cast(str, value)
        elif (
            operation.startswith("LOAD_FAST") and (value[-1] if isinstance(value, tuple) else value) == itself
        ):
            root, names = "self", ["self"]
        elif operation == "LOAD_FAST" and value in imported:
            root, names = "name", [imported[value]]
        elif operation in ("LOAD_ATTR", "LOAD_METHOD"):
            root, names = "other", ["", cast(str, value)]
    if names:
        yield root, names


def asked_for(code: CodeType, asking: str) -> Iterator[tuple[str, str]]:
    """Of each call of a function (`getattr`) whose second argument is a constant: the first, and that.

    The first is empty where it is no global.
    """
    instructions = [each for each in dis.get_instructions(code) if each.opname not in _BETWEEN]
    for at, instruction in enumerate(instructions):
        if instruction.argval == asking and instruction.opcode in dis.hasname:
            of, name = instructions[at + 1 : at + 3]  # the code goes on behind it: it returns
            if name.opname == "LOAD_CONST" and isinstance(name.argval, str):
                yield (str(of.argval) if of.opname == "LOAD_GLOBAL" else ""), name.argval


def rebound(code: CodeType, outer: tuple[str, ...]) -> Iterator[str]:
    """Names outside the function that it gives another value: globals, and variables around it."""
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if operation in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            operation in ("STORE_DEREF", "DELETE_DEREF") and name in outer
        ):
            yield str(name)


def only_writes(code: CodeType) -> bool:
    """Whether every `open` in the code has a mode, as a constant, that writes and does not read.

    `x` fails where the file is there: a replay would make it, and the job's own next step fail.

    The file's name, where it is a constant, is not taken for a mode: it is the first thing loaded.
    """
    instructions = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "PUSH_NULL")]
    for at, instruction in enumerate(instructions):
        if not (instruction.opname.startswith("LOAD_") and instruction.argval == "open"):
            continue
        modes = []
        for later in instructions[at + 2 :]:
            if later.opname == "LOAD_CONST" and isinstance(later.argval, str):
                modes.append(later.argval)
            if later.opname.startswith(("BEFORE_WITH", "STORE_", "POP_TOP", "RETURN", "LOAD_SPECIAL")):
                break
        if not any(mode in _WRITING for mode in modes) or any(
            "r" in mode or "+" in mode for mode in modes if set(mode) <= set("rwaxtb+")
        ):
            return False
    return True
