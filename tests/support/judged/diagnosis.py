"""Synthetic measurements of jobs: built from where the step goes, as the agent would have seen it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from autobrrr.diagnosis.measurements import Measurements, PhaseFigures, Probing, phase_figures
from autobrrr.records import (
    Anatomy,
    CollectiveWaits,
    FrameCount,
    FrameSamples,
    HostSample,
    JobFacts,
    OpTime,
    OpWork,
    ProfilerWindow,
    ShadowPoint,
    ShadowProbe,
    TracedSteps,
    WindowOp,
)
from autobrrr.roofline.quick_peaks import MeasuredPeaks
from support.sessions import sidecar
from support.sessions.sidecar import host_sample, job_facts

PID = 4242
MS = 1_000_000
WOBBLE = (0.99, 1.01, 1.0, 1.02, 0.98, 1.0)  # six steps never take quite the same time
PHASE_SHARES = {"data_wait": 0.02, "forward": 0.38, "backward": 0.4, "optimizer": 0.18, "other": 0.02}


def steady(step_ns: float, steps: int = 60) -> np.ndarray:
    """Durations that vary by 2 % in turns."""
    return np.array([int(step_ns * WOBBLE[i % len(WOBBLE)]) for i in range(steps)], dtype=np.int64)


def sampled(
    step_ns: float, shares: dict[str, float], steps: int = 24, batch: int = 32
) -> PhaseFigures | None:
    """Phases of sampled steps."""
    durations = steady(step_ns, steps)
    columns = {
        f"{name}_ns": (durations * share).astype(np.int64)
        for name, share in shares.items()
        if name != "other"
    }
    columns["samples"] = np.full(steps, batch, dtype=np.int64)
    columns["minor_faults"] = np.zeros(steps, dtype=np.int64)
    return phase_figures(durations, columns)


def traced(
    step_ns: float = 2.6 * MS,
    shares: dict[str, float] = PHASE_SHARES,
    *,
    kernels: float | dict[str, float] = 0.1,
    compute: float = 0.5,
    operations: int = 800,
    op_cost_ns: int | None = 2_000,
    run_delay_share: float | None = 0.01,
    wobble: tuple[float, ...] = WOBBLE,
    slowdown: float = 2.0,
    ops: tuple[str, ...] = ("aten.addmm.default", "aten.mul.Tensor"),
    **more: Any,
) -> TracedSteps:
    """Traced steps of a job; `kernels` is the part of each phase in which kernels work."""
    inside = dict.fromkeys(shares, kernels) if isinstance(kernels, float) else kernels
    plain = {name: step_ns * share for name, share in shares.items()}
    kernel = {name: plain[name] * inside.get(name, 0.0) for name in plain}
    total = sum(kernel.values())
    return TracedSteps(
        status="ok",
        kernel_ns=[int(total * factor) for factor in wobble],
        traced_step_ns=[int(step_ns * slowdown * factor) for factor in wobble],
        plain_step_ns=[int(step_ns * factor) for factor in wobble],
        operations=[operations] * len(wobble),
        kernel_by_phase_ns=kernel,
        plain_by_phase_ns=plain,
        by_op=[
            OpTime(op=ops[0], count=operations / 2, kernel_ns=total * compute),
            OpTime(op=ops[1], count=operations / 2, kernel_ns=total * (1 - compute)),
        ],
        op_cost_ns=op_cost_ns,
        run_delay_share=run_delay_share,
        **more,
    )


def probed(
    step_ns: float = 2.6 * MS,
    *,
    fixed: float = 0.95,
    batch: int = 32,
    factors: tuple[float, ...] = (0.25, 0.5, 1, 2),
    noise: float = 0.01,
    curve: Callable[[float], float] | None = None,
    **more: Any,
) -> ShadowProbe:
    """A probe of a job whose step is `fixed` + the rest times the batch; `curve` bends it."""
    grows = curve or (lambda factor: fixed + (1 - fixed) * factor)
    points = []
    for factor in factors:
        durations = [int(step_ns * grows(factor) * (1 + noise * (i - 2))) for i in range(5)]
        points.append(ShadowPoint(batch=int(batch * factor), shadow_ns=durations))
    return ShadowProbe(status="ok", batch=batch, points=points, **more)


UNPROBED = ShadowProbe(status="abstained", why="loading takes 70 % of the step")


def frames(loader: int = 0, host: int = 0, model: int = 0, **more: Any) -> FrameSamples:
    """Sampled stacks: so many in the loader, in the loop's own code, in the model."""
    places = [
        FrameCount(where="train.py:31 make_batch", phase="data_wait", in_loader=True, samples=loader),
        FrameCount(where="train.py:77 log_metrics", phase="other", in_loader=False, samples=host),
        FrameCount(where="model.py:12 forward", phase="forward", in_loader=False, samples=model),
    ]
    return FrameSamples(
        samples=loader + host + model, places=[place for place in places if place.samples], **more
    )


