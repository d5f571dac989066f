"""Places in the job's own code that an edit would speed up, read from the code that is running.

In: code objects with the instructions at which the training thread was found, and the forwards of
modules. Out: `records.CodeSite`: what stands there, where, how many samples stood in it. Bytecode
is read, never source files, on the agent's thread, after sampling has ended.
"""

from __future__ import annotations

import dis
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from inspect import CO_GENERATOR
from itertools import islice, pairwise
from types import CodeType
from typing import NamedTuple

CallSite = tuple[CodeType, int]  # (code, instruction)
Stacks = Counter[CallSite]  # of frames that were on the stack
UserStack = tuple[CallSite, ...]  # frames from the innermost
CallPaths = Counter[tuple[str, UserStack]]  # (phase, frames)

LIBRARY = re.compile(r"(?:.*(?:-packages|/python3\.\d+)/|<frozen )(\w+)")
MODEL_PHASES, UPDATES = ("forward", "backward", "optimizer"), ("backward", "optimizer")
MOST_SITES = 24
RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")  # function and line at which dynamo goes on
READS_BACK = frozenset({"item", "tolist"})
COPIES = frozenset({"to", "cuda"})
GATES = frozenset({"no_sync", "accumulate", "require_backward_grad_sync"})
IN_PLACE = frozenset({"add_", "sub_", "mul_", "addcdiv_", "addcmul_", "lerp_", "copy_", "data"})
OVER_TENSORS = frozenset({"parameters", "named_parameters", "state_dict"})
NO_LOOPS = COPIES | {"collect", "empty_cache", "save", "deepcopy", "iloc", "loc", "iterrows"}
MOSTLY = 2 / 3  # of the looks at its line
EACH_ALONE = frozenset({"step", "grad", "zero_grad"})  # what each loss's own gradients are for
TRAINS = EACH_ALONE | {"backward"}
PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum"})


class BytecodeLoop(NamedTuple):
    """Offsets of a loop's first and last instruction."""

    first: int
    last: int

    def holds(self, offset: int) -> bool:
        return self.first <= offset <= self.last


