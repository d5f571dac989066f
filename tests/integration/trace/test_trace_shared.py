"""Real GPU traces of public projects: every figure equals that of the slow, independent program."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autobrrr.records import NAMES_NOBODY
from autobrrr.trace.causes.host_causes import CAUSES
from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.trace_analysis import analyse
from autobrrr.trace.trace_records import DeviceAnalysis, TraceAnalysis
from support.training import ran

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces"
REFERENCE = FOLDER / "reference.json"
if not REFERENCE.exists():
    pytest.skip(f"the shared traces are not at {FOLDER}", allow_module_level=True)

LIMITS: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "trace_limits.json").read_text()
)
Figures = Mapping[str, Mapping[str, object]]
EXPECTED: dict[str, dict[str, object]] = json.loads(REFERENCE.read_text())
TIMES = {
    "span_us": lambda device: device.span_ns,
    "busy_us": lambda device: device.busy_ns,
    "idle_us": lambda device: device.idle_ns,
    "host_late_us": lambda device: device.idle.host_late_ns,
    "in_launch_us": lambda device: device.idle.in_launch_ns,
    "after_launch_us": lambda device: device.idle.after_launch_ns,
    "unmatched_us": lambda device: device.idle.unmatched_ns,
    "compute_us": lambda device: device.compute_ns,
    "comm_us": lambda device: device.communication_ns,
    "exposed_comm_us": lambda device: device.exposed_communication_ns,
    "memcpy_us": lambda device: device.memcpy_ns,
    "memset_us": lambda device: device.memset_ns,
}
COUNTS = {
    "n_gpu_events": lambda device: device.gpu_events,
    "n_kernels": lambda device: device.kernel_count,
    "n_memcpy": lambda device: device.memcpy_count,
    "n_memset": lambda device: device.memset_count,
    "n_launches": lambda device: device.launches,
    "n_streams": lambda device: device.streams,
    "n_gaps": lambda device: device.gaps,
}
ANOMALIES = {
    "n_no_dur": "no_duration",
    "n_negative_dur": "negative_duration",
    "n_zero_dur": "zero_duration",
    "n_no_correlation": "no_correlation",
    "n_unmatched_ops": "unmatched",
    "n_launch_after_start": "launched_after_start",
    "n_same_stream_overlap": "overlap_on_one_stream",
}
_seen: dict[str, TraceAnalysis] = {}


def analysed(name: str) -> TraceAnalysis:
    if name not in _seen:
        _seen[name] = analyse([TraceFile(name=name, path=FOLDER / name)]).traces[0]
    return _seen[name]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_figure_equals_the_reference_to_the_nanosecond(name: str) -> None:
    found, expected = analysed(name), EXPECTED[name]
    assert found.events == expected["n_events"]
    assert found.json_bytes == expected["uncompressed_bytes"]
    devices = expected["devices"]
    assert isinstance(devices, dict)
    assert {str(device.device) for device in found.devices} == set(devices)
    for device in found.devices:
        wanted = devices[str(device.device)]
        assert {key: of(device) for key, of in TIMES.items()} == {
            key: round(wanted[key] * 1000) for key in TIMES
        }
        assert {key: of(device) for key, of in COUNTS.items()} == {key: wanted[key] for key in COUNTS}
        assert {key: device.anomalies[mine] for key, mine in ANOMALIES.items()} == wanted["anomalies"]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_parts_sum_and_nearly_all_kernel_time_has_a_class(name: str) -> None:
    for device in analysed(name).devices:
        assert sum(device.host_late_by_cause_ns.values()) == device.idle.host_late_ns
        assert tuple(device.host_late_by_cause_ns) == CAUSES
        clock = device.idle_clock_corrected
        if clock is not None:
            idle = clock.idle
            parts = idle.host_late_ns + idle.in_launch_ns + idle.after_launch_ns + idle.unmatched_ns
            assert parts == device.idle_ns
            assert sum(clock.host_late_by_cause_ns.values()) == idle.host_late_ns
        other = device.kernels.get("other")
        total = sum(each.ns for each in device.kernels.values())
        assert other is None or other.ns <= 0.005 * total
        assert sum(each.count for each in device.kernels.values()) == device.kernel_count


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_steps_equal_the_reference(name: str) -> None:
    steps = [step for step in analysed(name).steps if step.source == "profiler"]
    expected = EXPECTED[name]["steps"]
    if expected is None:
        assert steps == []
        return
    assert isinstance(expected, dict)
    lengths = sorted(step.duration_ns for step in steps)
    middle = len(lengths) // 2
    median = lengths[middle] if len(lengths) % 2 else (lengths[middle - 1] + lengths[middle]) / 2
    assert len(steps) == expected["count"]
    assert abs(median - expected["median_us"] * 1000) <= 0.5  # the reference rounds to whole nanoseconds


def only(name: str) -> DeviceAnalysis:
    return analysed(name).devices[0]


def test_more_loader_workers_take_the_input_stall_away() -> None:
    few, many = (
        only("kineto-resnet50/workers0_1623143089861.json.gz"),
        only("kineto-resnet50/workers4_1623212756351.json.gz"),
    )
    assert (few.shares.input or 0) > 0.25
    assert (many.shares.input or 0) < 0.05


def test_the_batch_series_turns_from_overhead_to_a_busy_device() -> None:
    small = only("particle-transformer/forward_bs002.json.gz")
    middle = only("particle-transformer/forward_bs032.json.gz")
    large = only("particle-transformer/forward_bs128.json.gz")
    assert small.regime == middle.regime == "overhead"
    assert large.regime != "overhead"
    assert (large.shares.overhead or 0) < 0.2


def test_two_late_ranks_of_eight_are_named() -> None:
    folder = FOLDER / "astra-sim-megatron-tp8"
    sources = [TraceFile(name=path.name, path=path) for path in sorted(folder.glob("rank*.json.gz"))]
    found = analyse(sources)
    late = sorted(found.ranks.ranks, key=lambda each: -(each.late_ns or 0))
    assert {each.rank for each in late[:2]} == {0, 6}
    assert found.traces[4].regime == "communication"
    assert "rank 0" in found.traces[4].reason
    assert "rank 6" in found.traces[4].reason


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_who_limits_is_what_an_expert_read_off_the_timeline_or_nobody(name: str) -> None:
    found = analysed(f"{name}.json.gz")
    assert found.limit in (LIMITS[name]["limit"], *NAMES_NOBODY), LIMITS[name]["why"]
    assert found.limit_reason


def test_who_limits_is_named_for_most_of_the_traces_where_an_expert_names_it() -> None:
    assert {f"{name}.json.gz" for name in LIMITS} == set(EXPECTED)
    named = [name for name in LIMITS if analysed(f"{name}.json.gz").limit not in NAMES_NOBODY]
    assert len(named) >= 35, sorted(set(LIMITS) - set(named))


def test_a_trace_without_gpu_operations_has_no_devices_and_says_so() -> None:
    found = analysed("zoology/a100_pcie.json.gz")
    assert (found.devices, found.regime) == ([], "unknown")
    assert any("no GPU operation" in line for line in found.warnings)


@pytest.mark.parametrize("name", ["torchrec-golden/resnet18_b.json.gz", "ao/gtx1650_trace.json.gz"])
def test_disagreeing_clocks_are_said_and_corrected_apart(name: str) -> None:
    device = only(name)
    assert device.idle_clock_corrected.shift_ns > 0
    assert any("clocks disagree" in line for line in analysed(name).warnings)


def test_standard_input_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    name = "gpu-mode-lectures/p5000_trace.json.gz"
    program = (
        "import argparse, sys; from autobrrr.cli.verbs import analyze; parser = argparse.ArgumentParser();"
        "analyze.prepare_parser(parser); sys.exit(analyze.run(parser.parse_args(['-', '--json'])))"
    )
    done = ran([sys.executable, "-c", program], stdin=(FOLDER / name).open("rb"), check=True)
    found = json.loads(done.stdout)["traces"][0]
    assert found["file"] == "-"
    assert found["devices"][0]["span_ns"] == only(name).span_ns
