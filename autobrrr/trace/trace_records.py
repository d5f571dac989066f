"""The result of an analysis, and its JSON: what `analyze --json` prints.

msgspec structs, frozen. Times are integer nanoseconds, shares 0-1, `None` is "not measured".
"""

from __future__ import annotations

from typing import Literal

import msgspec

from autobrrr.records import SCHEMA, Confidence, Evidence, LedgerRow, Limit, Record, Regime, Shares, StepStats


class IdleParts(Record, kw_only=True, frozen=True):
    """Idle time by where the operation was that ended it; the four sum to the idle time."""

    host_late_ns: int
    in_launch_ns: int
    after_launch_ns: int
    unmatched_ns: int


class ClockCorrection(Record, kw_only=True, frozen=True):
    """Idle parts with the device's clock moved by a constant, so that no operation precedes its launch."""

    shift_ns: int  # added to the device's times
    launched_after_start: int  # operations whose launch call starts after them, before the correction
    matched: int
    idle: IdleParts
    host_late_by_cause_ns: dict[str, int]


class KernelClass(Record, kw_only=True, frozen=True):
    """Kernels of one kind; times are sums of durations, which may overlap."""

    ns: int
    count: int
    share: float  # of all kernel time
    tensor_core_ns: int | None = None  # contractions whose names tell that they use tensor cores
    plain_ns: int | None = None  # contractions whose names tell that they do not
    underfilled_ns: int | None = None  # in kernels whose grid or occupancy leaves most of the device idle
    flops: int | None = None  # where shapes were recorded, a multiply and an add are two; pointwise: one an
    # element at least, from the grids of streaming kernels
    counted_ns: int | None = None  # time of the kernels whose work could be counted


class TopKernel(Record, kw_only=True, frozen=True):
    name: str
    class_: str = msgspec.field(name="class")  # one of the kernel classes
    ns: int
    count: int
    median_ns: int
    operator: str | None = None  # that launched most of it


class Copies(Record, kw_only=True, frozen=True):
    """Copies and sets by direction."""

    direction: str
    ns: int
    count: int
    bytes: int | None


class Stall(Record, kw_only=True, frozen=True):
    """One of the longest gaps."""

    start_ns: int  # since the device's first operation
    ns: int
    part: str  # the largest: host_late, in_launch, after_launch, unmatched
    cause: str | None  # of the host-late part, the largest
    ended_by: str  # the operation
    operator: str | None  # on the host, that launched it
    python: str | None = None


class GapGroup(Record, kw_only=True, frozen=True):
    """Gaps that the same kernel ends, launched in the same annotation at the same line of Python."""

    ended_by: str
    annotation: str | None
    python: str | None  # of the main thread, at the launch
    count: int
    idle_ns: int
    median_ns: int
    share: float  # of the idle time


class Synchronisation(Record, kw_only=True, frozen=True):
    """Calls in which the host waits for the device, by place."""

    call: str
    operator: str | None
    python: str | None
    count: int
    blocked_ns: int
    idle_ns: int  # waiting and dispatch in gaps that began in such a wait


class HostCode(Record, kw_only=True, frozen=True):
    """The user's Python that holds the host for a millisecond or more while the device idles."""

    python: str
    count: int
    idle_ns: int


class DeviceSignals(Record, kw_only=True, frozen=True):
    """Figures that are no part of a total but that a verdict rests on."""

    kernels: int
    median_kernel_ns: int | None
    queue_delay_median_ns: int | None  # from a launch call's end to its kernel's start
    queue_empty_share: float | None  # of matched operations: begun within 10 us of their launch
    host_busy_share: float | None  # of the span: the launching threads in operators, launches, Python
    loader_share: float | None  # of the span: the main thread inside a data loader
    sync_blocked_share: float | None  # of the span: the launching threads inside synchronising calls
    graph_launches: int
    graph_kernels: int
    underfilled_share: float | None  # of kernel time without communication
    shapes_recorded: bool
    peak_known: bool  # of the GPU, from its spec sheet
    counted_flops_share: float | None  # of contraction time: kernels with countable work
    contraction_utilisation: float | None  # of the spec-sheet peak, over the counted contractions
    bandwidth_utilisation: float | None  # of the spec-sheet peak, over copies with known bytes
    collective_spread: float | None  # the longest call of one collective over its usual short one
    launch_after_start: int


