"""Every experiment on the real torch, at a fraction of its size, and the processes that make them."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from autobrrr.errors import UsageError
from autobrrr.roofline.machine_identity import read_machine
from autobrrr.roofline.quick_peaks import quick_peaks
from autobrrr.roofline.roofline_measure import roofline
from autobrrr.roofline.roofline_records import FlameBox, Roofline, RooflineRequest

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch")

from autobrrr.roofline.roofline_bench import NoCompiler, RooflineBench  # noqa: E402  # they import torch
from autobrrr.roofline.roofline_child import EXPERIMENTS, Experiment  # noqa: E402

EFFORT = 0.002
BLANK = Roofline(device="here", torch="?", threads=1, python="?", measured_at_unix_s=0.0)
ON_CPU = [each for each in EXPERIMENTS if each.name != "launches"]


def bench(compiler: Callable[[Callable[..., object]], Callable[..., object]]) -> RooflineBench:
    return RooflineBench(device="cpu", threads=1, last_cache_bytes=1 << 20, effort=EFFORT, compiler=compiler)


def as_it_is(function: Callable[..., object]) -> Callable[..., object]:
    return function


def missing(function: Callable[..., object]) -> Callable[..., object]:
    def refuse(*args: object) -> None:
        raise RuntimeError("InvalidCxxCompiler: none found\n\nmore words")

    return refuse


@pytest.mark.parametrize("experiment", ON_CPU, ids=lambda each: each.name)
def test_an_experiment_fills_fields_of_the_record(experiment: Experiment) -> None:
    found = experiment.measure(bench(as_it_is))
    assert all(found.values())
    whole = msgspec.structs.replace(BLANK, **found)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Roofline) == whole


@pytest.mark.parametrize("name", ["repeat_sweep", "multiply_add", "cosine_fusion"])
def test_without_a_compiler_an_experiment_says_so_in_one_line(name: str) -> None:
    (experiment,) = (each for each in EXPERIMENTS if each.name == name)
    with pytest.raises(NoCompiler, match=r"^InvalidCxxCompiler: none found$"):
        experiment.measure(bench(missing))


def test_the_parts_of_the_flame_lie_within_the_whole() -> None:
    (experiment,) = (each for each in EXPERIMENTS if each.name == "flame")
    flame = experiment.measure(bench(as_it_is))["flame"]
    assert isinstance(flame, FlameBox)
    assert flame.ns > 0
    names = [part.name for part in flame.parts]
    assert "Python bytecode" in names
    assert "dispatcher and kernel" in names
    assert all(part.ns >= 0 for part in flame.parts)


def test_the_measuring_process_reports_without_a_compiler_and_leaves_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    told: list[tuple[str, float]] = []
    request = RooflineRequest(device="cpu", threads=1, effort=EFFORT)
    found = roofline(
        request, tmp_path, read_machine(), lambda title, share: told.append((title, share)), flame=True
    )
    assert found.threads == 1
    assert found.torch == str(torch.__version__)
    assert found.python_adds_per_s
    assert found.peak_flops["float32"] > 0
    assert found.flame is not None
    assert set(found.left_out) == {"repeat_sweep", "multiply_add", "cosine_fusion"}
    assert all(why.startswith("not compiled: ") for why in found.left_out.values())
    assert not found.activations.compiled
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert not list(tmp_path.glob("roofline/full-*"))


def test_a_device_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UsageError, match="no CUDA"):
        roofline(
            RooflineRequest(device="cuda", threads=1), tmp_path, read_machine(), lambda title, share: None
        )


def test_quick_peaks_are_measured_with_the_asked_threads_and_kept(tmp_path: Path) -> None:
    found = quick_peaks(1, tmp_path)
    assert found.threads == 1
    assert found.torch == str(torch.__version__)
    assert found.matmul_flops > 1e7
    assert found.triad_bytes_per_s > 1e7
    assert quick_peaks(1, tmp_path, measure=False) == found
