"""Datasets that keep state of their own: reading items moves nothing on, and what the job sets is seen."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator

import numpy.random  # noqa: F401  must be there to be taken away
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader.loader_items import read_items
from autobrrr.injected.remedies.loader.loader_view import of_loader
from autobrrr.injected.remedies.registry import Refused

pytestmark = pytest.mark.integration

CACHE, WORKERS = REGISTRY["loader.cache"], REGISTRY["loader.workers"]


class Reading(Dataset[torch.Tensor]):
    """An item is what a function makes of the dataset and the index."""

    def __init__(self, read: Callable[[Reading, int], object]) -> None:
        self.read = read
        self.at = 0
        self.seen: list[int] = []
        self.last: deque[int] = deque(maxlen=2)
        self.known: dict[int, int] = {}
        self.met: set[int] = set()

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read(self, index)
        return torch.tensor([float(index), float(self.at)])

    def state(self) -> object:
        return self.at, list(self.seen), list(self.last), dict(self.known), set(self.met)


def counts(data: Reading, index: int) -> None:
    data.at += 1


def notes(data: Reading, index: int) -> None:
    data.seen.append(index)
    data.last.append(index)
    data.known[index] = 1
    data.met.add(index)


def counting_around() -> Callable[[Reading, int], object]:
    number = 0

    def count(data: Reading, index: int) -> None:
        nonlocal number
        number += 1
        data.at = number

    return count


@pytest.mark.parametrize("name", ["loader.cache", "loader.workers"])
@pytest.mark.parametrize("make", [lambda: counts, lambda: notes, counting_around])
def test_what_a_dataset_counts_and_notes_is_as_if_nothing_had_been_read(
    make: Callable[[], Callable[[Reading, int], object]], name: str
) -> None:
    data, twin = Reading(make()), Reading(make())
    for each in (data, twin):
        each[3]
    job, loader = Job(torch), DataLoader(data, batch_size=4)
    job.saw_loader(loader)
    with contextlib.suppress(Refused):  # where an item differs from itself
        REGISTRY[name].apply(job, {"workers": 1} if name == "loader.workers" else {})()
    assert data.state() == twin.state()
    assert torch.equal(data[5], twin[5])


SOURCES: dict[str, Callable[[], object]] = {
    "generator": lambda: (number for number in range(1000)),
    "count": itertools.count,
    "list_iterator": lambda: iter([1, 2, 3]),
    "Queue": queue.Queue,
    "Thread": threading.Thread,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_dataset_whose_source_moves_on_is_not_read(kind: str) -> None:
    read: list[int] = []
    data = Reading(lambda data, index: read.append(index))
    data.source = SOURCES[kind]()  # type: ignore[attr-defined]
    job, loader = Job(torch), DataLoader(data, batch_size=4)
    job.saw_loader(loader)
    for remedy in (CACHE, WORKERS):
        with pytest.raises(Refused, match=f"holds a {kind}, which moves on"):
            remedy.apply(job, {"workers": 1} if remedy is WORKERS else {})
    assert not read


class Staged(Dataset[torch.Tensor]):
    """Items that the job changes from epoch to epoch, as `set_epoch` of many datasets does."""

    def __init__(self) -> None:
        self.stage = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index + 100.0 * self.stage])


@pytest.fixture(autouse=True)
def no_worker_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("names", [["loader.persistent_workers"], ["loader.cache"]])
def test_what_the_job_sets_on_a_dataset_between_two_epochs_is_in_its_next_items(names: list[str]) -> None:
    def epochs(remedies: list[str]) -> list[object]:
        torch.manual_seed(1)
        data, job, undos = Staged(), Job(torch), []
        workers = 1 if names == ["loader.persistent_workers"] else 0
        loader = DataLoader(data, batch_size=4, num_workers=workers)
        job.saw_loader(loader)
        found: list[object] = []
        for epoch in range(5):
            data.stage = epoch // 2
            for number, batch in enumerate(loader):
                found += [batch.tolist(), torch.rand(1).item()]
                if (epoch, number) == (0, 0):
                    undos = [REGISTRY[name].apply(job, {}) for name in remedies]
        for undo in undos:
            undo()
        return found

    assert epochs(names) == epochs([])


def test_workers_are_kept_while_the_job_leaves_its_dataset_alone() -> None:
    job, loader = Job(torch), DataLoader(Staged(), batch_size=4, num_workers=1)
    job.saw_loader(loader)
    undo = REGISTRY["loader.persistent_workers"].apply(job, {})
    workers = []
    for _ in range(3):
        list(loader)
        workers.append(loader._iterator._workers[0].pid)  # type: ignore[union-attr]
    assert len(set(workers)) == 1
    undo()


def test_a_generator_that_comes_with_the_first_item_makes_no_item_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = sys.modules["numpy.random"]
    monkeypatch.delitem(sys.modules, "numpy.random")
    data = Reading(lambda data, index: sys.modules.setdefault("numpy.random", known))
    assert not read_items(Job(torch), of_loader(DataLoader(data))).random
