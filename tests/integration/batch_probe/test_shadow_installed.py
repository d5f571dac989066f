"""The forward of a model of an installed package is read like the job's own."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from support.batch_probe.shadow import supervised
from support.batch_probe.shadow_loop import Kind, train

pytestmark = pytest.mark.integration

STEPS = 40
TEXT = """
import torch

COUNTS = {"calls": 0}


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(12, 4)

    def forward(self, x):
        COUNTS["calls"] += 1
        return self.linear(x)


class Printing(Counting):
    def forward(self, x):
        print("called")
        return self.linear(x)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = tmp_path / "site-packages" / "models_of_somebody"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(TEXT)
    monkeypatch.syspath_prepend(str(folder.parent))
    return importlib.import_module(folder.name)


@pytest.mark.parametrize("name", ["Counting", "Printing"])
def test_what_its_forward_does_besides_is_done_once_a_step(
    package: ModuleType, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def make() -> Kind:
        return supervised(getattr(package, name)(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))

    package.COUNTS["calls"] = 0
    found = train(make, STEPS, probe=True)
    assert package.COUNTS["calls"] + capsys.readouterr().out.count("called") == STEPS
    assert found.probed is not None
    assert found.probed["status"] == "abstained"
