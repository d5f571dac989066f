"""What the sidecar makes of it: steps, phases, the machine meanwhile, the diagnosis."""

from __future__ import annotations

from typing import Literal

import msgspec

from autobrrr.quantities import duration, share, size
from autobrrr.records.agent_records import Anatomy, BatchMemory, JobFacts, ProfilerWindow
from autobrrr.records.rank_records import LateRank, RankLine, RankTimes
from autobrrr.records.record_base import SCHEMA, AttachMethod, MayAbstain, Record, TwoNumbers
from autobrrr.records.verdict_records import MemoryPart, Verdict

MOST_PARTS, LEAST_PART = 4, 0.01  # of the memory, told in one line


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


class CpuTaker(Record, frozen=True, kw_only=True):
    """A process of others that has the CPUs while the job waits for one."""

    pid: int
    command: str  # the program, and of a Python process what it runs
    share: float  # of one core


class HostSample(Record, frozen=True, kw_only=True):
    """The job as /proc shows it from outside, over the last interval."""

    t_ns: int
    cpu_share: float | None  # of one core; 2.0 = two cores busy
    rss_bytes: int | None
    threads: int | None
    run_delay_share: float | None  # training thread waiting for a CPU, of wall time
    steal_share: float | None
    children_cpu_share: float | None  # DataLoader workers, of one core each, summed
    children_delay_share: float | None = None  # without a CPU, of the time that children were ready to run
    throttled_share: float | None = None  # stopped by the CPU limit of its control group, of wall time
    foreign_cores: float | None = None  # CPU that others, its children too, took where the job may run
    ranks_cpu_share: float | None = None  # other ranks of the job on this machine, of one core each, summed
    takers: list[CpuTaker] = []  # while the training thread waits for a CPU: who has it


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


class BatchPoint(Record, frozen=True, kw_only=True):
    batch: int
    step_ns: int


class BatchProbe(MayAbstain, frozen=True, kw_only=True):
    """Step time as a function of the batch: t(B) = fixed + per_sample * B."""

    batch: int | None = None
    points: list[BatchPoint] = []
    ratio_2x: float | None = None
    fixed_ns: int | None = None
    per_sample_ns: float | None = None
    ratio_2x_interval: TwoNumbers | None = None
    memory: BatchMemory | None = None
    replays: int | None = None  # these three are None: a probe comes whole
    planned: int | None = None
    decides_in: int | None = None


class SizePoint(Record, frozen=True, kw_only=True):
    size: int
    step_ns: int


class SizeSweep(MayAbstain, frozen=True, kw_only=True):
    """Step time against a size of the data (`diagnose --sweep`)."""

    along: Literal["batch", "length", "width"]
    size: int | None = None  # as it is now
    points: list[SizePoint] = []
    ratio_2x: float | None = None
    memory: BatchMemory | None = None  # along the batch
    notes: list[str] = []  # sizes left out, and why


class Attach(Record, frozen=True, kw_only=True):
    method: AttachMethod
    latency_ns: int | None
    pause_ns: int | None


class Cost(Record, frozen=True, kw_only=True):
    ns_per_step: int | None  # of what is always on
    share: float | None  # the same, of a step
    one_off_ns: int | None = None  # all pauses so far: attaching, measuring, applying and compiling remedies
    session_share: float | None = None  # both, of the session so far: the own cost
    cpu_ns: int | None = None  # of processes of ours beside the job: the session, replays, peaks

    @property
    def words(self) -> str:
        """`0.65 % while attached, plus 370 ms of pauses`; "" where nothing is known."""
        always = duration(self.ns_per_step) + " a step" if self.share is None else share(self.share)
        parts = [f"{always} while attached"] if self.ns_per_step is not None else []
        parts += [f"{duration(self.one_off_ns)} of pauses"] if self.one_off_ns else []
        return ", plus ".join(parts)


class Diagnosis(Verdict, frozen=True, kw_only=True):
    """`diagnose --json`, and with the last three fields a snapshot of `attach --json`."""

    schema: int = SCHEMA
    pid: int
    step_ns: StepStats  # on a device that works asynchronously by its clock
    phases_ns: Phases  # the host's time
    batch_probe: BatchProbe
    attach: Attach
    cost: Cost
    device: dict[str, object] | None
    memory: list[MemoryPart] = []  # who holds what the process has, the largest first
    contention: list[CpuTaker] = []  # who has the CPUs that the job waits for
    job: JobFacts | None = None
    anatomy: Anatomy | None = None
    host: HostSample | None = None
    t_ns: int | None = None  # since attach
    steps: int | None = None  # since attach
    state: str | None = None  # of the session: watching, tracing, ..., judged, tuning, ended
    activity: str | None = None
    active: list[str] = msgspec.field(name="levers", default_factory=list)  # remedies that are on
    window: ProfilerWindow | None = None  # the last one
    sweep: SizeSweep | None = None  # the last one
    collectives: RankTimes | None = None  # of this rank
    ranks: list[RankLine] | None = None  # those of the job that have a session
    straggler: LateRank | None = None  # of them; None: they were not compared
    final: bool | None = None
    device_ns: StepStats | None = None  # steps by the device's clock; None on a CPU

    @property
    def memory_words(self) -> str:
        """`8.20 GB on the device: 4.00 GB optimizer state; a batch of 96 would fit`; "" where unknown."""
        total = sum(part.bytes for part in self.memory)
        told = [f"{size(part.bytes)} {part.what}" for part in self.memory if part.bytes >= LEAST_PART * total]
        if not told:
            return ""
        fits = None if self.batch_probe.memory is None else self.batch_probe.memory.largest_batch
        batch = f"; a batch of {fits} would fit" if fits is not None else ""
        return f"{size(total)} on the {self.memory[0].place}: {', '.join(told[:MOST_PARTS])}{batch}"