def machine(
    run_delay_share: float | None = 0.01,
    steal_share: float | None = 0.0,
    throttled_share: float | None = None,
    children_cpu_share: float | None = None,
    foreign_cores: float | None = None,
    *,
    cpu_share: float | None = 1.0,
) -> tuple[HostSample, ...]:
    """Ten looks at the machine."""
    return tuple(
        host_sample(
            t_ns=i * 500 * MS,
            cpu_share=cpu_share,
            run_delay_share=run_delay_share,
            steal_share=steal_share,
            children_cpu_share=children_cpu_share,
            throttled_share=throttled_share,
            foreign_cores=foreign_cores,
        )
        for i in range(10)
    )


def anatomy(
    workers: int | None = None,
    optimizers: tuple[str, ...] = ("AdamW",),
    tensors: int = 12,
    state_bytes: int = 1 << 20,
    compiled: bool = False,
    **more: Any,
) -> Anatomy:
    """A loop with one model."""
    found = sidecar.anatomy(
        optimizers=list(optimizers),
        parameter_tensors=tensors,
        state_bytes=state_bytes,
        compiled=compiled,
        loader_workers=workers,
        loader_prefetch=2 if workers else None,
        **more,
    )
    return Anatomy(**found)  # type: ignore[arg-type]


def facts(**more: Any) -> JobFacts:
    """An ordinary job."""
    return job_facts(PID, **more)


def measured(
    step_ns: float = 2.6 * MS,
    shares: dict[str, float] = PHASE_SHARES,
    *,
    trace: TracedSteps | None = None,
    probe: ShadowProbe | None = None,
    fixed: float | None = None,
    stacks: FrameSamples | None = None,
    workers: int | None = None,
    host: tuple[HostSample, ...] | None = None,
    probing: Probing = "on",
    readonly: bool = False,
    steps: int = 60,
    build: Anatomy | None = None,
    job: JobFacts | None = None,
    cores: int | None = 4,
    peaks: MeasuredPeaks | None = None,
    fault_ns: float | None = None,
    **of_trace: Any,
) -> Measurements:
    """Measurements of a job on a quiet machine.

    Args:
        fixed: What a probe of the job has found; else it is `probe`.
        of_trace: How its steps were traced, as for `traced`; else it is `trace`.
    """
    return Measurements(
        pid=PID,
        step_ns=steady(step_ns, steps),
        phases=sampled(step_ns, shares),
        facts=job or facts(),
        anatomy=build or anatomy(workers),
        traced=traced(step_ns, shares, **of_trace) if of_trace else trace,
        probe=probe if fixed is None else probed(step_ns, fixed=fixed),
        frames=stacks,
        host=machine() if host is None else host,
        readonly=readonly,
        probing=probing,
        cores=cores,
        peaks=peaks,
        fault_ns=fault_ns,
    )


def compiled(
    stacks: FrameSamples | None, step_ns: float = 36.0 * MS, waits: float = 0.02, **window: object
) -> Measurements:
    """A compiled job as recorded, whose forward can't be timed: a wide model, AdamW tensor by tensor."""
    compiles = TracedSteps(status="abstained", why="the job runs compiled code")
    phases = {"data_wait": waits, "backward": 0.3 * (1 - waits), "other": 0.7 * (1 - waits)}
    job = measured(step_ns, phases, trace=compiles, stacks=stacks, build=anatomy(compiled=True, tensors=40))
    profiled_ns = 1.05 * step_ns
    recorded = ProfilerWindow(
        status="ok",
        plain_step_ns=[int(step_ns)] * 4,
        profiled_step_ns=[int(profiled_ns)] * 4,
        operators=576.0,
        inside_share=0.86,
        compiled_share=0.61,
        loader_share=0.02,
        graph_kernels=111,
        by_op=[
            WindowOp(op="aten::mm", count=41.0, self_ns=0.54 * profiled_ns),
            WindowOp(op="CompiledFxGraph", count=2.0, self_ns=0.07 * profiled_ns),
            WindowOp(op="aten::sqrt", count=40.0, self_ns=0.06 * profiled_ns),
        ],
    )
    return dataclasses.replace(job, profile=msgspec.structs.replace(recorded, **window))


