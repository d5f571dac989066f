"""Datasets that hold generators or open files, somewhere: never advanced, never cached, never forked with."""

from __future__ import annotations

import enum
import functools
import random
import sqlite3
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader import loader_items
from autobrrr.injected.remedies.loader.dataset_state import DatasetState
from autobrrr.injected.remedies.loader.dataset_walk import MOST_OBJECTS, held_by
from autobrrr.injected.remedies.registry import Refused

pytestmark = pytest.mark.integration

WORKERS, CACHE = REGISTRY["loader.workers"], REGISTRY["loader.cache"]
GENERATOR = random.Random(5)


class Transformed(Dataset[torch.Tensor]):
    def __init__(self, transform: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(torch.arange(4.0) + index)


class Wrapping(Dataset[torch.Tensor]):
    """The first items of another, as a Subset has them."""

    def __init__(self, below: Transformed) -> None:
        self.below = below

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.below[index]


class Noise:
    def __init__(self, generator: numpy.random.Generator) -> None:
        self.generator = generator

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + float(self.generator.normal())


class Slotted:
    __slots__ = ("draw",)

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(0) if self.draw() < 1e-9 else x


class Records(Dataset[bytes]):
    """One open file, in which every item seeks."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> bytes:
        self.file.seek(index)
        return self.file.read(1)


def of_closure(generator: random.Random) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x + generator.random()


def of_global(x: torch.Tensor) -> torch.Tensor:
    return x + GENERATOR.random()


def of_argument(generator: torch.Generator, x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(4, generator=generator)


TRANSFORMS: dict[str, Callable[[], Callable[[torch.Tensor], torch.Tensor]]] = {
    "attribute": lambda: Noise(numpy.random.default_rng(3)),
    "slot": lambda: Slotted(random.Random(3).random),
    "closure": lambda: of_closure(random.Random(3)),
    "global": lambda: of_global,
    "argument": lambda: functools.partial(of_argument, torch.Generator()),
}


def job_of(dataset: Dataset[object]) -> tuple[Job, DataLoader[object]]:
    job, loader = Job(torch), DataLoader(dataset, batch_size=4)
    job.saw_loader(loader)
    return job, loader


@pytest.mark.parametrize("place", TRANSFORMS)
def test_a_generator_that_a_dataset_reaches_makes_its_items_random(place: str) -> None:
    job, loader = job_of(Wrapping(Transformed(TRANSFORMS[place]())))
    with pytest.raises(Refused, match="random numbers"):
        CACHE.apply(job, {})
    assert WORKERS.class_on(job) == "stream"
    assert loader.num_workers == 0


def test_a_transform_of_a_generator_of_its_own_is_not_advanced() -> None:
    generator = numpy.random.default_rng(3)
    before = generator.bit_generator.state
    job, loader = job_of(Transformed(Noise(generator)))
    with pytest.raises(Refused, match="of its own"):
        WORKERS.apply(job, {"workers": 1})
    with pytest.raises(Refused):
        CACHE.apply(job, {})
    assert generator.bit_generator.state == before
    assert loader.num_workers == 0


def test_a_dataset_that_differs_from_itself_is_read_once_in_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[int] = []
    tries: list[int] = []
    dataset = Transformed(lambda x: reads.append(1) or x + len(reads))  # type: ignore[func-returns-value]
    read = loader_items._in_a_process
    monkeypatch.setattr(loader_items, "_in_a_process", lambda work: tries.append(1) or read(work))
    job, loader = job_of(dataset)
    for _ in range(3):
        with pytest.raises(Refused, match="differs from itself"):
            CACHE.apply(job, {})
    assert tries == [1]
    assert reads == []
    assert loader.num_workers == 0


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[dict[str, object]]:
    (tmp_path / "records").write_bytes(bytes(range(8)))
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("a", "b")
    file = (tmp_path / "records").open("rb")
    made = {
        "file": file,
        "archive": zipfile.ZipFile(tmp_path / "archive.zip"),
        "database": sqlite3.connect(":memory:"),
    }
    yield made
    for each in made.values():
        each.close()


@pytest.mark.parametrize("kind", ["file", "archive", "database"])
def test_what_workers_would_share_the_position_of_keeps_them_away(
    kind: str, opened: dict[str, object]
) -> None:
    dataset = TensorDataset(torch.arange(8.0))
    dataset.source = opened[kind]  # type: ignore[attr-defined]
    job, loader = job_of(dataset)
    with pytest.raises(Refused, match=r"which workers would share|may be taken when a process is forked"):
        WORKERS.apply(job, {"workers": 2})
    assert loader.num_workers == 0


def test_a_file_that_opens_with_the_first_item_keeps_workers_away_too(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(bytes(range(8)))

    class Lazily(Records):
        def __init__(self) -> None:
            self.file = None  # type: ignore[assignment]

        def __getitem__(self, index: int) -> bytes:
            if self.file is None:
                self.file = path.open("rb")
            return super().__getitem__(index)

    dataset = Lazily()
    job, loader = job_of(dataset)
    with pytest.raises(Refused, match="BufferedReader, which workers would share"):
        WORKERS.apply(job, {"workers": 2})
    assert loader.num_workers == 0
    assert dataset.file is None  # as before


def test_long_lists_are_looked_at_in_places_and_too_much_is_refused() -> None:
    files = [(f"{index}.png", index) for index in range(100_000)]
    assert held_by([files, print, numpy.zeros(3)]) == held_by([])
    nested: list[object] = []
    for _ in range(MOST_OBJECTS + 10):
        nested = [nested]
    with pytest.raises(Refused, match="more objects"):
        held_by(nested)
    while nested:  # freeing it at once would recurse
        nested = nested[0]  # type: ignore[assignment]


class Label(enum.IntEnum):
    CAT = 0
    DOG = 1


def test_of_many_tuples_what_lies_in_them_counts() -> None:
    files = [(f"{index}.png", Label(index % 2)) for index in range(2 * MOST_OBJECTS)]
    places = {((index, index), index): index for index in range(2 * MOST_OBJECTS)}
    assert {id(each) for each in Label} <= {id(each) for each in held_by([files, places]).parts}


class Blurs(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + torch.randn_like(image)


def test_a_transform_that_is_a_module_is_called_by_torch() -> None:
    assert held_by(Transformed(Blurs())).draws


class Lazy(Mapping[str, int]):
    """A mapping that reads as it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        self.asked += 1
        return iter("a")

    def __getitem__(self, key: str) -> int:
        self.asked += 1
        return 0


def test_a_mapping_that_makes_its_items_is_not_asked_for_them() -> None:
    lazy = Lazy()
    assert not held_by([lazy]).unseen
    assert lazy.asked == 0


def labelled(label: int) -> torch.Tensor:
    tensor = torch.zeros(2)
    tensor.label = [label]  # type: ignore[attr-defined]
    return tensor


def objects(*held: object) -> Any:
    made = numpy.empty(len(held), dtype=object)
    made[:] = held
    return made


LISTED = [0]
HOLDING: dict[str, tuple[Callable[[], object], Callable[[Any], object]]] = {
    "a masked array": (lambda: numpy.ma.masked_array([0.0, 1.0]), lambda it: it.__setitem__(0, 3)),
    "a mask": (
        lambda: numpy.ma.masked_array([0.0], [False]), lambda it: it.__setitem__(0, numpy.ma.masked)
    ),
    "a record array": (lambda: numpy.rec.array([(0,)], dtype=[("a", int)]), lambda it: it.a.fill(3)),
    "an object in an array": (lambda: objects([0], "a"), lambda it: it[0].append(1)),
    "an array's place for an object": (lambda: objects([0], "a"), lambda it: it.__setitem__(1, "b")),
    "an attribute of a tensor": (lambda: labelled(0), lambda it: it.label.append(1)),
    "a view of a dict": ({"a": [0]}.values, lambda it: next(iter(it)).append(1)),
    "a proxy of a dict": (lambda: MappingProxyType({"a": [0]}), lambda it: it["a"].append(1)),
    "the default of a dict": (
        lambda: defaultdict(functools.partial(max, LISTED)), lambda it: LISTED.append(1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOLDING)
def test_what_is_written_far_inside_is_seen(kind: str) -> None:
    make, write = HOLDING[kind]
    held = make()
    state = DatasetState([held])
    assert state.is_whole
    assert state.is_as_it_was
    write(held)
    assert not state.is_as_it_was


def test_an_array_of_a_file_that_may_be_written_is_left_alone_and_one_to_read_is_not(tmp_path: Path) -> None:
    numpy.save(tmp_path / "tokens.npy", numpy.arange(8))
    modes = {mode: numpy.load(tmp_path / "tokens.npy", mmap_mode=mode) for mode in ("r", "r+", "c")}
    unseen = {mode: held_by([array]).unseen for mode, array in modes.items()}
    assert unseen == {"r": [], "r+": unseen["r+"], "c": unseen["r+"]}
    assert unseen["r+"] == ["holds a mmap, which may change unseen"]


def test_an_archive_of_arrays_is_a_file_that_workers_would_share(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "arrays.npz", a=numpy.arange(8))
    with numpy.load(tmp_path / "arrays.npz") as archive:
        assert "BufferedReader" in held_by([archive]).handles


class Answering:
    """Runs code of its own for whatever it is asked."""

    __slots__ = ("__dict__", "kept", "unset")

    def __init__(self) -> None:
        self.kept = random.Random(3)

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


class Resetting(list[object]):
    def __iter__(self) -> Iterator[object]:
        raise RuntimeError("it is read")


class Classless:
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("its class is asked for")


def test_objects_are_not_asked_for_what_they_hold() -> None:
    assert held_by([Answering()]).random
    state = DatasetState([Resetting([1, [2]])])
    assert state.is_as_it_was
    state.held.parts[-1].append(3)  # type: ignore[attr-defined]
    assert not state.is_as_it_was


@pytest.mark.parametrize("is_held", [True, False])
def test_what_raises_as_it_is_looked_at_is_said(*, is_held: bool) -> None:
    class Giving(Dataset[object]):
        def __init__(self) -> None:
            self.held = Classless() if is_held else None

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> object:
            return Classless()

    job, loader = Job(torch), DataLoader(Giving(), batch_size=None)
    job.saw_loader(loader)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="can't be looked into: RuntimeError"):
        WORKERS.apply(job, {})


class Remembering(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4

    @functools.cached_property
    def table(self) -> dict[int, float]:
        return dict.fromkeys(range(4), 1.0)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.table[index])


def test_the_lock_of_a_cached_property_is_pythons_own() -> None:
    assert not held_by(Remembering()).locks


def test_paths_are_values_whatever_they_have_worked_out() -> None:
    paths = [(Path(f"{index}.png"), index) for index in range(2 * MOST_OBJECTS)]
    state = DatasetState(paths, paths[0][0])
    assert len({hash(path) or str(path) for path, _ in paths}) == len(paths)
    assert state.is_as_it_was
