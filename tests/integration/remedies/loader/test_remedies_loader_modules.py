"""Modules of the job's own that the code for an item reads: what is set there is in the next batch."""

from __future__ import annotations

import functools
import importlib
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autobrrr.injected.job_code.installed_code import is_library
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader.dataset_state import DatasetState
from autobrrr.injected.remedies.loader.dataset_walk import held_by
from autobrrr.injected.remedies.registry import Refused
from support.injected import item_settings, scaled_items

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]  # as in a worker

REMEDIES = {"loader.workers": {"workers": 1}, "loader.cache": {}}
SETTINGS: Any = item_settings
NAME = "support.injected.item_settings"


class Items(Dataset[torch.Tensor]):
    """An item is what a function makes of its index."""

    def __init__(self, read: Callable[[float], float], **attributes: object) -> None:
        self.read = read
        vars(self).update(attributes)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([self.read(float(index + 1))])


class Holding(Items):
    def __init__(self, *held: object, **attributes: object) -> None:
        super().__init__(self.by_attribute, **attributes)
        self.held = held

    settings: Any = None

    def by_attribute(self, number: float) -> float:
        held: Any = self.held[0] if self.held else self.settings
        return float(number * (held["at"] if isinstance(held, dict) else held).scale)


class OfClass(Holding):
    settings = item_settings


def around(settings: Any) -> Callable[[float], float]:
    return lambda number: number * settings.scale


def by_argument(settings: Any, number: float) -> float:
    return number * float(settings.scale)


def handed_on(number: float) -> float:
    return by_argument(item_settings, number)


def imported(number: float) -> float:
    import support.injected.item_settings as found

    return number * found.scale


def imported_by_its_whole_name(number: float) -> float:
    import support.injected.item_settings

    return number * support.injected.item_settings.scale


def imported_from(number: float) -> float:
    from support.injected.item_settings import scale

    return number * scale


@functools.wraps(math.sqrt)
def wrapped_around_a_librarys(number: float) -> float:
    return number * item_settings.scale


@functools.wraps(torch.nn.functional.dropout)
def named_as_a_librarys(number: float) -> float:
    return number * item_settings.scale


READERS: dict[str, Callable[[], Items]] = {
    "global": lambda: Items(lambda number: number * item_settings.scale),
    "global under another name": lambda: Items(lambda number: number * SETTINGS.scale),
    "function of it": lambda: Items(item_settings.scaled),
    "what lies in it": lambda: Items(lambda number: number * item_settings.table["scale"]),
    "a wrapper of C's": lambda: Items(wrapped_around_a_librarys),
    "a wrapper of a library's": lambda: Items(named_as_a_librarys),
    "closure": lambda: Items(around(item_settings)),
    "argument": lambda: Items(functools.partial(by_argument, item_settings)),
    "handed on": lambda: Items(handed_on),
    "attribute": lambda: Holding(settings=item_settings),
    "attribute of the class": OfClass,
    "list": lambda: Holding(item_settings),
    "dict": lambda: Holding({"at": item_settings}),
    "import": lambda: Items(imported),
    "import by its whole name": lambda: Items(imported_by_its_whole_name),
    "import from": lambda: Items(imported_from),
    "import from its package": lambda: Items(scaled_items.from_its_package),
    "import from beside": lambda: Items(scaled_items.from_a_module_beside),
}


@pytest.fixture(autouse=True)
def no_worker_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(item_settings, "scale", 1.0)
    monkeypatch.setitem(item_settings.table, "scale", 1.0)
    yield
    assert multiprocessing.active_children() == []


def seen_by(make: Callable[[], Items], remedy: str | None) -> list[object]:
    """Four epochs: the script sets another scale before the third, and in the middle of the fourth."""
    item_settings.scale = item_settings.table["scale"] = 1.0
    loader, undo, seen = DataLoader(make(), batch_size=4), lambda: None, list[object]()
    for epoch in range(4):
        if epoch == 1 and remedy is not None:
            job = Job(torch)
            job.saw_loader(loader)
            undo = REGISTRY[remedy].apply(job, REMEDIES[remedy])  # type: ignore[assignment]
        if epoch == 2:
            item_settings.scale = item_settings.table["scale"] = 2.0
        for number, batch in enumerate(loader):
            seen.append(batch.tolist())
            if (epoch, number) == (3, 1) and remedy != "loader.cache":  # declared not to see it
                item_settings.scale = item_settings.table["scale"] = 3.0
    undo()
    return seen


@pytest.mark.parametrize("place", READERS)
def test_what_the_script_sets_in_a_module_is_in_the_next_batch(place: str) -> None:
    expected = seen_by(READERS[place], None)
    assert seen_by(READERS[place], "loader.workers") == expected
    state = DatasetState(READERS[place]())
    assert state.is_as_it_was
    item_settings.scale = item_settings.table["scale"] = 7.0
    assert not state.is_as_it_was


