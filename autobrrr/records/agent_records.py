"""What the agent sends: the job, its anatomy, and what was measured inside it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from autobrrr.records.record_base import AttachMethod, MayAbstain, Record
from autobrrr.records.verdict_records import Verdict


class JobFacts(Record, frozen=True, kw_only=True):
    """What the agent saw of the job when it came in (event `hello`)."""

    pid: Annotated[int, Meta(ge=0)]  # as the target sees itself; differs from ours in a pid namespace
    python: str
    torch: str | None
    script: str
    argv: list[str]
    train_tid: Annotated[int, Meta(ge=0)]
    threads: Annotated[int, Meta(ge=1, le=1 << 20)] | None  # torch intra-op threads
    cuda: bool = False  # torch.cuda is in use, for whatever
    device: str | None = None  # type of the parameters' device, "cuda"; None: none has been seen yet
    compiled: bool = False
    rank: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    world_size: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    bundle: Literal["code", "source"] = "source"
    method: AttachMethod = "ptrace"

    @property
    def is_asynchronous(self) -> bool:
        """Its parameters, any of them, are on a device that works on while the host goes ahead."""
        return self.cuda if self.device is None else self.device != "cpu"

    @property
    def on_cuda(self) -> bool:
        """That device is one of CUDA's, or ROCm's, which torch calls the same."""
        return self.cuda if self.device is None else self.device == "cuda"

    @property
    def recipe_device(self) -> Literal["cpu", "cuda"] | None:
        """The device as a recipe's [match] names it; None for one that it has no name for."""
        return "cuda" if self.on_cuda else None if self.is_asynchronous else "cpu"

    @property
    def has_other_ranks(self) -> bool:
        """It is one of several that train one model, and wait for each other."""
        return (self.world_size or 1) > 1


class Anatomy(Record, frozen=True, kw_only=True):
    """How the training loop is built, once the agent knows it (event `anatomy`)."""

    source: Literal["optimizer", "backward", "replay", "forward", "loader"]  # what marks a step
    optimizers: list[str]  # class names, in the order in which they fire
    parameters: int | None
    parameter_tensors: int | None
    parameter_bytes: int | None
    state_bytes: int | None  # optimizer state
    model_bytes: int | None = None  # all parameters and buffers, trained or not
    backwards_per_step: int | None
    calls_per_step: int | None = None  # of root modules without gradients, as a rule
    roots: list[str]  # class names of the modules called from outside modules
    compiled: bool
    loader_workers: int | None  # None: no DataLoader seen
    loader_prefetch: int | None
    notes: list[str] = []
    train_tid: int | None = None  # thread that trains, as the target sees it; None: no step seen yet
    attention: list[str] = []  # where modules write attention out: "model.py:31 forward"
    uneven: list[str] = []  # weights with a side that is no multiple of 8: "head.weight 768x50257"
    gpu_uuids: list[str] = []  # CUDA devices with parameters, the one with most of them first


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
    shapes: str  # of the first arguments: "512x768 768x1024"; an expanded side is 1
    dtype: str
    count: float
    kernel_ns: float
    flops: float | None
    bytes: float | None
    alone_ns: float | None = None  # one such call by itself, at best; None: it was not run
    unread_ns: float = 0.0  # of `kernel_ns`: only numbers for Python come of it
    repeated_ns: float = 0.0  # of `kernel_ns`: what the same step has computed before, of the same contents
    fixed_ns: float = 0.0  # of `kernel_ns`: no weight and no random number has a part in it


