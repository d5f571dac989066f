"""The data that passes between rooms, and out of the program as JSON.

msgspec structs, frozen. Field names are the JSON names (`class_` is written `class`); `None` is
"not measured". Times are integer nanoseconds, shares are 0-1.
"""

from autobrrr.records.agent import (
    AgentCost,
    Anatomy,
    CodeSite,
    FrameCount,
    FrameSamples,
    JobFacts,
    OpTime,
    OpWork,
    ProfilerWindow,
    ShadowPoint,
    ShadowProbe,
    TracedSteps,
    WindowGaps,
    WindowOp,
)
from autobrrr.records.base import (
    SCHEMA,
    AttachMethod,
    Confidence,
    ExactnessClass,
    Reach,
    Record,
    Regime,
    to_json,
)
from autobrrr.records.machine import Check, JobLine
from autobrrr.records.session import (
    Attach,
    BatchPoint,
    BatchProbe,
    Cost,
    Diagnosis,
    GpuSample,
    HostSample,
    Phases,
    StepStats,
)
from autobrrr.records.tuning import Reverted, Trial, TuneProgress, Tuning
from autobrrr.records.verdict import Advice, Evidence, Shares, Verdict

__all__ = [
    "Advice",
    "AgentCost",
    "Anatomy",
    "Attach",
    "AttachMethod",
    "BatchPoint",
    "BatchProbe",
    "Check",
    "CodeSite",
    "Confidence",
    "Cost",
    "Diagnosis",
    "Evidence",
    "ExactnessClass",
    "FrameCount",
    "FrameSamples",
    "GpuSample",
    "HostSample",
    "JobFacts",
    "JobLine",
    "OpTime",
    "OpWork",
    "Phases",
    "ProfilerWindow",
    "Reach",
    "Record",
    "Regime",
    "Reverted",
    "SCHEMA",
    "ShadowPoint",
    "ShadowProbe",
    "Shares",
    "StepStats",
    "TracedSteps",
    "Trial",
    "TuneProgress",
    "Tuning",
    "Verdict",
    "WindowGaps",
    "WindowOp",
    "to_json",
]
