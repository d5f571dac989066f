"""All that a session has measured so far, in the form in which it came, and what its machine could do.

In: the ring's records, the agent's events, samples of the machine, cached peaks. Out: `Measurements` for the
judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import msgspec
import numpy as np

from autobrrr.diagnosis.measurements import NOT_SEEN, Measurements
from autobrrr.machine.device_poller import Poller
from autobrrr.machine.host_sampler import HostDevice
from autobrrr.records import (
    AgentCost,
    Anatomy,
    Attach,
    Census,
    CollectiveWaits,
    FrameSamples,
    HostSample,
    HostSlack,
    JobFacts,
    ProfilerWindow,
    ShadowProbe,
    TracedSteps,
)
from autobrrr.records.events import MEASURED
from autobrrr.records.record_base import as_record
from autobrrr.roofline.quick_peaks import MeasuredPeaks, quick_peaks
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.session.rank_turn import RankLock
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.session.step_window import Buckets, StepWindow

HOST_EVERY_NS = 500_000_000
HOST_NS = 30_000_000_000  # as long as steps stay in the window
MOST_HELD = 128  # memory samples kept
LATELY = 3  # samples of the host
PLAIN_STEPS = 16  # beside profiled ones
OTHERWISE = ("traced", "gpu")  # fields of `Measurements` that are given in another form
AS_MEASURED = {each.name for each in fields(Measurements)}.difference(OTHERWISE)
SMALL = ("cost", "census", "frames", "probed")  # measurements that hardly grow the job's memory


class Collected:
    """Grows while the session watches; knows nothing of states."""

    def __init__(
        self, pid: int, options: SessionOptions, cores: int | None = None, ranks_here: int = 1
    ) -> None:
        self.pid = pid
        self.options = options
        self.cores = cores
        self.cores_each = None if cores is None else max(1, cores // ranks_here)  # of each rank
        self.ring: RingReader | None = None  # before the agent is in, and once the ring is gone
        self._sampled_ns: int | None = None
        self.turn = RankLock()  # of the ranks of the job, to be measured
        self.window = StepWindow()
        self.history = Buckets()
        self.facts: JobFacts | None = None
        self.attach = Attach(method="outside", latency_ns=None, pause_ns=0)
        self.anatomy: Anatomy | None = None
        self.traced: TracedSteps | None = None
        self.tracing: TracedSteps | None = None  # what the first trace under way shows so far
        self.probe: ShadowProbe | None = None
        self.sweep: ShadowProbe | None = None
        self.collectives: CollectiveWaits | None = None
        self.frames: FrameSamples | None = None
        self.profile: ProfilerWindow | None = None
        self._profile_seq = 0  # of the last step that counted when it came
        self.slack: HostSlack | None = None
        self.census: Census | None = None
        self.cost: AgentCost | None = None
        self.peaks_folder: Path | None = None  # `paths.cache_dir()`; None: nobody looks for peaks
        self._peaks: MeasuredPeaks | None = None  # the last that were found
        self.fault_ns: float | None = None  # cost of a page fault
        self.bf16: bool | None = None
        self.gpu: Poller | None = None
        self.host: tuple[HostSample, ...] = ()
        self.held: tuple[tuple[int, int], ...] = ()  # when, the job's resident bytes
        self.measured_ns = 0  # on the host samples' clock: when our measuring last grew the job's memory
        self.replaying = False  # a process of ours takes CPU time: what the host shows now is our doing

    @property
    def compiled(self) -> bool:
        """The job runs compiled code, as far as is known."""
        return bool((self.facts and self.facts.compiled) or (self.anatomy and self.anatomy.compiled))

    @property
    def is_asynchronous(self) -> bool:
        """The host's clock does not show how long steps take."""
        return self.facts is not None and self.facts.is_asynchronous

    @property
    def several(self) -> bool:
        """The job has other ranks, which wait for what is done to this one."""
        return self.facts is not None and self.facts.has_other_ranks

    def waits(self, now_ns: int) -> bool:
        """Another one is being measured: what makes its steps longer, this one waits for."""
        return self.several and self.turn.elsewhere(now_ns)

    def look(self, now_ns: int, device: HostDevice) -> None:
        """Take in new steps, and a sample of the machine where it is time.

        Raises:
            NoRing: nothing can be made of the ring any more; it is not looked at again.
        """
        ring, self.ring = self.ring, None
        if ring is not None and len(records := ring.read_new()):
            if self.waits(now_ns):
                self.window.pass_over(records)
            else:
                self.window.add(records)
            self.history.add(records, self.window.clock)
        self.ring = ring
        if self._sampled_ns is None or now_ns - self._sampled_ns >= HOST_EVERY_NS:
            self._sampled_ns = now_ns
            sample = device.sample()
            if sample is not None:
                self.see_host(sample)

    def know(self, facts: JobFacts) -> None:
        """What the agent knows of the job by now."""
        self.facts = facts
        self.window.clock = "device" if facts.is_asynchronous else "host"

    def by_device(self, window: ProfilerWindow) -> ProfilerWindow:
        """A window whose steps are timed as this job's are: the agent's clock is the host's anywhere."""
        if not self.is_asynchronous:
            return window
        profiled = self.window.profiled_ns[1:]  # in the first one the profiler began
        plain = self.window.step_ns[-PLAIN_STEPS:]
        seen = bool(profiled) and len(plain) > 0
        self._profile_seq = self.window.last_seq
        return msgspec.structs.replace(
            window,
            plain_step_ns=[int(each) for each in plain] if seen else [],
            profiled_step_ns=profiled if seen else [],
        )

    def follow_window(self) -> None:
        """On a device: what steps take since the last window, once there are as many as before it."""
        window = self.profile
        if window is None or not self.is_asynchronous or window.after_step_ns or not window.plain_step_ns:
            return
        after = self.window.step_ns_after(self._profile_seq, len(window.plain_step_ns))
        if after:
            self.profile = msgspec.structs.replace(window, after_step_ns=after)

    def take(self, event: str, payload: Mapping[str, object]) -> bool:
        """Take in one event of the agent; false where it is none that carries a measurement.

        Raises:
            msgspec.ValidationError: the payload is not what the event promises.
        """
        kind = MEASURED.get(event)
        if kind is None:
            return False
        found = as_record(payload.get(event), kind)
        if event not in SMALL:
            self.took_memory()
        if isinstance(found, JobFacts):
            self.know(found)
        elif not isinstance(found, ShadowProbe):
            before = self.traced
            if isinstance(found, TracedSteps):
                work = found.work or ([] if before is None else before.work)  # until its own has been read
                found = msgspec.structs.replace(found, work=work, foreign_cores=self._foreign_cores)
            setattr(self, event, found)
            if event == "traced":
                self.tracing = None
        elif found.sweep is None:
            self.probe = found
        else:
            self.sweep = found
        return True

    def _found_peaks(self) -> MeasuredPeaks | None:
        """Peaks of the job's torch at as many threads as it has, else of ours; better ones as they come."""
        threads, folder = self._threads_at_once, self.peaks_folder
        if folder is None or threads is None or self.facts is None:
            return None
        torch = self.facts.torch
        known = self._peaks
        if known is None or known.threads != threads or known.is_disturbed:
            known = None if torch is None else quick_peaks(threads, folder, measure=False, version=torch)
            known = self._peaks = known or quick_peaks(threads, folder, measure=False)
        return known

    @property
    def _threads_at_once(self) -> int | None:
        threads = self.facts.threads if self.facts is not None else None
        return threads if threads is None or self.cores is None else min(threads, self.cores)

    @property
    def fills_cpus(self) -> bool:
        """Whether its threads leave no CPU to a process of ours."""
        return self.cores is not None and self._threads_at_once == self.cores

    @property
    def free_cores(self) -> float | None:
        """What nobody had lately of the CPUs that the job may run on."""
        looks = [(each.cpu_share, each.foreign_cores) for each in self.host[-LATELY:]]
        had = [own + others for own, others in looks if own is not None and others is not None]
        return None if self.cores is None or not had else self.cores - float(np.median(had))

    @property
    def _foreign_cores(self) -> float | None:
        """CPU that other programs used lately; asked only if threads outnumber CPUs."""
        threads = self.facts.threads if self.facts is not None else None
        known = [each.foreign_cores for each in self.host if each.foreign_cores is not None]
        crowded = threads is not None and self.cores is not None and threads > self.cores
        return max(known[-LATELY:]) if crowded and known else None

    def took_memory(self) -> None:
        """We have just measured: growth of the job's memory until now may be ours."""
        self.measured_ns = self.held[-1][0] if self.held else 0

    def see_host(self, sample: HostSample) -> None:
        """Keep a sample for as long as the steps of its time count."""
        if sample.rss_bytes is not None:
            self.held = (*self.held[1 - MOST_HELD :], (sample.t_ns, sample.rss_bytes))
        if not self.replaying or not self.host:
            self.host = (*(each for each in self.host if each.t_ns >= sample.t_ns - HOST_NS), sample)

    def measurements(self, elapsed_ns: int) -> Measurements:
        """What the judge reads."""
        return Measurements(
            **{name: found for name, found in vars(self).items() if name in AS_MEASURED},
            step_ns=self.window.step_ns,
            seen=self.window.seen,
            evaluated=tuple(self.window.evaluated),
            ahead=self.window.ahead if self.is_asynchronous else NOT_SEEN,
            phases=self.window.phases,
            traced=self.traced or self.tracing,
            gpu=self.gpu.samples() if self.gpu is not None else (),
            allocator=None if self.census is None else self.census.allocator,
            settings=() if self.census is None else tuple(self.census.facts),
            readonly=self.options.readonly,
            outside=self.options.outside,
            probing=self.options.probing,
            elapsed_ns=elapsed_ns,
            peaks=self._found_peaks(),
        )
