"""Whatever the job: shares make one, and no regime is named that two signals do not carry."""

from dataclasses import replace

import msgspec
from hypothesis import HealthCheck, assume, given, settings

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.leading import measured_shares
from autobrrr.diagnosis.signals.signal_table import read_all
from autobrrr.diagnosis.verdict.judge import Judgement, judge
from autobrrr.records import ShadowProbe, TracedSteps, to_json
from support.judged.diagnosis_any import absurd, any_of, nearly_overhead, possible

# On purpose not read from the table: what the design allows in this version.
ALLOWED = {
    "overhead": [{"traced_steps", "batch_probe"}, {"traced_steps", "op_cost"}],
    "input": [{"loader_wait", "loader_queue"}, {"loader_wait", "loader_frames"}],
    "host": [{"host_time", "host_frames"}, {"profiler_window", "host_frames"}],
}
LOOK = settings(suppress_health_check=list(HealthCheck))


def assert_right_or_silent(judgement: Judgement, measured: Measurements | None = None) -> None:
    verdict = judgement.verdict
    said = {one.signal for one in verdict.evidence if one.says == verdict.regime}
    if verdict.provisional and measured is not None:
        assert verdict.confidence == "low"
        said = said_as_if_quiet(measured, verdict.regime)
    if verdict.regime in ("mixed", "unknown"):
        assert verdict.confidence == "low"
        assert verdict.decide_with
        assert str(judgement.verdict.decide_with).startswith("autobrrr ")
    else:
        assert any(pair <= said for pair in ALLOWED[verdict.regime])
        assert not [one for one in verdict.evidence if verdict.regime in one.against]
        assert getattr(verdict.shares, verdict.regime) >= thresholds.NAMED_AT
    assert not verdict.reason.startswith(verdict.regime), "the regime stands before it wherever it is shown"
    assert "\n" not in verdict.reason
    present = measured_shares(verdict.shares)
    assert all(0 <= share <= 1 for share in present.values())
    if present:
        assert abs(sum(present.values()) - 1) < 1e-9
    assert all(one.expected is None or 1 <= one.expected <= 100 for one in verdict.advice)


def said_as_if_quiet(measured: Measurements, regime: str) -> set[str]:
    """What carries a provisional verdict: what the trace would say had no one else taken the CPU."""
    traced = msgspec.structs.replace(measured.traced, run_delay_share=0.0)
    return {name for name, one in read_all(replace(measured, traced=traced)).items() if one.says == regime}


@LOOK
@given(measured=absurd())
def test_absurd_measurements_are_judged_without_an_exception(measured: Measurements) -> None:
    assert_right_or_silent(judge(measured), measured)


@LOOK
@given(measured=possible())
def test_any_possible_job_is_named_by_two_signals_or_not_at_all(measured: Measurements) -> None:
    judgement = judge(measured)
    assert_right_or_silent(judgement, measured)
    assert msgspec.json.decode(to_json(judgement.verdict))["regime"] == judgement.verdict.regime


@LOOK
@given(measured=possible(trace=False))
def test_doubling_the_batch_alone_never_names_overhead(measured: Measurements) -> None:
    assume(measured.traced is None)
    assert judge(measured).verdict.regime != "overhead"


@LOOK
@given(probe=any_of(ShadowProbe))
def test_a_probe_alone_names_nothing_at_all(probe) -> None:
    found = judge(Measurements(pid=1, probe=probe)).verdict
    assert found.regime == "unknown"
    refused = TracedSteps(status="abstained", why="compiled")
    assert judge(Measurements(pid=1, probe=probe, traced=refused)).verdict.regime == "unknown"


@LOOK
@given(measured=nearly_overhead())
def test_overhead_is_named_only_where_kernels_leave_half_of_the_step(measured: Measurements) -> None:
    traced = measured.traced
    plain, kernel = traced.plain_by_phase_ns, traced.kernel_by_phase_ns
    idle = sum(plain[name] - kernel[name] for name in ("forward", "backward", "optimizer"))
    quiet = (traced.run_delay_share or 0) < thresholds.BUSY_AT
    found = judge(measured).verdict
    assert quiet or found.regime != "overhead" or found.provisional
    if found.provisional and found.regime == "overhead":  # all of the delay may have been idle time
        delay = traced.run_delay_share or 0
        assert (idle / sum(plain.values()) - delay) / (1 - delay) >= thresholds.NAMED_AT
    if found.regime == "overhead":
        assert idle / sum(plain.values()) >= thresholds.NAMED_AT - 0.02
    elif quiet and measured.probe is not None:
        fixed = read_all(measured)["batch_probe"].value
        assert fixed is not None
        assert idle / sum(plain.values()) < 0.66 or fixed < thresholds.NAMED_AT
