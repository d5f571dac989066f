"""Remedies on the process as a whole, on fake machines; the job's own files are told from installed ones."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.remedies.compile.compile_models import second_order_file
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.loader.loader_workers import default_workers
from autobrrr.agent.remedies.process import host_environment
from autobrrr.agent.remedies.registry import Refused, switch


def test_another_allocator_comes_before_what_is_preloaded_already(tmp_path: Path) -> None:
    (tmp_path / "libjemalloc.so.2").touch()
    found = host_environment.preloaded_library({}, {"LD_PRELOAD": "/x.so"}, (str(tmp_path),))
    assert found == {"LD_PRELOAD": f"{tmp_path / 'libjemalloc.so.2'}:/x.so"}
    with pytest.raises(Refused, match="libtcmalloc is not installed"):
        host_environment.preloaded_library({"library": "tcmalloc"}, {}, (str(tmp_path),))


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("cuda.allocator", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        ("host.malloc", {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "2147483647"}),
    ],
)
def test_variables_are_set_unless_the_user_has_set_them(
    monkeypatch: pytest.MonkeyPatch, name: str, variables: dict[str, str]
) -> None:
    environment = REGISTRY[name].environment
    assert environment is not None
    monkeypatch.setattr("os.confstr", lambda name: "glibc 2.35")
    assert environment({}, {}) == variables
    assert environment({}, variables) == variables
    with pytest.raises(Refused, match="is set to mine already"):
        environment({}, dict.fromkeys(variables, "mine"))


@pytest.mark.parametrize(("cpus", "ranks", "workers"), [(1, 1, 1), (2, 1, 2), (64, 1, 8), (8, 4, 2)])
def test_how_many_workers_where_nobody_says(cpus: int, ranks: int, workers: int) -> None:
    assert default_workers(cpus, {"LOCAL_WORLD_SIZE": str(ranks)}) == workers


def test_a_value_that_somebody_else_has_set_meanwhile_stays_theirs() -> None:
    value = [1]
    undo = switch(lambda: value[0], lambda new: value.__setitem__(0, new), 2)
    undo()
    assert value == [1]
    undo = switch(lambda: value[0], lambda new: value.__setitem__(0, new), 2)
    value[0] = 3
    undo()
    assert value == [3]


class FakeTorch(ModuleType):
    """As far as threads between operators go: set once, and only before any was used."""

    def __init__(self, *, begun: bool = False) -> None:
        super().__init__("torch")
        self.threads, self.begun = 2, begun

    def get_num_interop_threads(self) -> int:
        return self.threads

    def set_num_interop_threads(self, count: int) -> None:
        if self.begun:
            raise RuntimeError(
                "cannot set number of interop threads after parallel work has started\nat x.cpp"
            )
        self.threads, self.begun = count, True


def test_threads_between_operators_are_set_once_and_before_anything_ran() -> None:
    inter_op = REGISTRY["threads.inter_op"]
    fresh = FakeTorch()
    inter_op.apply(Job(fresh), {"threads": 1})()
    assert fresh.threads == 1
    with pytest.raises(Refused, match="uses 1 already"):
        inter_op.apply(Job(fresh), {"threads": 1})
    with pytest.raises(Refused, match=r"after parallel work has started$"):
        inter_op.apply(Job(FakeTorch(begun=True)), {"threads": 1})


def module(file: Path | None, text: str = "") -> ModuleType:
    made = ModuleType("made")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        made.__file__ = str(file)
    return made


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("torch.autograd.grad(u.sum(), x, create_graph=True)", True),
        ("loss.backward(create_graph = second_order)", True),
        ("loss.backward(create_graph=False)", False),
        ("loss.backward()  # no create_graph here", False),
    ],
)
def test_a_file_that_differentiates_gradients_is_found(text: str, refused: bool, tmp_path: Path) -> None:
    modules = {"__main__": module(None), "losses": module(tmp_path / "losses.py", text)}
    assert second_order_file(modules) == ("losses.py" if refused else None)


def test_what_is_installed_or_standard_or_gone_is_not_the_jobs_own(tmp_path: Path) -> None:
    text = "grad(y, x, create_graph=True)"
    gone = module(tmp_path / "gone.py", text)
    (tmp_path / "gone.py").unlink()
    standard = ModuleType("standard")
    standard.__file__ = str(Path(sysconfig.get_paths()["stdlib"]) / "argparse.py")
    installed = module(tmp_path / "site-packages" / "lib" / "losses.py", text)
    assert second_order_file({"a": gone, "b": standard, "c": installed}) is None
