"""The one visible table of remedies, and what a remedy is.

This room is shipped into the training process: standard library only, torch comes
with the job (`job.torch`). The sidecar imports it too, for what each remedy treats and costs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TypeVar

from ..live_torch.live_job import Job

Undo = Callable[[], None]
Apply = Callable[[Job, Mapping[str, object]], Undo]
Release = Callable[[ModuleType], None]
Takes = Callable[[Job], int]
Environment = Callable[[Mapping[str, object], Mapping[str, str]], dict[str, str]]

CLASSES = ("bitwise", "rounding", "stream", "changes-training")
"""From what changes least to what changes most."""
REGISTRY: dict[str, Remedy] = {}
T = TypeVar("T")


def up_to(cls: str) -> tuple[str, ...]:
    """All exactness classes up to and with this one."""
    return CLASSES[: CLASSES.index(cls) + 1]


class RefusalCode(str, enum.Enum):
    """What a refusal is to who asked."""

    UNFIT = "unfit"  # and it stays so
    NOT_MET = "not_met"  # what the remedy is for has not been met in the training loop so far
    LINK_LOST = "link_lost"  # the job was not asked
    NOT_BESIDE = "not_beside"  # it may fit, but nothing can be compiled beside the job


class Refused(Exception):
    """The remedy does not fit this job; the message says why. Nothing was changed."""

    def __init__(self, why: str, code: RefusalCode = RefusalCode.UNFIT) -> None:
        super().__init__(why)
        self.code = code


def fitting(found: Iterable[T], check: Callable[[T], object]) -> list[T]:
    """Those that a check lets through; where it lets none, raises its Refused: unfit before not met."""
    fit, refusals = list[T](), list[Refused]()
    for each in found:
        try:
            check(each)
            fit.append(each)
        except Refused as refused:
            refusals.append(refused)
    if refusals and not fit:
        raise max(refusals, key=lambda each: each.code)
    return fit


def check_class(cls: str, allowed: Sequence[str] | None) -> None:
    """Raises Refused where the exactness class on the job is none of those allowed; None allows any."""
    if allowed is not None and cls not in allowed:
        raise Refused(f"its class is {cls} on this job; a recipe of class {cls} would apply it")


@dataclass(frozen=True, slots=True)
class WatchedUndo:
    """An undo that goes on looking at what was applied.

    Attributes:
        undo: As any other.
        trouble: Asked at step boundaries: why the remedy must be undone after all; None while it is well.
    """

    undo: Undo
    trouble: Callable[[], str | None]

    def __call__(self) -> None:
        self.undo()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a remedy.

    `kind` is "int", "bool" or "choice"; `choices` may depend on the machine, then
    `low`/`high` are the widest range that a recipe may hold.
    """

    name: str
    kind: str
    default: object = None
    low: float | None = None
    high: float | None = None
    choices: tuple[object, ...] = ()
    on_cuda: tuple[object, ...] = ()  # of the choices those that there are on a GPU alone
    only_named: tuple[object, ...] = ()  # of the choices those that are for a recipe alone
    doc: str = ""

    def problem_with(self, value: object) -> str | None:
        """What is wrong with a value ("must be ..."); None where nothing is."""
        if self.kind == "choice":
            return None if value in self.choices else f"must be one of {', '.join(map(str, self.choices))}"
        if self.kind == "bool":
            return None if isinstance(value, bool) else "must be true or false"
        if isinstance(value, bool) or not isinstance(value, int):
            return "must be a whole number"
        if self.low is not None and not value >= self.low:
            return f"must be at least {self.low:g}"
        if self.high is not None and not value <= self.high:
            return f"must be at most {self.high:g}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A remedy: what it treats, how far it reaches, what it does to the numbers."""

    name: str = field(kw_only=False)
    treats: tuple[str, ...]  # regimes
    reach: str
    cls: str  # exactness class
    doc: str  # one sentence
    apply: Apply = lambda job, options: lambda: None
    targets: tuple[str, ...] = ()  # what it sets: two remedies with one target are in conflict
    needs_steady: tuple[str, ...] = ()  # targets of others that must stay as they are while it is on
    options: tuple[Option, ...] = ()
    rare: bool = False  # acts on rare long steps: judged by plain means over longer blocks
    needs: tuple[str, ...] = ()  # what must be there: "cuda"
    environment: Environment | None = None  # variables to start the job with: (options, environment) -> more
    unproven: bool = False  # never run on the device it is for: only where it is asked for by name
    only_named: bool = False  # buys something else than speed: only where it is asked for by name
    only_predicted: bool = False  # only where the diagnosis predicts a gain, or by name
    warm_up_steps: int = 0  # steps that a first switching on may take long; they are its price
    price_s: float = 0.0  # what those steps usually take
    beside_s: float | None = None  # what they take once another process has filled torch's cache
    release: Release | None = None  # at the end of a session: lets go of what the next apply would need
    takes: Takes | None = None  # bytes at its peak where the parameters lie, beside the job's own
    host_takes: Takes | None = None  # bytes of the host's memory beside those, with its default options

    def disturbs(self, other: Remedy) -> set[str]:
        """What the other sets or needs to stay as it is, and this one sets."""
        return set(self.targets) & {*other.targets, *other.needs_steady}

    def option_values(self, given: Mapping[str, object]) -> dict[str, object]:
        """Given options, checked, with the defaults of the others.

        Raises:
            Refused: unknown, of the wrong kind, or out of range.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise Refused(f"{self.name} has no option {name}")
        values = {name: option.default for name, option in known.items()}
        for name, value in given.items():
            problem = known[name].problem_with(value)
            if problem is not None:
                raise Refused(f"{self.name}: {name} {problem}")
            values[name] = value
        return values

    def __call__(self, apply: Apply) -> Apply:
        """Enter it into the table, with the function that applies it."""
        REGISTRY[self.name] = replace(self, apply=apply)
        return apply


remedy = Remedy  # as a decorator


def switch(read: Callable[[], T], write: Callable[[T], object], wanted: T) -> Undo:
    """Set a value; the undo puts the former one back where ours still stands."""
    before = read()
    write(wanted)
    ours = read()

    def undo() -> None:
        if read() == ours:
            write(before)

    return undo
