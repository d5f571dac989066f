"""Hypothesis strategies: measurements that are absurd, and measurements of any possible job."""

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import strategies as st

from autobrrr.diagnosis.measurements import Measurements, phase_figures
from autobrrr.readable import spoken
from autobrrr.records import FrameSamples, GpuSample, HostSample, SettingFact, ShadowProbe, TracedSteps
from autobrrr.roofline.quick_peaks import MeasuredPeaks
from support.judged import diagnosis

NUMBER = st.integers(min_value=-(2**62), max_value=2**62) | st.integers(min_value=-2, max_value=2)
REAL = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -1.0, 1e300, -1e300])
PHASE = st.sampled_from(["data_wait", "host_to_device", "forward", "backward", "optimizer", "other", "lunch"])
# What a field of this name holds in place of anything of its type: more often something with a meaning.
WORDS: dict[str, st.SearchStrategy[object]] = {
    "phase": PHASE,
    "op": st.text(max_size=12) | st.sampled_from(["aten.mm.default", "aten.addmm.default"]),
    "shapes": st.text(max_size=12) | st.sampled_from(["2x3 3x4", "8 2x3 3x4", "0x0 0x0"]),
    "dtype": st.sampled_from(["float32", "float64", "bfloat16", ""]),
    "does": st.sampled_from(["", "sampler", "worker start", "waits for workers", "loads", "lunch"]),
    "what": st.sampled_from(["calls collect", "calls save", "updates", "calls isnan"]),
    "name": st.sampled_from(["anomaly", "float64", "denormals", "unused_rows", "recompiles", "lunch"]),
    "batch": st.integers(-4, 128),
}
PLAIN: dict[object, st.SearchStrategy[object]] = {
    int: NUMBER, float: REAL, str: st.text(max_size=8).map(spoken), bool: st.booleans(), NoneType: st.none(),
}  # fmt: skip


@cache
def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Anything of a type; of a record, whatever its fields may hold."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return any_of(args[0])
    if origin in (Union, UnionType):
        return st.one_of(*(any_of(each) for each in args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is list:
        return st.lists(any_of(args[0]), max_size=8 if args[0] in PLAIN else 2)
    if origin is tuple:
        return st.tuples(*(any_of(each) for each in args))
    if origin is dict:
        return st.dictionaries(PHASE, any_of(args[1]), max_size=6)
    if kind in PLAIN:
        return PLAIN[kind]
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: _field(name, each) for name, each in hints.items()})


def _field(name: str, kind: Any) -> st.SearchStrategy[Any]:
    if name not in WORDS or get_origin(kind) is Literal:
        return any_of(kind)
    return st.none() | WORDS[name] if NoneType in get_args(kind) else WORDS[name]


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
        traced=draw(st.none() | any_of(TracedSteps)),
        probe=draw(st.none() | any_of(ShadowProbe)),
        frames=draw(st.none() | any_of(FrameSamples)),
        host=tuple(draw(any_of(list[HostSample]))),
        settings=tuple(draw(any_of(list[SettingFact]))),
        gpu=tuple(draw(any_of(list[GpuSample]))),
        readonly=draw(st.booleans()),
        outside=draw(st.booleans()),
        probing=draw(st.sampled_from(["on", "off"])),
        cores=draw(st.none() | NUMBER),
        peaks=draw(st.none() | any_of(MeasuredPeaks) | st.just(diagnosis.peaks_of_machine())),
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
    probe = diagnosis.probed(step_ns, fixed=draw(UNIT), noise=draw(st.sampled_from([0.01, 0.01, 0.4])))
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
