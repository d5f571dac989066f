"""The table of planted cases: what is built in, and why that makes the truth.

`python -m benchmarks.planted confirm` measures the shares and roofs behind each claim.
"""

from benchmarks.planted.case import Case, planted
from benchmarks.planted.tables.host_cases import HOST, INPUT, OVERHEAD
from benchmarks.planted.tables.kernel_cases import COMPUTE, MEMORY, UNDERFILLED


def mixture(first: str, second: str, share: float) -> Case:
    """Two parts of one step; 50/50 is `mixed`, 70/30 is the larger part."""
    mixed = abs(share - 0.5) < 0.08
    return Case(
        name=f"{first}-{second}-{share * 100:.0f}",
        job="mixture",
        knobs={"first": first, "second": second, "share": share},
        truth="mixed" if mixed else first,  # type: ignore[arg-type]
        why=f"{share:.0%} {first} and {1 - share:.0%} {second}, balanced by the job itself when it starts",
    )


MIXTURES: tuple[Case, ...] = (
    mixture("overhead", "memory", 0.5),
    mixture("overhead", "compute", 0.5),
    mixture("overhead", "input", 0.5),
    mixture("overhead", "host", 0.5),
    mixture("input", "host", 0.5),
    mixture("input", "compute", 0.5),
    mixture("memory", "compute", 0.5),
    mixture("host", "memory", 0.5),
    mixture("overhead", "compute", 0.75),
    mixture("input", "overhead", 0.7),
    mixture("host", "compute", 0.7),
    mixture("memory", "overhead", 0.75),
    mixture("compute", "input", 0.75),
)

UNKNOWN: tuple[Case, ...] = (
    planted("unknown", "shared-core", "crowd", alone={"siblings": 0},
        why="two other processes on the job's only core"),
    planted("unknown", "shared-machine-wide", "crowd", threads=2, alone={"siblings": 0},
        siblings=4, depth=3, width=512, batch=256,
        why="a wide net on two threads, four other processes on the same two cores"),
)  # fmt: skip

CASES: tuple[Case, ...] = (
    *OVERHEAD, *INPUT, *HOST, *MEMORY, *COMPUTE, *UNDERFILLED, *MIXTURES, *UNKNOWN,
)  # fmt: skip
