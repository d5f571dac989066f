"""The data that passes between rooms, and out of the program as JSON.

msgspec structs, frozen. Field names are the JSON names (`class_` is written `class`); `None` is
"not measured". Times are integer nanoseconds, shares are 0-1.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = 1

Regime = Literal[
    "overhead",
    "input",
    "host",
    "sync",
    "communication",
    "memory",
    "compute",
    "underfilled",
    "mixed",
    "unknown",
]
Confidence = Literal["high", "low"]
ExactnessClass = Literal["bitwise", "rounding", "stream", "changes-training"]
Reach = Literal["live", "next_epoch", "relaunch"]
AttachMethod = Literal["preload", "remote_exec", "ptrace", "outside"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records; unknown fields on decoding are ignored."""


# --- what the agent sends ---------------------------------------------------------------


class JobFacts(Record, frozen=True, kw_only=True):
    """What the agent saw of the job when it came in (event `hello`)."""

    pid: int  # as the target sees itself; differs from ours in a pid namespace
    python: str
    torch: str | None
    script: str
    argv: list[str]
    train_tid: int
    threads: int | None  # torch intra-op threads
    cuda: bool = False
    compiled: bool = False
    rank: int | None = None
    world_size: int | None = None
    bundle: Literal["code", "source"] = "source"
    method: AttachMethod = "ptrace"


class Anatomy(Record, frozen=True, kw_only=True):
    """How the training loop is built, once the agent knows it (event `anatomy`)."""

    source: Literal["optimizer", "backward", "forward", "loader"]  # what marks a step
    optimizers: list[str]  # class names, in the order in which they fire
    parameters: int | None
    parameter_tensors: int | None
    parameter_bytes: int | None
    state_bytes: int | None  # optimizer state
    backwards_per_step: int | None
    roots: list[str]  # class names of the modules called from outside modules
    compiled: bool
    loader_workers: int | None  # None: no DataLoader seen
    loader_prefetch: int | None
    notes: list[str] = []
    train_tid: int | None = None  # thread that trains, as the target sees it; None: no step seen yet


class OpTime(Record, frozen=True, kw_only=True):
    """One operator over the traced steps; per step."""

    op: str
    count: float
    kernel_ns: float


class OpWork(Record, frozen=True, kw_only=True):
    """Calls of one operator on the same shapes in one phase: what they had to do; sums per step.

    `flops` counts a multiply and an add as two, for matrix products, convolutions and attention
    alone; `bytes` is what must be read and written at least once. None: it could not be read.
    """

    op: str
    phase: str
    shapes: str  # of the first arguments: "512x768 768x1024"
    dtype: str
    count: float
    kernel_ns: float
    flops: float | None
    bytes: float | None


class TracedSteps(Record, frozen=True, kw_only=True):
    """Real steps under the timing dispatch mode (event `traced`). CPU only.

    `kernel_ns[i]` is the sum over the step's operators of max(0, duration - floor): work that
    the kernels do, without what dispatching them costs under the mode.
    """

    status: Literal["ok", "abstained"]
    why: str | None = None
    kernel_ns: list[int] = []  # one for each traced step
    traced_step_ns: list[int] = []  # the same steps, as they took under the mode
    plain_step_ns: list[int] = []  # the untraced steps between them
    operations: list[int] = []  # operators dispatched, one for each traced step
    kernel_by_phase_ns: dict[str, float] = {}  # mean per step: data_wait, forward, backward, optimizer, other
    plain_by_phase_ns: dict[str, float] = {}  # the untraced steps' phases, mean per step
    operations_by_phase: dict[str, float] = {}  # operators dispatched, mean per step, keys as above
    by_op: list[OpTime] = []
    work: list[OpWork] = []  # outside the loader, the dearest first; empty: not counted
    op_floor_ns: int | None = None  # median time of an operator on 8 elements, under the mode
    op_cost_ns: int | None = None  # what dispatching one operator costs without the mode
    run_delay_share: float | None = None  # training thread runnable but not running, while tracing


class ShadowPoint(Record, frozen=True, kw_only=True):
    """Replays of the recorded step at one batch size; own durations of each replay."""

    batch: int
    shadow_ns: list[int]
    minor_faults: int | None = None  # of one replay, median


class ShadowProbe(Record, frozen=True, kw_only=True):
    """The shadow-step batch probe (event `probed`)."""

    status: Literal["ok", "abstained"]
    why: str | None = None
    batch: int | None = None
    points: list[ShadowPoint] = []
    optimizer_ns: int | None = None  # median, from sampled real steps meanwhile
    step_ns: int | None = None  # median plain real step meanwhile
    operations: int | None = None
    longest_pause_ns: int | None = None
    total_pause_ns: int | None = None
    flops: int | None = None  # of one replay at B
    notes: list[str] = []


