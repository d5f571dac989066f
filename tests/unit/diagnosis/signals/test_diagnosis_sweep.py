"""A sweep becomes step times by size, under the guards of the probe but for its line."""

import msgspec

from autobrrr.diagnosis.models.size_sweep import size_sweep
from autobrrr.diagnosis.signals.dispatch import batch_probe
from autobrrr.records import BatchMemory, ShadowProbe
from autobrrr.report.page_text import parts_text
from autobrrr.report.pages.diagnosis_parts import sweep_parts
from support.judged import diagnosis
from support.judged.diagnosis import MS, measured, probed

MIB = 1 << 20
MEMORY = BatchMemory(
    saved_bytes=32 * MIB,
    per_sample_bytes=float(MIB),
    peak_bytes=48 * MIB,
    peak_2x_bytes=96 * MIB,
    free_bytes=1875 * MIB,
    largest_batch=1000,
)


def along(name: str, **fields: object) -> ShadowProbe:
    swept = probed(10.0 * MS, noise=0.0, fixed=0.5, factors=(0.25, 0.5, 1, 2, 4))
    return msgspec.structs.replace(swept, sweep=name, **fields)


def test_each_size_has_its_step_time_and_twice_the_size_its_ratio() -> None:
    found = size_sweep(along("batch", memory=MEMORY))
    assert (found.status, found.size) == ("ok", 32)
    assert [point.size for point in found.points] == [8, 16, 32, 64, 128]
    assert abs(found.ratio_2x - 1.5) < 0.02
    text = parts_text(*sweep_parts(found))
    rows = [line.split() for line in text.splitlines()]
    assert [row[0] for row in rows[2:7]] == ["8", "16", "32", "64", "128"]
    assert ["32", "10.0", "ms", "1.00x", "1.00x"] in rows
    assert "about 1000 samples fit" in text


def test_a_curve_is_no_reason_to_hold_a_sweep_back() -> None:
    swept = probed(10.0 * MS, curve=lambda factor: 0.2 + 0.8 * factor**2)
    found = size_sweep(msgspec.structs.replace(swept, sweep="length"))
    assert (found.status, found.along) == ("ok", "length")


def test_what_the_agent_refused_is_passed_on_and_nothing_is_nothing() -> None:
    refused = ShadowProbe(status="abstained", why="no input of the step has a width", sweep="width")
    found = size_sweep(refused)
    assert (found.status, found.why) == ("abstained", "no input of the step has a width")
    assert size_sweep(None) is None


def test_the_probe_says_how_many_samples_would_fit() -> None:
    probe = probed(fixed=0.95, memory=MEMORY)
    assert "memory for about 1000 samples" in batch_probe(measured(probe=probe)).note
    assert "samples" not in batch_probe(diagnosis.tiny_mlp()).note