def compiled_rollout(between: float = 0.85, own: int = 135) -> Measurements:
    """A compiled policy beside an environment in Python: the profiler shows gaps."""
    seen = {"inside_share": 1 - between, "loader_share": 0.0, "operators": 20.0, "by_op": []}
    return compiled(frames(host=own, model=150 - own), 5.0 * MS, waits=0.0, **seen)


def tiny_mlp(host: tuple[HostSample, ...] | None = None) -> Measurements:
    """Kernels of microseconds between operators of microseconds."""
    return measured(kernels=0.25, operations=780, fixed=0.95, host=host, workers=0)


def big_matmul() -> Measurements:
    """Large matrix products and nothing else."""
    return measured(46.0 * MS, kernels=0.95, compute=0.9, operations=60, fixed=0.02)


def optimizer_bound() -> Measurements:
    """AdamW over millions of parameters, a batch of eight: flat in the batch, and not overhead."""
    shares = {"data_wait": 0.0, "forward": 0.07, "backward": 0.13, "optimizer": 0.8, "other": 0.0}
    return measured(20.0 * MS, shares, kernels=0.93, compute=0.08, operations=120, fixed=0.91)


def dense_embedding() -> Measurements:
    """Gradients of a whole embedding table for sixteen samples."""
    shares = {"data_wait": 0.0, "forward": 0.05, "backward": 0.45, "optimizer": 0.5, "other": 0.0}
    return measured(60.0 * MS, shares, kernels=0.8, compute=0.02, operations=90, fixed=0.97)


def lstm() -> Measurements:
    """Half of it fixed, none of it dispatch: small products inside one operator."""
    ops = ("aten.lstm", "aten.mul")
    return measured(12.0 * MS, kernels=0.93, compute=0.85, operations=90, ops=ops, fixed=0.46)


def python_heavy() -> Measurements:
    """Python loops in forward: hardly an operator to count, and nothing that grows."""
    shares = {"data_wait": 0.0, "forward": 0.9, "backward": 0.06, "optimizer": 0.04, "other": 0.0}
    return measured(shares=shares, kernels=0.06, operations=60, fixed=0.99)


def held_stacks(asleep: int = 20, elsewhere: int = 10) -> FrameSamples:
    """120 looks into one function, at two of its lines, and some into forward."""
    places = [
        FrameCount(where=where, phase="backward", in_loader=False, samples=count, stayed=20, asleep=asleep)
        for where, count in (("train.py:31 backward", 90), ("train.py:33 backward", 30))
    ]
    forward = FrameCount(where="train.py:9 forward", phase="forward", in_loader=False, samples=elsewhere)
    return FrameSamples(samples=120 + elsewhere, places=[*places, forward])


def held(operations: int = 60, stacks: FrameSamples | None = None) -> Measurements:
    """A custom backward holds the step; the batch probe refuses it."""
    shares = {"data_wait": 0.0, "forward": 0.02, "backward": 0.97, "optimizer": 0.01, "other": 0.0}
    return measured(
        53.0 * MS,
        shares,
        kernels=0.01,
        operations=operations,
        operations_by_phase={"backward": 0.6 * operations, "forward": 20.0},
        probe=ShadowProbe(status="abstained", why="an autograd function of the job's own"),
        stacks=stacks or held_stacks(),
    )


STARVED = {"data_wait": 0.7, "forward": 0.12, "backward": 0.12, "optimizer": 0.05, "other": 0.01}
HOSTED = {"data_wait": 0.02, "forward": 0.12, "backward": 0.12, "optimizer": 0.05, "other": 0.69}
BLENDED = {"data_wait": 0.02, "forward": 0.36, "backward": 0.4, "optimizer": 0.2, "other": 0.02}


def starved_without_workers() -> Measurements:
    """Batches are made on the training thread."""
    return measured(
        10.0 * MS,
        STARVED,
        kernels={"forward": 0.4, "backward": 0.4, "optimizer": 0.2},
        probe=UNPROBED,
        stacks=frames(loader=105, model=45),
        workers=0,
    )


