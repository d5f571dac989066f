"""A starting job's plan finds its DataLoader and its DistributedDataParallel just before they are used."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from autobrrr.agent.recipe_startup import RecipeStartup, is_for
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.families import REGISTRY
from support.simulated.bare_torch import bare_torch


class DataLoader:
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


class DistributedDataParallel:
    def __init__(
        self, module: object, bucket_cap_mb: int | None = None, *, static_graph: bool = False
    ) -> None:
        self.made_with = (module, bucket_cap_mb, static_graph)


PLAIN = (DataLoader.__dict__["__iter__"], DistributedDataParallel.__dict__["__init__"])


@pytest.fixture
def torch() -> Iterator[ModuleType]:
    module = bare_torch()
    module.utils = SimpleNamespace(data=SimpleNamespace(DataLoader=DataLoader))  # type: ignore[attr-defined]
    parallel = SimpleNamespace(DistributedDataParallel=DistributedDataParallel)
    module.nn = SimpleNamespace(parallel=parallel)  # type: ignore[attr-defined]
    yield module
    DataLoader.__iter__, DistributedDataParallel.__init__ = PLAIN  # type: ignore[method-assign,misc]


def test_a_loader_is_shown_before_its_first_item_and_the_loop_notices_nothing(
    torch: ModuleType, tmp_path: Path
) -> None:
    outcome = tmp_path / "outcome"
    boot = {"plan": {"remedies": [{"name": "loader.workers"}]}, "outcome": str(outcome)}
    plan = RecipeStartup(torch, ActiveRemedies(REGISTRY), boot)
    plan.begin()
    loader = DataLoader()
    assert list(loader) == [1, 2]
    assert plan._job.loaders == [loader]
    plan._close()
    assert list(DataLoader()) == [1, 2]
    assert plan._job.loaders == [loader]
    assert (DataLoader.__dict__["__iter__"], DistributedDataParallel.__dict__["__init__"]) == PLAIN


def plan_for(torch: ModuleType, folder: Path, remedies: dict[str, dict[str, object]]) -> Path:
    outcome = folder / "outcome-0-1"
    entries = [{"name": name, "options": options} for name, options in remedies.items()]
    boot: dict[str, object] = {"plan": {"remedies": entries}, "outcome": str(outcome)}
    RecipeStartup(torch, ActiveRemedies(REGISTRY), boot).begin()
    return outcome


def test_every_construction_gets_what_the_recipe_says_unless_it_says_so_itself(
    torch: ModuleType, tmp_path: Path
) -> None:
    recipe: dict[str, dict[str, object]] = {"ddp.bucket_size": {"megabytes": 50}, "ddp.static_graph": {}}
    outcome = plan_for(torch, tmp_path, recipe)
    assert not outcome.exists()
    assert DistributedDataParallel("first").made_with == ("first", 50, True)
    assert DistributedDataParallel("second", 7).made_with == ("second", 7, True)
    told = [json.loads(line) for line in outcome.read_text().splitlines()]
    assert [(line["remedy"], line["status"]) for line in told] == [
        ("ddp.bucket_size", "applied"),
        ("ddp.static_graph", "applied"),
    ]


def test_a_call_that_torch_refuses_gets_torchs_own_error(torch: ModuleType, tmp_path: Path) -> None:
    plan_for(torch, tmp_path, {"ddp.bucket_size": {}})
    with pytest.raises(TypeError, match="unexpected keyword argument 'bucket'"):
        DistributedDataParallel("model", bucket=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing"):
        DistributedDataParallel()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("pattern", "names", "fits"),
    [
        (None, ("/x/train.py",), True),
        ("train*.py", ("/x/train_gpt.py",), True),
        ("train*.py", ("/x/prepare.py",), False),
        ("*/gpt/train.py", ("/x/gpt/train.py",), True),
        ("train.py", ("/x/__main__.py", "pkg/train.py"), True),
        ("train.py", (), True),
    ],
)
def test_each_process_of_a_run_compares_its_own_script(
    pattern: str | None, names: tuple[str, ...], fits: bool
) -> None:
    assert is_for({"script": pattern, "remedies": []}, names) is fits