class Code:
    """One function, taken apart once."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.instructions = list(dis.get_instructions(code))
        ends: dict[int, int] = {}
        for one in self.instructions:
            target = _target(one)
            if target is not None and target < one.offset:
                ends[target] = max(one.offset, ends.get(target, 0))
        self.loops = [BytecodeLoop(first, last) for first, last in ends.items()]

    def around(self, offset: int) -> BytecodeLoop | None:
        """The innermost loop around an instruction."""
        return min(
            (one for one in self.loops if one.holds(offset)), key=lambda one: one[1] - one[0], default=None
        )

    def conditional(self, offset: int, region: BytecodeLoop) -> bool:
        """Whether a condition inside the region may jump over this instruction."""
        for one in self.instructions:
            if region.first <= one.offset < offset and one.opname != "FOR_ITER":
                target = _target(one)
                if target is not None and offset < target <= region.last + 2:
                    return True
        return False

    def attributes(self, region: BytecodeLoop) -> Iterator[tuple[int, str]]:
        """Attributes and methods taken in a region: (offset, name)."""
        for one in self.instructions:
            if region.holds(one.offset) and one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                yield one.offset, str(one.argval)

    def calls(self, line: int) -> set[str]:
        """Names of modules and builtins that a line calls or reads."""
        ours = (one for one in self.instructions if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        return {str(one.argval) for one in ours if _line(self.code, one.offset) == line}

    def keywords(self, line: int) -> set[str]:
        """Names of keyword arguments in the calls of a line."""
        found: set[str] = set()
        for one in self.instructions:
            # dis of Python 3.11 does not look the constant up.
            named = one.opname == "KW_NAMES" and one.arg is not None
            value = self.code.co_consts[one.arg or 0] if named else one.argval
            if isinstance(value, tuple) and _line(self.code, one.offset) == line:
                found.update(name for name in value if isinstance(name, str))
        return found

    def takes_apart(self, offset: int) -> bool:
        """Whether the loop around it goes along a tensor (x[:, t]), or makes a list, each item by itself."""
        loop = self.around(offset) or self.whole
        inside = [one.opname for one in self.instructions if loop.holds(one.offset)]
        apart = ("BUILD_TUPLE", "BINARY_SUBSCR") in pairwise(inside)
        return apart or "LIST_APPEND" in inside or self.code.co_name == "<genexpr>"

    @property
    def whole(self) -> BytecodeLoop:
        return BytecodeLoop(0, self.instructions[-1].offset if self.instructions else 0)


def called_at(read: Code, offset: int, called: CodeType | None) -> set[str]:
    """What a line calls: a library and its function; of C code, which has no frame, all names of the line."""
    if called is not None:
        found = LIBRARY.match(called.co_filename)
        return {found[1], f"{found[1]}.{called.co_name}"} if found else set()
    line = _line(read.code, offset)
    at_line = (name for at, name in read.attributes(read.whole) if _line(read.code, at) == line)
    return {*at_line, *read.calls(line)}


def is_own(code: CodeType, foreign: tuple[str, ...]) -> bool:
    """Whether it is the user's, and not a library's."""
    return "/site-packages/" not in code.co_filename and not code.co_filename.startswith(foreign)


def feeds_in(paths: CallPaths) -> set[CodeType]:
    """Generators and iterators that the training loop reads from, and does not train in.

    Read from by the loop itself: by a function that is on every stack, those of forward, backward and
    optimizer too. A generator that some helper of the loop reads from is work of that helper's.
    """
    training = [path for phase, path in paths if phase in MODEL_PHASES]
    if not training:
        return set()
    always = set.intersection(*({code for code, _ in path} for _, path in paths))
    trains = {code for path in training for code, _ in path}
    return {
        inner
        for phase, path in paths
        if phase == "other"
        for (inner, _), (outer, _) in pairwise(path)
        if outer in always and inner not in trains and inner.co_name != "<genexpr>"
        if inner.co_flags & CO_GENERATOR or inner.co_name == "__next__"
    }


def sites_of_the_loop(paths: CallPaths, foreign: tuple[str, ...]) -> set[CallSite]:
    """Calls of the user's code that are on every stack, those of training too.

    A loop of the user's own trains and reads data by several calls: where one call does all of it, and no
    code of the user's is below it, a framework's loop runs.
    """
    if not any(phase in MODEL_PHASES for phase, _ in paths):
        return set()
    return set.intersection(*({at for at in path if is_own(at[0], foreign)} for _, path in paths))


def model_calls(paths: CallPaths, foreign: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """Loops that call the model and do not train: of a rollout, of a generation."""
    trains = {code for phase, path in paths if phase in UPDATES for code, _ in path}
    found: Counter[str] = Counter()
    read = lru_cache(Code)  # many paths lead through one function
    for (phase, path), count in paths.items():
        callers = (at for at in path if is_own(at[0], foreign) and at[0].co_name != "forward")
        if phase == "forward":  # the innermost
            loops = (at for at in callers if at[0] not in trains and read(at[0]).around(at[1]))
            found.update({named(*at): count for at in islice(loops, 1)})
    return ({"what": "calls the model", "where": at, "samples": count} for at, count in found.items())


def sites_on(
    stacks: Stacks,
    foreign: tuple[str, ...],
    flat: Stacks,
    trains: Iterable[CallSite] = (),
) -> list[dict[str, object]]:
    """What stands in the loops and functions in which the thread was found, the dearest first.

    Args:
        flat: Of the frames, those that called no module.
        trains: No loop around one of these is one of operators.
    """
    found: Counter[tuple[str, str]] = Counter()
    taken: dict[CodeType, Code] = {}
    lines, no_module = _by_line(stacks), _by_line(flat)
    for (code, offset), samples in stacks.items():
        if not GATES.isdisjoint(code.co_names):
            found["synchronises by hand", code.co_name] += samples
        if not is_own(code, foreign):
            continue
        read = taken.get(code) or taken.setdefault(code, Code(code))
        for what, where, inside in dict.fromkeys(_sites(read, offset)):
            line, loop = (code, _line(code, offset)), read.around(offset) or read.whole
            few = (no_module if what in ("loops", "updates") else lines)[line]
            if what == "loops" and any(code is at[0] and loop.holds(at[1]) for at in trains):
                continue
            apart = what == "loops" and read.takes_apart(offset)
            if few >= MOSTLY * lines[line]:
                found[what, where] += samples * inside
            elif what == "loops":
                found["layers by item" if apart else "layers", where] += samples
    return [
        {"what": what, "where": where, "samples": max(0, samples)}
        for (what, where), samples in found.most_common(MOST_SITES)
    ]


def _by_line(stacks: Stacks) -> Counter[tuple[CodeType, int]]:
    found: Counter[tuple[CodeType, int]] = Counter()
    for (code, offset), samples in stacks.items():
        found[code, _line(code, offset)] += samples
    return found


def named(code: CodeType, offset: int) -> str:
    """`train.py:31 main`, as sampled frames name a place."""
    function = RESUMED.sub(r"\1", code.co_name)
    return f"{os.path.basename(code.co_filename)}:{_line(code, offset)} {function}"


def _line(code: CodeType, offset: int) -> int:
    return _lines(code).get(offset, code.co_firstlineno)


@lru_cache(maxsize=128)  # asked for each instruction, while training waits for the interpreter
def _lines(code: CodeType) -> dict[int, int]:
    known = ((start, end, line) for start, end, line in code.co_lines() if line is not None)
    return {at: line for start, end, line in known for at in range(start, end, 2)}


def attention_in(codes: Iterable[CodeType]) -> list[str]:
    """Where attention is written out: softmax between two products, without a call of torch's own."""
    return [at for at in map(_attention, codes) if at is not None][:MOST_SITES]