class TracedSteps(MayAbstain, frozen=True, kw_only=True):
    """Real steps under torch's CPU profiler (event `traced`; `work` comes from a replay). CPU only.

    `kernel_ns[i]` is the sum over the step's operators of max(0, duration - floor): work that
    the kernels do, without what dispatching them costs under it.
    """

    kernel_ns: list[int] = []  # one for each traced step
    traced_step_ns: list[int] = []  # the same steps, as they took under it
    plain_step_ns: list[int] = []  # the untraced steps between them
    operations: list[int] = []  # operators dispatched, one for each traced step
    kernel_by_phase_ns: dict[str, float] = {}  # mean per step: data_wait, forward, backward, optimizer, other
    plain_by_phase_ns: dict[str, float] = {}  # the untraced steps' phases, mean per step
    operations_by_phase: dict[str, float] = {}  # operators dispatched, mean per step, keys as above
    by_op: list[OpTime] = []
    work: list[OpWork] = []  # outside the loader, the dearest first; empty: not counted
    between_ns: float | None = None  # of forward: no operator runs, outside of the roots' calls; median
    op_cost_ns: int | None = None  # what dispatching one operator costs when nobody watches
    run_delay_share: float | None = None  # training thread runnable but not running, while tracing
    foreign_cores: float | None = None  # what others ran, at most; known where threads outnumber CPUs


class CollectiveWaits(MayAbstain, frozen=True, kw_only=True):
    """Plain steps of a job of several ranks by clocks of two kinds (event `collectives`).

    Exposed are the collectives of DistributedDataParallel beyond the backward that hides them, by its own
    clock, and those that the loop calls by itself, by a clock around the call and the wait for its result. On
    a device these and the step are timed by its events; ends and own phases are left out.
    """

    step_ns: list[int] = []
    exposed_ns: list[int] = []
    blocked_ns: list[int] = []  # the thread neither ran nor waited for a CPU, by the scheduler's clock
    calls: float | None = None  # that the loop makes by itself; mean per step
    called_ns: list[int] = []  # of the exposed, those of the loop's own calls
    called_by_phase_ns: dict[str, float] = {}  # the same by phase; mean per step
    end_ns: list[int] = []  # by the machine's monotonic clock, which all ranks on it share
    own_by_phase_ns: dict[str, list[int]] = {}  # without collectives; of the phases that were measured
    delay_ns: list[int] = []  # the thread waited for a CPU
    garbage_ns: list[int] = []  # in Python's garbage collector
    samples: list[int] = []  # batch size; -1: not known
    tokens: list[int] = []  # over all batches of the step, padding too; -1: not known
    reduced: list[int] = []  # backwards after which DDP exchanged gradients; exposed is that of one of them
    counts: list[int] = []  # collectives begun in the default group by each end, the same on all ranks


class ShadowPoint(Record, frozen=True, kw_only=True):
    """A step at one batch size, as replays of its operators tell it; a duration for each group of them."""

    batch: int
    shadow_ns: list[int]


class BatchMemory(Record, frozen=True, kw_only=True):
    """What a step keeps for its backward, by its replays at two sizes; what a larger batch would take.

    A prediction: it leaves a fifth of the free memory aside. `largest_batch` is None where nothing bounds it.
    """

    saved_bytes: int  # kept for the backward at B, parameters aside
    per_sample_bytes: float
    peak_bytes: int  # of a step at B, above what stays from step to step
    peak_2x_bytes: int
    free_bytes: int | None  # between two steps
    largest_batch: int | None  # at most eight times B, or the largest size that was measured


class ShadowProbe(MayAbstain, frozen=True, kw_only=True):
    """What a recorded step takes at other batch sizes, by its replay; with `sweep`, at many of them."""

    batch: int | None = None
    points: list[ShadowPoint] = []
    operations: int | None = None
    notes: list[str] = []
    sweep: Literal["batch", "length", "width"] | None = None
    memory: BatchMemory | None = None


class FrameCount(Record, frozen=True, kw_only=True):
    """Samples of the training thread that stood at one place."""

    where: str  # innermost frame of the user's own code: "train.py:31 make_batch"
    phase: Literal["data_wait", "forward", "backward", "optimizer", "other"]
    in_loader: bool
    samples: int
    in_collective: bool = False
    in_feed: bool = False  # in a generator or an iterator of the script's own that its loop reads from
    in_between: int = 0  # of them, in torch's or a framework's code on the way to the operators
    stayed: int = 0  # of them, those that found the thread where the look before had
    asleep: int = 0  # of these, those in between which it neither ran nor waited for a CPU
    own: bool = True  # the user's code; else a library's, without any of theirs above it
    does: str = ""  # in torch's loader: "sampler", "worker start", "waits for workers", "loads", "collate"
    ns: int = 0  # time until these looks, each since the one before
    long_ns: int = 0  # of it in steps far longer than usual


