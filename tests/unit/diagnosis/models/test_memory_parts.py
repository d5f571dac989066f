"""Who holds the job's memory: parts that sum to what the process has."""

import msgspec
import pytest

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.memory_parts import memory_parts
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import BatchMemory, DeviceAllocator, GpuSample
from support.judged import diagnosis
from support.judged.diagnosis import MS
from support.judged.verdicts import OVERHEAD

MIB = 1 << 20


def trained(trained_mib: int | None = 16, peak_mib: int = 60) -> Measurements:
    """A process of 256 MiB: 16 MiB of 20 are trained, with 32 MiB of state."""
    build = msgspec.structs.replace(
        diagnosis.anatomy(),
        model_bytes=20 * MIB,
        parameter_bytes=None if trained_mib is None else trained_mib * MIB,
        state_bytes=32 * MIB,
    )
    held = BatchMemory(
        saved_bytes=peak_mib * MIB,
        per_sample_bytes=1e6,
        peak_bytes=peak_mib * MIB,
        peak_2x_bytes=2 * peak_mib * MIB,
        free_bytes=None,
        largest_batch=96,
    )
    probe = diagnosis.probed(4 * MS, fixed=0.5, memory=held)
    return diagnosis.replaced(diagnosis.measured(build=build, probe=probe), held=((0, 256 * MIB),))


def parts(measured: Measurements) -> dict[str, float]:
    return {part.what: part.bytes / MIB for part in memory_parts(measured)}


def test_the_parts_of_a_cpu_job_sum_to_its_process() -> None:
    assert parts(trained()) == {
        "Python, libraries and data": 128,
        "activations and temporaries of a step": 60,
        "optimizer state": 32,
        "parameters and buffers": 20,
        "gradients": 16,
    }
    assert parts(trained(peak_mib=1000))["activations and temporaries of a step"] == 256 - 68


def test_a_gpu_job_is_told_by_its_allocator_and_its_driver() -> None:
    on_gpu = diagnosis.replaced(
        trained(),
        facts=diagnosis.facts(cuda=True),
        allocator=DeviceAllocator(reserved_bytes=500 * MIB, peak_bytes=400 * MIB),
    )
    assert parts(on_gpu) == {
        "activations and temporaries of a step": 332,
        "allocator's cache": 100,
        "optimizer state": 32,
        "parameters and buffers": 20,
        "gradients": 16,
    }
    seen = diagnosis.replaced(on_gpu, gpu=(GpuSample(t_ns=0, job_memory_bytes=900 * MIB),))
    assert parts(seen)["CUDA context and libraries"] == 400
    assert sum(parts(seen).values()) == 900


def test_nothing_is_said_of_what_was_not_read() -> None:
    assert memory_parts(trained(trained_mib=None)) == []
    assert memory_parts(diagnosis.replaced(trained(), held=())) == []
    assert memory_parts(diagnosis.replaced(trained(), facts=diagnosis.facts(cuda=True))) == []


@pytest.mark.parametrize(("known", "says"), [(16, "128 MB Python, libraries and data"), (None, "")])
def test_one_line_tells_the_largest_and_the_batch_that_fits(known: int | None, says: str) -> None:
    measured = trained(known)
    found = msgspec.structs.replace(
        OVERHEAD, memory=memory_parts(measured), batch_probe=judge(measured).batch_probe
    )
    said = found.memory_words
    assert says in said
    assert said.endswith("; a batch of 96 would fit" if says else "")