class FrameCount(Record, frozen=True, kw_only=True):
    """Samples of the training thread that stood at one place."""

    where: str  # innermost frame of the user's own code: "train.py:31 make_batch"
    phase: Literal["data_wait", "forward", "backward", "optimizer", "other"]
    in_loader: bool
    samples: int


class FrameSamples(Record, frozen=True, kw_only=True):
    """Stacks of the training thread, sampled by the agent's thread (event `frames`)."""

    samples: int
    places: list[FrameCount]
    queue_empty_share: float | None = None  # prefetch queue empty when looked at; None: no workers


class WindowOp(Record, frozen=True, kw_only=True):
    """One operator in a profiler window; per step, its own time without that of operators inside it."""

    op: str
    count: float
    self_ns: float


class WindowGaps(Record, frozen=True, kw_only=True):
    """The idle time of one device in a profiler window, by cause."""

    device: str
    span_ns: int
    busy_ns: int
    idle_by_cause_ns: dict[str, int]


class ProfilerWindow(Record, frozen=True, kw_only=True):
    """A few steps under torch.profiler (event `window`), and what the trace shows.

    The profiler makes steps longer: shares are of the profiled step, `inflation` says how much.
    """

    status: Literal["ok", "abstained"]
    why: str | None = None
    plain_step_ns: list[int] = []  # just before, without the profiler
    profiled_step_ns: list[int] = []
    stall_ns: int | None = None  # training stood still: profiler on and off
    write_ns: int | None = None  # of the trace, on another thread
    shapes: bool = False
    operators: float | None = None  # called by the step itself, not by other operators; per step
    inside_share: float | None = None  # of the profiled step: the training thread inside operators
    compiled_share: float | None = None  # the same inside compiled graphs
    loader_share: float | None = None  # the same waiting for the DataLoader
    by_op: list[WindowOp] = []
    gaps: list[WindowGaps] = []  # devices
    verdict: Verdict | None = None  # of a GPU's trace


class AgentCost(Record, frozen=True, kw_only=True):
    """What the agent itself costs (event `cost`)."""

    hook_ns: int | None  # the always-on hook, per step, calibrated in the target
    sampled_hooks_ns: int | None  # all phase hooks, in a sampled step
    boundary_ns_per_step: float | None  # always-on work at step boundaries, mean over all steps
    ns_per_step: float | None  # always-on, all together, mean over all steps
    one_off_ns: int | None = None  # calibration, traced steps, probe: what they took in all so far


# --- what the sidecar adds ---------------------------------------------------------------


class StepStats(Record, frozen=True, kw_only=True):
    """Durations of representative steps."""

    count: int
    mean: int | None
    median: int | None
    p99: int | None


class Phases(Record, frozen=True, kw_only=True):
    """Mean of sampled steps."""

    data_wait: int | None = None
    host_to_device: int | None = None
    forward: int | None = None
    backward: int | None = None
    optimizer: int | None = None
    other: int | None = None


class Shares(Record, frozen=True, kw_only=True):
    """Parts of the whole step; those that are measured, with `other`, sum to one."""

    overhead: float | None = None
    input: float | None = None
    host: float | None = None
    sync: float | None = None
    communication: float | None = None
    memory: float | None = None
    compute: float | None = None
    underfilled: float | None = None
    other: float | None = None


class HostSample(Record, frozen=True, kw_only=True):
    """The job as psutil and /proc show it from outside, over the last interval."""

    t_ns: int
    cpu_share: float | None  # of one core; 2.0 = two cores busy
    rss_bytes: int | None
    threads: int | None
    run_delay_share: float | None  # training thread waiting for a CPU, of wall time
    steal_share: float | None
    children_cpu_share: float | None  # DataLoader workers, of one core each, summed
    throttled_share: float | None = None  # stopped by the CPU limit of its control group, of wall time


class GpuSample(Record, frozen=True, kw_only=True):
    """The GPU of the job as its driver shows it from outside, over the last interval."""

    t_ns: int
    name: str | None = None
    gpu_util_share: float | None = None  # time in which any kernel ran, however small
    sm_active_share: float | None = None  # GPM: of all SMs, over the interval
    tensor_active_share: float | None = None
    dram_active_share: float | None = None  # of the bandwidth that the memory could have
    memory_used_bytes: int | None = None  # by everybody
    memory_total_bytes: int | None = None
    job_memory_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    throttled_by: list[str] | None = None  # empty: nothing lowers the clock
    other_processes: int | None = None  # that compute on the same device


