"""The data that passes between rooms, and out of the program as JSON.

msgspec structs, frozen. Field names are the JSON names (`class_` is written `class`); `None` is
"not measured". Times are integer nanoseconds, shares are 0-1.
"""

from autobrrr.records.agent_records import (
    AgentCost,
    Anatomy,
    BatchMemory,
    Census,
    CodeSite,
    CollectiveWaits,
    DeviceAllocator,
    FrameCount,
    FrameSamples,
    HostHold,
    HostSlack,
    JobFacts,
    OpTime,
    OpWork,
    ProfilerWindow,
    SettingFact,
    ShadowPoint,
    ShadowProbe,
    TracedSteps,
    WindowGaps,
    WindowOp,
)
from autobrrr.records.machine_records import DoctorCheck, JobLine
from autobrrr.records.rank_records import LateCause, LateRank, NoneLate, RankLine, RanksCompared, RankTimes
from autobrrr.records.record_base import (
    SCHEMA,
    AttachMethod,
    Confidence,
    ExactnessClass,
    Limit,
    Reach,
    Record,
    Regime,
    to_json,
)
from autobrrr.records.session_records import (
    Attach,
    BatchPoint,
    BatchProbe,
    Cost,
    CpuTaker,
    Diagnosis,
    GpuSample,
    HostSample,
    Phases,
    SizePoint,
    SizeSweep,
    StepStats,
)
from autobrrr.records.tuning_records import NoClaim, Reverted, Trial, TuneProgress, Tuning
from autobrrr.records.verdict_records import (
    EXACT,
    LIMIT_OF_REGIME,
    NAMES_NOBODY,
    Advice,
    Evidence,
    LedgerRow,
    MemoryPart,
    Shares,
    Trend,
    Verdict,
    Where,
    from_registry,
    how_sure,
    limit_words,
    limited_by,
    verdict_head,
    verdict_line,
)