def starved_with_workers() -> Measurements:
    """Two workers can't keep up; waits come in bursts, so no trace passes."""
    return measured(
        10.0 * MS,
        STARVED,
        wobble=(0.3, 2.0, 0.3, 2.0, 0.3, 2.0),
        probe=UNPROBED,
        stacks=frames(loader=70, model=80, queue_empty_share=0.8),
        workers=2,
    )


def metrics_loop() -> Measurements:
    """The user's own bookkeeping between the steps."""
    inside = {"forward": 0.5, "backward": 0.5, "optimizer": 0.3, "other": 0.02}
    stacks = frames(host=110, model=40)
    return measured(10.0 * MS, HOSTED, kernels=inside, operations=200, probe=UNPROBED, stacks=stacks)


def blend() -> Measurements:
    """A small transformer: a third overhead, the rest in kernels of both kinds."""
    return measured(shares=BLENDED, kernels=0.6, compute=0.5, operations=400, fixed=0.4)


GFLOPS, GBPS = 100.0, 20.0  # of the machine that these jobs run on


def peaks_of_machine(threads: int = 1, waited_share: float | None = 0.0) -> MeasuredPeaks:
    """A machine of 100 GFLOP/s and 20 GB/s."""
    return MeasuredPeaks(
        threads=threads,
        torch="2.13.0",
        matmul_n=512,
        matmul_flops=GFLOPS * 1e9,
        triad_bytes_per_s=GBPS * 1e9,
        measured_at_unix_s=0.0,
        waited_share=waited_share,
    )


def worked(
    op: str,
    share: float,
    step_ns: float,
    *,
    rate: float = 0.0,
    bandwidth: float = 0.0,
    count: float = 2,
    phase: str = "forward",
    dtype: str = "float32",
) -> OpWork:
    """An operator that takes a share of the step, at parts of the machine's FLOP/s and bandwidth."""
    ns = share * step_ns
    return OpWork(
        op=op,
        phase=phase,
        shapes="512x768 768x1024",
        dtype=dtype,
        count=count,
        kernel_ns=ns,
        flops=rate * GFLOPS * ns,
        bytes=bandwidth * GBPS * ns,
    )


def an_op(
    op: str, kernel_ns: float, count: float = 10, *, phase: str = "forward", shapes: str = "64x64 64x64"
) -> OpWork:
    """An operator whose work was not counted."""
    taken = worked(op, 1.0, kernel_ns, count=count, phase=phase)
    return msgspec.structs.replace(taken, shapes=shapes, flops=None, bytes=None)


def kernel_bound(
    *work: OpWork,
    step_ns: float = 20.0 * MS,
    probe: ShadowProbe | None = None,
    peaks: MeasuredPeaks | None = None,
) -> Measurements:
    """A job whose kernels do what is given, and leave the rest of the step idle."""
    kernels = sum(one.kernel_ns for one in work) / step_ns
    shares = {"data_wait": 0.0, "forward": 0.4, "backward": 0.4, "optimizer": 0.2, "other": 0.0}
    return measured(
        step_ns,
        shares,
        kernels=kernels,
        compute=sum(one.kernel_ns for one in work if one.flops) / max(1.0, kernels * step_ns),
        operations=80,
        work=list(work),
        probe=probe,
        peaks=peaks or peaks_of_machine(),
        probing="off",
    )


def replaced(
    measured: Measurements,
    *,
    minor_faults: float | None = None,
    garbage_ns: float | None = None,
    **fields: object,
) -> Measurements:
    """The same measurements with other fields."""
    if measured.phases is not None and (minor_faults is not None or garbage_ns is not None):
        fields["phases"] = dataclasses.replace(
            measured.phases, minor_faults=minor_faults, garbage_ns=garbage_ns
        )
    return dataclasses.replace(measured, **fields)


def products_at_peak() -> Measurements:
    """Matrix products at 80 % of the peak."""
    step_ns = 20.0 * MS
    return kernel_bound(
        worked("aten.addmm.default", 0.85, step_ns, rate=0.8, bandwidth=0.1),
        worked("aten.relu.default", 0.05, step_ns, bandwidth=0.7),
    )


def skinny_products() -> Measurements:
    """Two rows against large weights: the weights' traffic."""
    step_ns = 20.0 * MS
    return kernel_bound(
        worked("aten.mm.default", 0.75, step_ns, rate=0.05, bandwidth=0.8),
        worked("aten.add_.Tensor", 0.15, step_ns, bandwidth=0.8, phase="optimizer"),
    )


