"""Hypothesis strategies: measurements that are absurd, and measurements of any possible job."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from autobrrr.diagnosis.measurements import Measurements, phase_figures
from autobrrr.records import (
    CodeSite,
    FrameCount,
    FrameSamples,
    GpuSample,
    HostSample,
    OpTime,
    OpWork,
    SettingFact,
    ShadowPoint,
    ShadowProbe,
    TracedSteps,
)
from autobrrr.roofline.quick_peaks import MeasuredPeaks
from support.judged import diagnosis

NUMBER = st.integers(min_value=-(2**62), max_value=2**62) | st.integers(min_value=-2, max_value=2)
REAL = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -1.0, 1e300, -1e300])
STATUS = st.sampled_from(["ok", "ok", "ok", "abstained"])
PHASE = st.sampled_from(["data_wait", "host_to_device", "forward", "backward", "optimizer", "other", "lunch"])
NUMBERS = st.lists(NUMBER, max_size=8)
BY_PHASE = st.dictionaries(PHASE, REAL, max_size=6)

ABSURD_TRACES = st.builds(
    TracedSteps,
    status=STATUS,
    kernel_ns=NUMBERS,
    traced_step_ns=NUMBERS,
    plain_step_ns=NUMBERS,
    operations=NUMBERS,
    kernel_by_phase_ns=BY_PHASE,
    plain_by_phase_ns=BY_PHASE,
    operations_by_phase=BY_PHASE,
    by_op=st.lists(st.builds(OpTime, op=st.text(max_size=12), count=REAL, kernel_ns=REAL), max_size=4),
    work=st.lists(
        st.builds(
            OpWork,
            op=st.text(max_size=12) | st.sampled_from(["aten.mm.default", "aten.addmm.default"]),
            phase=PHASE,
            shapes=st.text(max_size=12) | st.sampled_from(["2x3 3x4", "8 2x3 3x4", "0x0 0x0"]),
            dtype=st.sampled_from(["float32", "float64", "bfloat16", ""]),
            count=REAL,
            kernel_ns=REAL,
            flops=st.none() | REAL,
            bytes=st.none() | REAL,
        ),
        max_size=4,
    ),
    op_cost_ns=st.none() | NUMBER,
    run_delay_share=st.none() | REAL,
)
ABSURD_PROBES = st.builds(
    ShadowProbe,
    status=STATUS,
    batch=st.none() | st.integers(-4, 64),
    points=st.lists(
        st.builds(ShadowPoint, batch=st.integers(-4, 128), shadow_ns=NUMBERS),
        max_size=6,
    ),
)
ABSURD_FRAMES = st.builds(
    FrameSamples,
    samples=NUMBER,
    places=st.lists(
        st.builds(
            FrameCount,
            where=st.text(max_size=8),
            phase=st.sampled_from(["data_wait", "forward", "backward", "optimizer", "other"]),
            in_loader=st.booleans(),
            in_feed=st.booleans(),
            in_between=NUMBER,
            samples=NUMBER,
            own=st.booleans(),
            does=st.sampled_from(["", "sampler", "worker start", "waits for workers", "loads", "lunch"]),
            ns=NUMBER,
            long_ns=NUMBER,
        ),
        max_size=4,
    ),
    ns=NUMBER,
    workers=st.lists(st.tuples(st.text(max_size=8), NUMBER), max_size=3),
    worker_looks=NUMBER,
    code=st.lists(
        st.builds(
            CodeSite,
            what=st.sampled_from(["collects", "saves", "updates", "guards"]),
            where=st.text(max_size=8),
            samples=NUMBER,
        ),
        max_size=3,
    ),
    queue_empty_share=st.none() | REAL,
)
ABSURD_SETTINGS = st.lists(
    st.builds(
        SettingFact,
        name=st.sampled_from(["anomaly", "float64", "denormals", "unused_rows", "recompiles", "lunch"]),
        value=REAL,
        detail=st.text(max_size=8),
    ),
    max_size=4,
)
ABSURD_PEAKS = st.builds(
    MeasuredPeaks,
    threads=NUMBER,
    torch=st.just("2.13.0"),
    matmul_n=NUMBER,
    matmul_flops=REAL,
    triad_bytes_per_s=REAL,
    measured_at_unix_s=st.just(0.0),
    waited_share=st.none() | REAL,
)
ABSURD_HOST = st.lists(
    st.builds(
        HostSample,
        t_ns=NUMBER,
        cpu_share=st.none(),
        rss_bytes=st.none(),
        threads=st.none(),
        run_delay_share=st.none() | REAL,
        steal_share=st.none() | REAL,
        children_cpu_share=st.none() | REAL,
        throttled_share=st.none() | REAL,
    ),
    max_size=4,
).map(tuple)

ABSURD_GPU = st.lists(
    st.builds(
        GpuSample,
        t_ns=NUMBER,
        gpu_util_share=st.none() | REAL,
        sm_active_share=st.none() | REAL,
        sm_clock_mhz=st.none() | NUMBER,
        sm_clock_max_mhz=st.none() | NUMBER,
        throttled_by=st.none() | st.lists(st.text(max_size=4), max_size=3),
        other_processes=st.none() | NUMBER,
    ),
    max_size=4,
).map(tuple)


@st.composite
def absurd(draw: st.DrawFn) -> Measurements:
    """Records of the right types with any values."""
    steps = draw(st.lists(NUMBER, max_size=8))
    columns = {
        f"{draw(PHASE)}_ns": np.array(
            draw(st.lists(NUMBER, min_size=len(steps), max_size=len(steps))), np.int64
        )
        for _ in range(draw(st.integers(0, 5)))
    }
    durations = np.array(steps, np.int64)
    return Measurements(
        pid=diagnosis.PID,
        step_ns=durations,
        phases=draw(st.none() | st.just(phase_figures(durations, columns))),
        facts=draw(st.none() | st.builds(diagnosis.facts, threads=NUMBER, cuda=st.booleans())),
        anatomy=draw(st.none() | st.builds(diagnosis.anatomy, workers=st.none() | NUMBER, tensors=NUMBER)),
        traced=draw(st.none() | ABSURD_TRACES),
        probe=draw(st.none() | ABSURD_PROBES),
        frames=draw(st.none() | ABSURD_FRAMES),
        host=draw(ABSURD_HOST),
        settings=tuple(draw(ABSURD_SETTINGS)),
        gpu=draw(ABSURD_GPU),
        readonly=draw(st.booleans()),
        outside=draw(st.booleans()),
        probing=draw(st.sampled_from(["on", "off"])),
        cores=draw(st.none() | NUMBER),
        peaks=draw(st.none() | ABSURD_PEAKS | st.just(diagnosis.peaks_of_machine())),
        fault_ns=draw(st.none() | REAL),
    )


UNIT = st.floats(0, 1)


@st.composite
def possible(draw: st.DrawFn, trace: bool = True) -> Measurements:
    """A job that could be: any division of its step, any probe, any stacks, any machine."""
    weights = [draw(st.integers(0, 20)) for _ in diagnosis.PHASE_SHARES]
    total = sum(weights) or 1
    shares = {name: weight / total for name, weight in zip(diagnosis.PHASE_SHARES, weights, strict=True)}
    step_ns = draw(st.sampled_from([0.3, 2.6, 46.0])) * diagnosis.MS
    traced = diagnosis.traced(
        step_ns,
        shares,
        kernels={name: draw(UNIT) for name in shares},
        compute=draw(UNIT),
        operations=draw(st.integers(1, 2_000)),
        run_delay_share=draw(st.sampled_from([0.0, 0.0, 0.05, 0.3])),
    )
    probe = diagnosis.probed(
        step_ns,
        fixed=draw(UNIT),
        noise=draw(st.sampled_from([0.01, 0.01, 0.4])),
    )
    stacks = diagnosis.frames(
        loader=draw(st.integers(0, 100)),
        host=draw(st.integers(0, 100)),
        model=draw(st.integers(0, 100)),
        queue_empty_share=draw(st.none() | UNIT),
    )
    return diagnosis.measured(
        step_ns,
        shares,
        trace=traced if trace and draw(st.booleans()) else None,
        probe=draw(st.none() | st.just(probe)),
        stacks=draw(st.none() | st.just(stacks)),
        workers=draw(st.sampled_from([None, 0, 2])),
        host=diagnosis.machine(draw(st.sampled_from([0.0, 0.0, 0.05, 0.15, 0.4]))),
        probing=draw(st.sampled_from(["on", "off"])),
        steps=draw(st.sampled_from([4, 60])),
    )


@st.composite
def nearly_overhead(draw: st.DrawFn) -> Measurements:
    """A job on either side of the limits of overhead, on a quiet machine."""
    kernels = st.floats(0.0, 0.7)
    trace = diagnosis.traced(
        kernels={name: draw(kernels) for name in diagnosis.PHASE_SHARES},
        operations=draw(st.integers(300, 1_200)),
        run_delay_share=draw(st.sampled_from([0.0, 0.05, 0.12])),
    )
    probe = diagnosis.probed(fixed=draw(st.floats(0.3, 1.0)))
    return diagnosis.measured(trace=trace, probe=draw(st.none() | st.just(probe)))