@pytest.mark.parametrize("place", READERS)
def test_kept_items_are_read_anew_once_the_script_has_set_another_value(place: str) -> None:
    def epochs(*, cached: bool) -> list[object]:
        item_settings.scale = item_settings.table["scale"] = 1.0
        job, loader = job_of(READERS[place]())
        undo = REGISTRY["loader.cache"].apply(job, {}) if cached else lambda: None
        seen = []
        for epoch in range(4):
            item_settings.scale = item_settings.table["scale"] = 1.0 + epoch // 2
            seen += [batch.tolist() for batch in loader]  # type: ignore[attr-defined]
        undo()
        return seen

    assert epochs(cached=True) == epochs(cached=False)


def job_of(dataset: Items) -> tuple[Job, DataLoader[object]]:
    job, loader = Job(torch), DataLoader(dataset, batch_size=4)
    job.saw_loader(loader)  # type: ignore[arg-type]
    return job, loader  # type: ignore[return-value]


def test_a_module_that_comes_in_the_place_of_another_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    state, other = DatasetState(Items(imported)), ModuleType(NAME)
    other.scale = 4.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, NAME, other)
    assert not state.is_as_it_was


def test_a_module_that_makes_its_members_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    making, made = ModuleType("making"), {"scale": 1.0}
    making.__getattr__ = lambda name: made[name]  # type: ignore[method-assign]
    state = DatasetState(Holding(settings=making))
    made["scale"] = 2.0
    assert not state.is_as_it_was


def test_what_code_takes_from_installed_modules_is_no_reading() -> None:
    def read(number: float) -> float:
        import cmath

        return torch.tensor(number).item() * cmath.pi

    assert not DatasetState(Items(read)).held.unseen
    spaces = [id(space) for space, _ in held_by(Items(read)).reads]
    assert id(vars(torch)) not in spaces


READING = """
import threading
scale = 1.0
table = {"scale": 1.0}
class Opened:
    lock = threading.Lock()
    def __init__(self): self.at = eval("0")
def read(number): return Opened().at + number
"""


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package that is installed and no dataset's own."""
    (folder := tmp_path / "site-packages").mkdir()
    (folder / "reading_files.py").write_text(READING)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("reading_files")
    del sys.modules["reading_files"]
    is_library.cache_clear()


def imported_reader(number: float) -> float:
    import reading_files  # type: ignore[import-not-found]

    return float(reading_files.Opened().at + reading_files.read(number) * reading_files.scale)


@pytest.mark.parametrize("way", ["import", "closure"])
def test_a_packages_own_code_holds_nothing_of_a_dataset_that_calls_it(way: str, reading: Any) -> None:
    def closed_over(number: float) -> float:
        return float(reading.read(number) * reading.scale * reading.table["scale"])

    state = DatasetState(Items(imported_reader if way == "import" else closed_over))
    assert not state.held.locks
    assert not state.held.unseen
    assert state.is_as_it_was
    reading.scale = 2.0
    assert not state.is_as_it_was


def test_a_package_whose_object_a_dataset_holds_is_looked_into(reading: Any) -> None:
    assert held_by(Holding(reading.Opened(), settings=reading)).locks
    assert held_by(Items(imported_reader, held=reading.Opened())).locks


HIDDEN: dict[str, Callable[[float], float]] = {
    "eval": lambda number: number * float(eval("item_settings.scale")),
    "exec": lambda number: exec("item_settings.scale") or number,
    "globals": lambda number: number * globals()["item_settings"].scale,
    "sys.modules": lambda number: number * sys.modules[NAME].scale,
    "__import__": lambda number: number * __import__(NAME).injected.item_settings.scale,
    "import_module": lambda number: number * importlib.import_module(NAME).scale,
    "__globals__": lambda number: number * handed_on.__globals__["item_settings"].scale,
    "vars": lambda number: number * vars(item_settings)["scale"],
    "getattr": lambda number: number * getattr(item_settings, "sc" + "ale"),
    "__dict__": lambda number: number * item_settings.__dict__["scale"],
}


def imported_by_name(number: float) -> float:
    from importlib import import_module

    return number * import_module(NAME).scale


def imported_and_asked(number: float) -> float:
    import support.injected.item_settings as found

    return number * getattr(found, "sc" + "ale")


HIDDEN["import_module "] = imported_by_name
HIDDEN["getattr "] = imported_and_asked


@pytest.mark.parametrize("way", HIDDEN)
def test_a_name_that_no_code_shows_leaves_the_loader_alone_and_is_said(way: str) -> None:
    for remedy, options in REMEDIES.items():
        job, loader = job_of(Items(HIDDEN[way]))
        with pytest.raises(Refused, match=rf"looks names up by {way.strip()}"):
            REGISTRY[remedy].apply(job, options)
        assert loader.num_workers == 0


class Asking(Items):
    """Looks a name up where no item is read, and on itself where one is."""

    def __init__(self) -> None:
        super().__init__(lambda number: number)
        self.scale = eval("2.0")

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) * getattr(self, "scale", 1.0) * item_settings.scale


def test_names_looked_up_as_it_is_made_or_on_itself_hide_nothing() -> None:
    assert not held_by(Asking()).unseen
    assert not held_by(Items(lambda number: float(torch.nn.Identity().eval()(number)))).unseen