def pointwise_chain() -> Measurements:
    """Large tensors through pointwise operators."""
    step_ns = 20.0 * MS
    return kernel_bound(
        worked("aten.mul.Tensor", 0.6, step_ns, bandwidth=0.75),
        worked("aten.native_layer_norm.default", 0.3, step_ns, bandwidth=0.5),
    )


def small_kernels() -> Measurements:
    """Products far too small for the machine, back to back."""
    step_ns = 4.0 * MS
    return kernel_bound(
        worked("aten.mkldnn_rnn_layer.default", 0.7, step_ns, rate=0.12, bandwidth=0.1),
        worked("aten.mul.Tensor", 0.1, step_ns, bandwidth=0.1, count=20),
        step_ns=step_ns,
    )


def crowded_threads(
    threads: int = 8, cores: int = 2, foreign_cores: float = 0.02, bandwidth: float = 0.12
) -> Measurements:
    """Pointwise operators worth 10 us, split over threads that have no CPU each."""
    step_ns = 8.0 * MS
    job = kernel_bound(
        worked("aten.relu.default", 0.5, step_ns, bandwidth=bandwidth, count=60),
        worked(
            "aten.threshold_backward.default", 0.3, step_ns, bandwidth=bandwidth, count=40, phase="backward"
        ),
        step_ns=step_ns,
        peaks=peaks_of_machine(min(threads, cores)),
    )
    trace = msgspec.structs.replace(job.traced, run_delay_share=0.25, foreign_cores=foreign_cores)
    host = machine(run_delay_share=0.28, foreign_cores=foreign_cores)
    return replaced(job, traced=trace, host=host, facts=facts(threads=threads), cores=cores)


def hand_parallel(
    called: float = 0.6, blocked: float = 0.62, own: float = 0.05, waits: bool = True
) -> Measurements:
    """A rank whose loop averages gradients by `dist.all_reduce`, between backward and optimizer.

    Args:
        called: Share of the step in these calls.
        own: Share of the step in code of the loop's own, also between the phases.
        waits: Collectives were timed.
    """
    step_ns = 20.0 * MS
    rest = 1 - called - own
    shares = {"data_wait": 0.0, "forward": 0.4 * rest, "backward": 0.5 * rest, "optimizer": 0.1 * rest}
    shares["other"] = called + own
    inside = {"forward": 0.8, "backward": 0.8, "optimizer": 0.5}
    timed = CollectiveWaits(
        status="ok",
        step_ns=[int(step_ns * factor) for factor in WOBBLE],
        exposed_ns=[int(step_ns * called * factor) for factor in WOBBLE],
        blocked_ns=[int(step_ns * blocked * factor) for factor in WOBBLE],
        calls=8.0,
        called_ns=[int(step_ns * called * factor) for factor in WOBBLE],
        called_by_phase_ns={"other": step_ns * called},
    )
    share = int(100 * called)
    average = FrameCount(where="train.py:41 average", phase="other", in_loader=False, samples=share)
    places = [
        msgspec.structs.replace(average, in_collective=True),
        FrameCount(where="model.py:12 forward", phase="forward", in_loader=False, samples=100 - share),
    ]
    return dataclasses.replace(
        measured(
            step_ns,
            shares,
            kernels=inside,
            operations=120,
            stacks=FrameSamples(samples=100, places=places),
            job=facts(rank=0, world_size=2),
        ),
        collectives=timed if waits else None,
    )


def waiting_rank(exposed: float = 0.65, blocked: float = 0.66) -> Measurements:
    """One of several ranks, whose backward waits for the slowest one's gradients."""
    step_ns = 20.0 * MS
    shares = {"data_wait": 0.0, "forward": 0.12, "backward": 0.8, "optimizer": 0.06, "other": 0.02}
    inside = {"forward": 0.8, "backward": 0.15, "optimizer": 0.5}
    waits = CollectiveWaits(
        status="ok",
        step_ns=[int(step_ns * factor) for factor in WOBBLE],
        exposed_ns=[int(step_ns * exposed * factor) for factor in WOBBLE],
        blocked_ns=[int(step_ns * blocked * factor) for factor in WOBBLE],
    )
    return dataclasses.replace(
        measured(
            step_ns,
            shares,
            kernels=inside,
            operations=120,
            job=facts(rank=0, world_size=2),
            build=anatomy(roots=["DistributedDataParallel"]),
        ),
        collectives=waits,
    )