class Evidence(Record, frozen=True, kw_only=True):
    """What one signal found. `says` is what it says alone; `against` what it excludes."""

    signal: str
    says: str | None
    value: float | None
    unit: str
    note: str
    against: list[str] = []


class BatchPoint(Record, frozen=True, kw_only=True):
    batch: int
    step_ns: int


class BatchProbe(Record, frozen=True, kw_only=True):
    """Step time as a function of the batch: t(B) = fixed + per_sample * B."""

    status: Literal["ok", "abstained"]
    why: str | None = None
    batch: int | None = None
    points: list[BatchPoint] = []
    ratio_2x: float | None = None
    fixed_ns: int | None = None
    per_sample_ns: float | None = None
    ratio_2x_interval: list[float] | None = None


class Attach(Record, frozen=True, kw_only=True):
    method: AttachMethod
    latency_ns: int | None
    pause_ns: int | None


class Cost(Record, frozen=True, kw_only=True):
    ns_per_step: int | None  # of what is always on
    share: float | None
    one_off_ns: int | None = None  # pauses of the measurements that are run once, in all so far


class Advice(Record, frozen=True, kw_only=True):
    remedy: str
    why: str
    expected: float | None  # factor: 1.3 = 30 % more steps per second
    reach: Reach
    class_: ExactnessClass = msgspec.field(name="class")


class Verdict(Record, frozen=True, kw_only=True):
    """The judgement alone, before it is dressed with the session's figures."""

    regime: Regime
    confidence: Confidence
    reason: str
    shares: Shares
    evidence: list[Evidence]
    advice: list[Advice] = []
    decide_with: str | None = None  # the command that would decide an undecided case


class Diagnosis(Record, frozen=True, kw_only=True):
    """`diagnose --json`, and with the last three fields a snapshot of `attach --json`."""

    schema: int = SCHEMA
    pid: int
    regime: Regime
    confidence: Confidence
    reason: str
    shares: Shares
    step_ns: StepStats
    phases_ns: Phases
    evidence: list[Evidence]
    batch_probe: BatchProbe
    attach: Attach
    cost: Cost
    device: dict[str, object] | None
    advice: list[Advice]
    decide_with: str | None = None
    job: JobFacts | None = None
    anatomy: Anatomy | None = None
    host: HostSample | None = None
    t_ns: int | None = None  # since attach
    steps: int | None = None  # since attach
    state: str | None = None  # of the session: watching, tracing, ..., judged, tuning, ended
    activity: str | None = None
    levers: list[str] = []  # remedies that are on
    window: ProfilerWindow | None = None  # the last one
    final: bool | None = None


class Trial(Record, frozen=True, kw_only=True):
    """One remedy, tried in interleaved blocks on the running job."""

    remedy: str
    options: dict[str, object]
    outcome: Literal["kept", "undone", "refused", "skipped"]
    why: str
    class_: ExactnessClass = msgspec.field(name="class")
    predicted: float | None
    achieved: float | None  # factor on speed; 1.3 = 30 % more steps per second
    interval: list[float] | None
    blocks: int
    steps: int
    duration_ns: int


class Reverted(Record, frozen=True, kw_only=True):
    remedy: str
    why: str


class Tuning(Record, frozen=True, kw_only=True):
    """`tune --json`."""

    schema: int = SCHEMA
    objective: Literal["step_ns", "samples_per_s"]
    baseline: float | None
    best: float | None
    speedup: float
    interval: list[float] | None
    class_: ExactnessClass = msgspec.field(name="class")
    kept: list[str]
    reverted: list[Reverted]
    trials: list[Trial]
    recipe: str | None
    note: str | None = None
    guard_undid: list[Reverted] = []  # kept, then undone by the guard: exit code 5
    job: JobFacts | None = None


class TuneProgress(Record, frozen=True, kw_only=True):
    """Where a tuning stands; sent after every pair of blocks."""

    stage: Literal["trial", "ablation", "final", "guard"]
    text: str  # one line for people
    remedy: str | None = None
    options: dict[str, object] = {}
    pairs: int = 0
    steps: int = 0
    achieved: float | None = None  # factor on speed, as far as it is known
    interval: list[float] | None = None
    kept: list[str] = []
    elapsed_ns: int = 0
    budget_ns: int = 0


class Check(Record, frozen=True, kw_only=True):
    """One line of `doctor`."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str


class JobLine(Record, frozen=True, kw_only=True):
    """One line of `ls`."""

    pid: int
    script: str | None
    rank: int | None
    torch: str | None
    attached: bool
    attachable: bool
    why: str | None


def to_json(record: Record) -> str:
    """One record as one line of JSON."""
    return msgspec.json.encode(record).decode()
