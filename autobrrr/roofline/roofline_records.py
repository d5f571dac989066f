"""What the micro-benchmarks find, and what the measuring process says while it works.

Rates are per second, `flops` is FLOP/s; None is "not measured" and `left_out` says why.
"""

from __future__ import annotations

import msgspec

from autobrrr.records import SCHEMA, CpuTaker, Record
from autobrrr.roofline.device_peaks import SpecPeaks
from autobrrr.roofline.machine_identity import ASSUMED_CACHE_BYTES

ITEM_BYTES = 4  # of a 32-bit float
DISTURBED_AT = 0.10  # share of the time that the threads waited for a core


class SweepPoint(Record, frozen=True, kw_only=True):
    """One pass over a large array with `repeat` multiplications of each element, fused."""

    repeat: int
    runtime_ns: int
    flops: float
    bytes_per_s: float  # one read and one write of the array


class MatmulPoint(Record, frozen=True, kw_only=True):
    """A square matmul: n x n times n x n is 2 n^3 FLOPs."""

    n: int
    flops: float  # FLOP/s


class DtypeMatmul(MatmulPoint, frozen=True, kw_only=True):
    dtype: str


class Fusion(Record, frozen=True, kw_only=True):
    """x.cos().cos() as two kernels and as one; `single_ns` is x.cos() alone.

    The light pair is x * 2 and + 1: memory is its limit on any device, which a cosine's need not be.
    """

    unfused_ns: int
    fused_ns: int
    ratio: float  # unfused / fused
    single_ns: int
    light_unfused_ns: int
    light_fused_ns: int
    light_ratio: float


class Activations(Record, frozen=True, kw_only=True):
    """gelu does many operations for each element, relu one; both move the same bytes."""

    relu_ns: int
    gelu_ns: int
    ratio: float  # gelu / relu
    compiled: bool


class MultiplyAdd(Record, frozen=True, kw_only=True):
    """Peak of the vector units in fp32 on data in cache: multiplications alone, and fused with additions."""

    multiply_flops: float
    multiply_add_flops: float


class LaunchCost(Record, frozen=True, kw_only=True):
    """What a kernel costs besides its work, on a device of its own."""

    queued_ns: float  # of the host, for each of many launches in a row
    awaited_ns: float  # one launch and waiting for its end


class FlameBox(Record, frozen=True, kw_only=True):
    """A part of the time of one addition; its parts lie inside it."""

    name: str
    ns: float
    how: str  # which measurements this is the difference of
    parts: list[FlameBox] = []


class Roofline(Record, frozen=True, kw_only=True):
    """One device, one torch, one number of threads."""

    schema: int = SCHEMA
    device: str
    torch: str
    threads: int
    python: str
    measured_at_unix_s: float
    python_adds_per_s: float | None = None
    torch_ops_per_s: float | None = None
    launch: LaunchCost | None = None
    sweep: list[SweepPoint] = []
    peak_flops: dict[str, float] = {}
    peak_bytes_per_s: float | None = None
    copy_bytes_per_s: float | None = None
    triad_bytes_per_s: float | None = None
    ridge_ops_per_element: float | None = None
    flops_per_python_add: float | None = None
    matmul: list[DtypeMatmul] = []
    fusion: Fusion | None = None
    activations: Activations | None = None
    multiply_add: MultiplyAdd | None = None
    flame: FlameBox | None = None
    array_bytes: int | None = None  # of one of the large arrays
    spec: SpecPeaks | None = None  # what the maker promises, where the device is in our table
    waited_share: float | None = None  # of the time that the threads wanted a core and had none
    left_out: dict[str, str] = {}  # experiment: why it was not made
    single_thread: Roofline | None = None  # the same on one thread, on a CPU
    contention: list[CpuTaker] = []  # who had the cores meanwhile

    @property
    def is_disturbed(self) -> bool:
        """Whether others had the cores for so long that a peak may be higher; such figures are not kept."""
        return (self.waited_share or 0.0) > DISTURBED_AT


def with_peaks(found: Roofline) -> Roofline:
    """The same figures, the derived ones filled in."""
    matmuls: dict[str, float] = {}
    for point in found.matmul:
        matmuls[point.dtype] = max(matmuls.get(point.dtype, 0.0), point.flops)
    speeds = [found.copy_bytes_per_s, found.triad_bytes_per_s, *(point.bytes_per_s for point in found.sweep)]
    bytes_per_s = max((speed for speed in speeds if speed is not None), default=None)
    peak = max(matmuls.values(), default=None)
    pointwise = pointwise_flops(found)
    return msgspec.structs.replace(
        found,
        peak_flops=matmuls,
        peak_bytes_per_s=bytes_per_s,
        ridge_ops_per_element=(
            2 * ITEM_BYTES * pointwise / bytes_per_s if pointwise and bytes_per_s else None
        ),
        flops_per_python_add=(peak / found.python_adds_per_s if peak and found.python_adds_per_s else None),
    )


def pointwise_flops(found: Roofline) -> float | None:
    """What the vector units reach without multiply-adds, in fp32; None without a compiler.

    The ridge point of pointwise work hangs on this one: matmul units do nothing for it.
    """
    reached = [point.flops for point in found.sweep]
    if found.multiply_add is not None:
        reached.append(found.multiply_add.multiply_flops)
    return max(reached, default=None)


class RooflineRequest(Record, frozen=True, kw_only=True):
    """What is to be measured; the one argument of the measuring process."""

    device: str
    threads: int
    last_cache_bytes: int = ASSUMED_CACHE_BYTES
    effort: float = 1.0  # share of the usual sizes and times


class Began(Record, frozen=True, kw_only=True, tag="began"):
    title: str
    done_share: float  # of the expected time


class RooflineRefused(Record, frozen=True, kw_only=True, tag="refused"):
    why: str


class Found(Record, frozen=True, kw_only=True, tag="found"):
    roofline: Roofline


Word = Began | RooflineRefused | Found
WORD = msgspec.json.Decoder(Word)
