"""Code that stands beside a forward, and that it does not call, is no reason to leave the probe out."""

from __future__ import annotations

import functools
import importlib
import json
import os
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from support.batch_probe.shadow import supervised
from support.batch_probe.shadow_loop import Kind, OneLayer, train

pytestmark = pytest.mark.integration

STEPS = 40
PACKAGE = """
import os
import torch


class Part(torch.nn.Linear):
    def __init__(self):
        super().__init__(12, 4)
        self.home = os.path.expanduser("~")

    def save(self):
        print(os.path.join(self.home, "model"))

    def forward(self, x):
        return super().forward(x)


def saved():
    Part().save()
"""


class Beside(OneLayer):
    """What a usual model has beside its forward."""

    def load(self, path: str) -> None:
        print(os.path.exists(path))

    @functools.cached_property
    def names(self) -> list[str]:
        return os.listdir()


class ByMadeName(Beside):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for end in ("ar",):
            x = getattr(self, f"line{end}")(x)
        return x


class ByWord(Beside):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * getattr(self, "scale", 1.0)


class OfAModule(Beside):
    act = "relu"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(functional, self.act)(self.linear(x))


class Setting:
    def __init__(self, **values: float) -> None:
        self.__dict__.update(values)

    def __str__(self) -> str:
        return str(vars(self))

    def __repr__(self) -> str:
        return json.dumps(self.__dict__)


class OfASetting(OneLayer):
    def __init__(self) -> None:
        super().__init__()
        self.setting = Setting(scale=2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.setting.scale  # type: ignore[attr-defined]


class Part(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(12, 4)
        print(os.getcwd())


class OfAClass(OneLayer):
    part = Part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class OfItsOwnClass(OneLayer):
    """From Python 3.12 on every `super()` names the class."""

    def __init__(self) -> None:
        super().__init__()
        self.home = os.path.expanduser("~")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if isinstance(self, __class__) else x  # type: ignore[name-defined]


def probed(make_model: Callable[[], torch.nn.Module]) -> object:
    def make() -> Kind:
        return supervised(make_model(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))

    found = train(make, STEPS, probe=True)
    return found.probed and (found.probed["status"], found.probed["why"])


@pytest.mark.parametrize("kind", [ByMadeName, ByWord, OfAModule, OfASetting, OfAClass, OfItsOwnClass])
def test_what_a_forward_does_not_call_is_no_reason(kind: type[OneLayer]) -> None:
    assert probed(kind) == ("ok", None)


def test_nor_is_what_an_installed_class_has_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages" / "models_with_more"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(folder.parent))
    package: types.ModuleType = importlib.import_module(folder.name)
    assert probed(package.Part) == ("ok", None)


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: (getattr(self, f"lo{'ad'}")(""), self.linear(x))[1],
        lambda self, x: (getattr(self, self.word)(""), self.linear(x))[1],
        lambda self, x: (self.names, self.linear(x))[1],
        lambda self, x: (f"{self.setting}", self.linear(x))[1],
        lambda self, x: (self.part(), self.linear(x))[1],
    ],
    ids=["a made name", "a name that is held", "a cached property", "text", "a class"],
)
def test_what_it_calls_is_one(forward: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> None:
    parts = {"forward": forward, "word": "load", "setting": Setting(), "part": Part}
    found = probed(type("Calling", (Beside,), parts))
    assert isinstance(found, tuple)
    assert found[0] == "abstained"
