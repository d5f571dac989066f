"""Every signal keeps the same promises: well-formed, silent without data, and never an exception."""

import math
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings

from autobrrr.diagnosis.glossary import EXPLANATIONS
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals.signal_table import SIGNALS
from autobrrr.diagnosis.verdict.agreement import AGREEMENT
from autobrrr.records import FrameSamples, Regime, ShadowProbe, TracedSteps
from support.judged import diagnosis, diagnosis_any

KINDS = (
    diagnosis.tiny_mlp,
    diagnosis.big_matmul,
    diagnosis.optimizer_bound,
    diagnosis.lstm,
    diagnosis.python_heavy,
    diagnosis.held,
    diagnosis.starved_without_workers,
    diagnosis.starved_with_workers,
    diagnosis.metrics_loop,
    diagnosis.compiled_rollout,
    diagnosis.blend,
    diagnosis.products_at_peak,
    diagnosis.skinny_products,
    diagnosis.pointwise_chain,
    diagnosis.small_kernels,
    diagnosis.crowded_threads,
    diagnosis.waiting_rank,
    diagnosis.hand_parallel,
)
NAMES = sorted(SIGNALS)


def assert_well_formed(name: str, reading: Reading) -> None:
    assert reading.signal == name
    assert reading.note
    assert reading.unit.startswith("share of ")
    assert reading.value is None or (math.isfinite(reading.value) and 0 <= reading.value <= 1)
    assert reading.says is None or reading.says in get_args(Regime)
    assert reading.says not in reading.against
    assert not (reading.says and (reading.abstained or reading.value is None))
    assert not (reading.abstained and (reading.against or reading.firm))
    assert reading.evidence().signal == name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_signal_gives_well_formed_evidence_on_a_kind_of_job(kind) -> None:
    measured = kind()
    for name in NAMES:
        assert_well_formed(name, SIGNALS[name](measured))


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_abstains_with_a_reason_where_nothing_was_measured(name: str) -> None:
    reading = SIGNALS[name](Measurements(pid=diagnosis.PID))
    assert reading.abstained
    assert reading.note.startswith("not available: ")
    assert len(reading.note) > len("not available: ") + 10


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_abstains_where_the_agent_did(name: str) -> None:
    measured = Measurements(
        pid=diagnosis.PID,
        traced=TracedSteps(status="abstained", why="the job runs compiled code"),
        probe=ShadowProbe(status="abstained", why="forward is not repeatable"),
        frames=FrameSamples(samples=0, places=[]),
    )
    reading = SIGNALS[name](measured)
    assert reading.abstained
    if name == "traced_steps":
        assert "compiled" in reading.note
    if name == "batch_probe":
        assert "not repeatable" in reading.note


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(measured=diagnosis_any.absurd())
def test_a_signal_never_fails_on_absurd_values(measured: Measurements) -> None:
    for name, signal in SIGNALS.items():
        assert_well_formed(name, signal(measured))


def test_every_signal_is_explained_and_in_the_table_of_agreement_or_names_nothing() -> None:
    paired = {signal for pair in AGREEMENT for signal in (pair.first, pair.second)}
    assert paired <= set(SIGNALS)
    for name, signal in SIGNALS.items():
        assert EXPLANATIONS[name].kind == "signal"
        speaks = any(signal(kind()).says is not None for kind in KINDS)
        hint = (
            "it stands in AGREEMENT: add a job that makes it speak to support/judged/diagnosis.py and KINDS"
        )
        assert speaks == (name in paired), f"{name}: {hint if name in paired else 'no pair has it'}"