class TraceVerdict(Record, kw_only=True, frozen=True):
    """Who limits a device, or the slowest device of a trace, and what the time goes to."""

    limit: Limit = "unknown"
    limit_confidence: Confidence = "low"
    limit_reason: str = ""
    regime: Regime = "unknown"
    confidence: Confidence = "low"
    reason: str = ""
    shares: Shares = Shares()
    evidence: list[Evidence] = []
    decide_with: str | None = None
    ledger: list[LedgerRow] = []


class DeviceAnalysis(TraceVerdict, kw_only=True, frozen=True):
    """One device of one trace."""

    device: int | str
    name: str | None
    rank: int | None
    span_ns: int
    left_out_ns: int = 0  # of the span, before what is judged: early steps, work from before the recording
    busy_ns: int
    idle_ns: int
    idle: IdleParts
    idle_clock_corrected: ClockCorrection | None = None
    host_late_by_cause_ns: dict[str, int]
    host_late_after_synchronisation_ns: int
    first_use_ns: int  # in launch calls that last 1 ms or more while the device idles
    long_operators_ns: int  # idle inside operators of 0.5 ms or more that usually last
    held_up_ns: int  # idle inside operators of 0.5 ms or more that are short otherwise
    gaps: int
    gpu_events: int
    kernel_count: int
    memcpy_count: int
    memset_count: int
    streams: int
    launches: int
    kernels: dict[str, KernelClass]
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    memcpy_ns: int
    memset_ns: int
    exposed_memcpy_ns: int
    exposed_host_to_device_ns: int
    copies: list[Copies]
    top_kernels: list[TopKernel]
    stalls: list[Stall]
    gap_groups: list[GapGroup]
    synchronisations: list[Synchronisation]
    host_code: list[HostCode]
    signals: DeviceSignals
    anomalies: dict[str, int]


class StepDevice(Record, kw_only=True, frozen=True):
    """One device within one step."""

    device: int | str
    busy_ns: int
    idle: IdleParts
    kernels: int


class TraceStep(Record, kw_only=True, frozen=True):
    """One step, by the host's clock."""

    name: str
    start_ns: int  # since the first event of the trace
    duration_ns: int
    early: bool  # left out of the statistics: first launches, tuning
    partial: bool = False  # cut by the window
    source: Literal["profiler", "optimizer"]
    pid: str | None = None  # where a file holds several processes
    devices: list[StepDevice] = []


class TraceAdvice(Record, kw_only=True, frozen=True):
    """What to do. `gain` is an upper bound: the factor on speed if all of `saves_ns` went away."""

    kind: str
    text: str
    saves_ns: int | None
    gain: float | None
    where: str | None = None
    remedy: str | None = None  # of the live tuner


class TraceAnalysis(TraceVerdict, kw_only=True, frozen=True):
    """One trace."""

    file: str
    rank: int | None
    gpu: str | None
    events: int
    json_bytes: int
    devices: list[DeviceAnalysis]
    steps: list[TraceStep]
    step_ns: StepStats
    advice: list[TraceAdvice] = []
    findings: list[str] = []  # what stands out, each in one sentence
    warnings: list[str]


class Straggler(Record, kw_only=True, frozen=True):
    """One rank among its peers."""

    rank: int | None
    file: str
    device: int | str
    step_median_ns: int | None
    busy_ns: int
    communication_ns: int
    waiting_ns: int | None  # inside collectives for a peer that had not come
    late_ns: int | None  # how long its peers waited because it came last
    last_in: int | None  # collectives to which it came last


class RankComparison(Record, kw_only=True, frozen=True):
    """Several ranks side by side."""

    matched_collectives: int
    note: str
    ranks: list[Straggler]


class Analysis(Record, kw_only=True, frozen=True):
    """`analyze --json`."""

    schema: int = SCHEMA
    traces: list[TraceAnalysis]
    ranks: RankComparison | None = None
    skipped: list[str] = []  # files of a folder that are no traces
