"""What `prove` found: how fast, whether the same, and whether the same work was done."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from autobrrr.records.record_base import SCHEMA, ExactnessClass, Record, TwoNumbers


class WorkRefusal(str, enum.Enum):
    """Why two runs can't be compared: they don't do the same work, or the question is too fine."""

    FEWER_STEPS = "fewer_steps"  # it ends after fewer steps
    SKIPPED_BACKWARD = "skipped_backward"  # steps without, or with fewer, backward calls
    SKIPPED_UPDATES = "skipped_updates"  # more samples go into one update
    DROPPED_SAMPLES = "dropped_samples"  # its dataset, or its batch, is smaller
    REPEATED_SAMPLES = "repeated_samples"  # samples come more than once
    CACHED_BATCH = "cached_batch"  # one batch is trained on again and again
    SHORTER_SEQUENCES = "shorter_sequences"
    FROZEN_LAYERS = "frozen_layers"  # fewer parameters are updated
    LOWER_PRECISION = "lower_precision"  # large products of shorter numbers
    LESS_EVALUATION = "less_evaluation"
    FEWER_CHECKPOINTS = "fewer_checkpoints"
    OTHER_SEED = "other_seed"
    OTHER_STREAM = "other_stream"  # batches come otherwise from the same seed; --allow stream accepts it
    FEWER_OPERATIONS = "fewer_operations"  # fewer FLOPs a sample, with other results
    CHANGES_TRAINING = "changes_training"  # other numbers; --allow changes-training accepts it
    GATE_TOO_FINE = "gate_too_fine"  # the gate can't be told from noise in the time given


ProofVerdict = Literal["proven", "not_slower", "not_proven", "refused"]


class RefusedWork(Record, frozen=True, kw_only=True):
    code: WorkRefusal
    why: str  # one sentence with figures


class WorkDone(Record, frozen=True, kw_only=True):
    """What one side did, counted from inside the process. A mean is over the steps that both sides did."""

    steps: int  # that were counted
    ended: bool  # it came to its own end within the time of the audit
    samples_per_step: float | None
    tokens_per_step: float | None  # with padding
    backwards_per_step: float
    updates_per_step: float  # calls of optimizers
    updated_share: float | None  # of all parameters, the smallest of any step
    flops_per_step: float | None  # of products, convolutions and attention
    dtypes: dict[str, float]  # share of those FLOPs by the numbers that they are made of
    distinct_share: float | None  # of samples that were read; 1: none came twice
    dataset_samples: int | None
    evaluated: int  # samples that were evaluated on
    checkpoints: int
    seeds: list[str]


class ProofWork(Record, frozen=True, kw_only=True):
    before: WorkDone
    after: WorkDone


class Sameness(Record, frozen=True, kw_only=True):
    """Where two runs from one seed part."""

    class_: ExactnessClass | None = msgspec.field(name="class")
    deterministic: bool  # two runs of `before` are the same, bit by bit
    compared_steps: int
    step: int | None  # the first that differs, from 0
    what: Literal["batch", "output", "loss", "gradient", "parameters"] | None  # that differs there first
    module: str | None  # path of the first module whose output differs
    place: str | None  # file and line of its call
    loss_distance: float | None  # relative, at the last step that was compared
    before_distance: float | None  # the same of two runs of `before`


class ProofSpeed(Record, frozen=True, kw_only=True):
    """Useful work a second, `after` against `before`."""

    ratio: float
    interval: TwoNumbers
    whole_ratio: float  # by all steps and all time, rare long steps at their full length
    noise: float  # half of the interval of A/A turns of `before`, as a share
    starts: int
    pairs: int
    clock: Literal["host", "device"]
    step_ns: list[float | None]  # typical step of before, and of after


class SlowerCause(Record, frozen=True, kw_only=True):
    """Where `after` loses its time."""

    phase: str  # the one that has become longer by most: see phases_ns of diagnose
    phases_ns: dict[str, TwoNumbers]  # of one step: before, and after
    place: str | None  # file, line and function of `after` where its steps stand longer
    place_ns: float | None  # by so much a step


class PackageChange(Record, frozen=True, kw_only=True):
    """A package that the environments of both sides do not have alike; None: it is not there."""

    name: str
    before: str | None
    after: str | None


class Proof(Record, frozen=True, kw_only=True):
    """`prove --json`."""

    schema: int = SCHEMA
    verdict: ProofVerdict
    reason: str  # one sentence with figures
    refusals: list[RefusedWork]
    speed: ProofSpeed | None
    slower: SlowerCause | None  # where its steps are slower, and it could be told why
    sameness: Sameness | None
    work: ProofWork | None
    gate: float | None  # the slowdown that may be, as a share
    needed_ns: int | None  # where the gate is too fine: time that would do
    before: str  # the command
    after: str
    elapsed_ns: int
    packages: list[PackageChange] = []  # that differ, with --env
    names: list[str] = []  # of before and after, where their commands are the same