class CodeSite(Record, frozen=True, kw_only=True):
    """A place in the job's own code that an edit might speed up."""

    what: str  # the kind: "reads back", "copies", ..., or "calls json.loads" (see `called_at`)
    where: str  # "train.py:31 main"
    samples: int = 0  # of those taken, so many stood there


class FrameSamples(Record, frozen=True, kw_only=True):
    """Stacks of the training thread, sampled by the agent's thread (event `frames`)."""

    samples: int
    places: list[FrameCount]
    queue_empty_share: float | None = None  # prefetch queue empty when looked at; None: no workers
    code: list[CodeSite] = []  # in the code that was on the stack
    ns: int = 0  # over which it was looked at
    workers: list[tuple[str, int]] = []  # lines at which workers were found at work, and how often
    worker_looks: int = 0  # at workers, those too that found one idle


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


class ProfilerWindow(MayAbstain, frozen=True, kw_only=True):
    """A few steps under torch.profiler (event `window`), and what the trace shows.

    The profiler makes steps longer: shares are of the profiled step, `inflation` says how much.
    """

    plain_step_ns: list[int] = []  # just before, without the profiler
    profiled_step_ns: list[int] = []
    after_step_ns: list[int] = []  # once it was over, on a device; empty until there are enough
    stall_ns: int | None = None  # training stood still: profiler on and off, and while the trace was written
    write_ns: int | None = None  # of the trace, part of it: torch holds the interpreter meanwhile
    shapes: bool = False
    device: bool = False  # the job uses a CUDA device: its kernels must be in the trace
    cupti: Literal["attached"] | None = None  # "attached": it stays, and calls into CUDA stay slower
    operators: float | None = None  # called by the step itself, not by other operators; per step
    inside_share: float | None = None  # of the profiled step: the training thread inside operators
    compiled_share: float | None = None  # the same inside compiled graphs
    loader_share: float | None = None  # the same waiting for the DataLoader
    graph_kernels: int | None = None  # made by inductor in this process, for all graphs
    by_op: list[WindowOp] = []
    gaps: list[WindowGaps] = []  # devices
    verdict: Verdict | None = None  # of a GPU's trace


class HostHold(Record, frozen=True, kw_only=True):
    """One step in which the training thread was kept busy for a while, by the device's clock."""

    place: Literal["step", "backward"]  # between two steps, or before the backward
    held_ns: int
    idle_ns: int  # of it the device had nothing to do
    step_ns: int
    beside_ns: list[int]  # the steps before and after it


class HostSlack(MayAbstain, frozen=True, kw_only=True):
    """Whether a device waits where the host is held up (event `slack`)."""

    hold_ns: int | None = None  # as long as each hold was to be
    holds: list[HostHold] = []


class SettingFact(Record, frozen=True, kw_only=True):
    """A setting or a habit that costs time, read where it stands."""

    name: str  # "anomaly", "float64", "denormals", "unused_rows", "recompiles", ...
    value: float = 1.0  # of what it is of, the share; 1.0: it is on
    detail: str = ""
    where: str | None = None  # the line that sets it: "train.py:12 <module>"


class DeviceAllocator(Record, frozen=True, kw_only=True):
    """What torch's allocator has counted on the training thread's device."""

    reserved_bytes: int  # now, from the driver
    peak_bytes: int  # in use at once, since the job began or last set it back


class Census(Record, frozen=True, kw_only=True):
    """What was read of them (event `census`)."""

    facts: list[SettingFact]
    allocator: DeviceAllocator | None = None


class AgentCost(Record, frozen=True, kw_only=True):
    """What the agent itself costs (event `cost`)."""

    ns_per_step: float | None  # always-on, all together, mean over all steps
    one_off_ns: int | None = None  # calibration, replays, what traced steps took longer: in all so far
