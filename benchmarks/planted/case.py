"""One planted case: which script, which knobs, what is true of it, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Truth = Literal["overhead", "input", "host", "sync", "memory", "compute", "underfilled", "mixed", "unknown"]
Knob = int | float | str

TRUTHS: tuple[Truth, ...] = (
    "overhead", "input", "host", "sync", "memory", "compute", "underfilled", "mixed", "unknown",
)  # fmt: skip
UNDECIDED = ("mixed", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job whose bottleneck was built in.

    `alone`: knobs that take the bottleneck away; where they are given, the truth is confirmed by
    how much the step shrinks without it, else by the shares of the step (`truth.py`).
    """

    name: str
    job: str  # module of `package`
    truth: Truth
    why: str  # what in the construction makes it true
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    threads: int = 1
    alone: Mapping[str, Knob] | None = None
    package: str = "benchmarks.planted.jobs"
    device: str = "cpu"

    @property
    def module(self) -> str:
        return f"{self.package}.{self.job}"

    def words(self, over: Mapping[str, Knob] | None = None) -> list[str]:
        """The command line after the module; `over` replaces knobs."""
        chosen: dict[str, Knob] = {
            **self.knobs,
            "threads": self.threads,
            "device": self.device,
            **(over or {}),
        }
        return [
            word for name, value in chosen.items() for word in (f"--{name.replace('_', '-')}", str(value))
        ]

    def environment(self) -> dict[str, str]:
        """What the job needs to be told before torch is loaded."""
        return {"OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads)}


def planted(
    truth: Truth,
    name: str,
    job: str,
    *,
    why: str,
    threads: int = 1,
    alone: Mapping[str, Knob] | None = None,
    **knobs: Knob,
) -> Case:
    """A row of a table: all that is not named here is a knob."""
    return Case(name=name, job=job, truth=truth, why=why, knobs=knobs, threads=threads, alone=alone)
