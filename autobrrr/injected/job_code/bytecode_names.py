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
_JOINING = ("BUILD_STRING", "BINARY_ADD", "BINARY_MODULO")
_ANY = "", "", False
_FORMATTING = frozenset((
    "%", "%=", "BINARY_MODULO", "INPLACE_MODULO", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC",
    "CONVERT_VALUE",
))  # fmt: skip
_TEXT = frozenset((  # what shows something makes text of it
    "str", "repr", "ascii", "format", "format_map", "substitute", "safe_substitute", "print", "pprint", "pp",
    "warn", "log", "write", "writelines", "debug", "info", "warning", "error", "critical", "exception",
    "trace", "success", "rule",
))  # fmt: skip
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


def asked_for(code: CodeType, asking: str) -> Iterator[tuple[str, str, bool]]:
    """Of each call of a function (`getattr`): the global asked, how the name begins, whether that is all.

    No global: of something else. An empty beginning: any name, as where the function is handed on.
    """
    instructions = [each for each in dis.get_instructions(code) if each.opname not in _BETWEEN[:2]]
    for at, instruction in enumerate(instructions):
        if instruction.argval == asking and instruction.opcode in dis.hasname:
            yield _arguments(instructions[at:])


def makes_text(code: CodeType) -> bool:
    """Whether it may ask things for their text."""
    operations = {
        each.argrepr if each.opname == "BINARY_OP" else each.opname for each in dis.get_instructions(code)
    }
    return not (operations.isdisjoint(_FORMATTING) and _TEXT.isdisjoint(code.co_names))


def _arguments(instructions: list[dis.Instruction]) -> tuple[str, str, bool]:
    """Of the call of what the first of these loads: the first two."""
    loaded: dict[int, str] = {}  # which global stands at a height of the stack
    begins: dict[int, tuple[str, bool]] = {}  # what the string there begins with
    height = called = dis.stack_effect(instructions[0].opcode, instructions[0].arg)
    for instruction in instructions[1:]:
        operation = instruction.opname
        if instruction.opcode in (*dis.hasjrel, *dis.hasjabs):
            break
        height += dis.stack_effect(instruction.opcode, instruction.arg)
        if operation in ("CALL", "CALL_FUNCTION") and height == 1:
            return loaded.get(called + 1, ""), *begins.get(called + 2, _ANY[1:])
        if height < called:  # it is kept, or handed on
            break
        if operation in _BETWEEN:
            continue
        first = begins.get(height, _ANY[1:])[0].partition("%")[0]
        loaded = {each: name for each, name in loaded.items() if each < height}
        begins = {each: begin for each, begin in begins.items() if each < height}
        if operation == "LOAD_CONST" and isinstance(instruction.argval, str):
            begins[height] = instruction.argval, True
        elif operation == "LOAD_GLOBAL":
            loaded[height] = str(instruction.argval)
        elif operation in _JOINING or (operation == "BINARY_OP" and instruction.argrepr in ("+", "%")):
            begins[height] = first, False
    return _ANY


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