def _sites(read: Code, offset: int) -> Iterator[tuple[str, str, int]]:
    """What, where, and what a look at the instruction counts for it: 1 inside it."""
    loop = read.around(offset)
    if loop is None and read.code.co_name == "<module>":
        return
    region, line = loop or read.whole, _line(read.code, offset)
    for at, name in read.attributes(region):
        kind = "reads back" if name in READS_BACK else "copies" if name in COPIES else None
        if kind is None or read.conditional(at, region):
            continue
        if kind == "reads back" or "non_blocking" not in read.keywords(_line(read.code, at)):
            yield kind, named(read.code, at), _line(read.code, at) == line
    if {"next", "iter"} <= read.calls(line):
        yield "begins anew", named(read.code, offset), True
    marks = [each for each in read.attributes(region) if each[1] in TRAINS]
    for (at, name), (_, then) in pairwise(marks):  # one after the other, and nothing between them
        kept = name == then == "backward" and _line(read.code, at) == line
        if kept and "retain_graph" in read.keywords(line):
            yield "repeats backward", named(read.code, at), 1
    if loop is not None:
        names = {name for _, name in read.attributes(loop)}
        for at, name in read.attributes(loop) if names.isdisjoint(EACH_ALONE) else ():
            if name == "backward" and "retain_graph" in read.keywords(_line(read.code, at)):
                # Where the loop also runs the model, each loss has a graph of its own.
                yield "repeats backward", named(read.code, at), 1 if _line(read.code, at) == line else -4
        one_is_enough = "grad" in names or not OVER_TENSORS.isdisjoint(read.code.co_names)
        ops = {one.argrepr or one.opname for one in read.instructions if _line(read.code, one.offset) == line}
        if {"backward", "step"} & names:
            pass  # it trains
        elif any("==" in op for op in ops) and not ops.isdisjoint(("&", "BINARY_AND")):
            yield "masks", named(read.code, offset), True
        elif len(names & IN_PLACE) >= (1 if one_is_enough else 2) and names.isdisjoint(READS_BACK):
            yield "updates", named(read.code, loop.first), True
        elif names.isdisjoint(NO_LOOPS):
            yield "loops", named(read.code, loop.first), True
    attention = _attention(read.code, read)
    if attention is not None:
        yield "attention", attention, True


def _attention(code: CodeType, read: Code | None = None) -> str | None:
    if "softmax" not in code.co_names or "scaled_dot_product_attention" in code.co_names:
        return None
    read = read or Code(code)
    products = [one.offset for one in read.instructions if _is_product(one)]
    for one in read.instructions:
        if one.argval == "softmax" and products and products[0] < one.offset < products[-1]:
            return named(read.code, one.offset)
    return None


def _is_product(one: dis.Instruction) -> bool:
    if one.opname == "BINARY_MATRIX_MULTIPLY" or (one.opname == "BINARY_OP" and one.argrepr == "@"):
        return True
    return one.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL") and one.argval in PRODUCTS


def _target(one: dis.Instruction) -> int | None:
    jumps = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
    return one.argval if jumps and isinstance(one.argval, int) else None
