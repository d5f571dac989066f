"""Datasets that keep state of their own: reading items moves nothing on, and what the job sets is seen."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import multiprocessing
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import numpy.random
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader import batch_workers
from autobrrr.injected.remedies.loader.dataset_state import DatasetState
from autobrrr.injected.remedies.loader.loader_items import read_items
from autobrrr.injected.remedies.loader.loader_view import of_loader
from autobrrr.injected.remedies.loader.sent_batches import Unsendable, exactly, receive, send
from autobrrr.injected.remedies.registry import Refused, WatchedUndo

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]  # as in a worker

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


@dataclasses.dataclass
class Marked:
    x: torch.Tensor


def test_where_each_step_begins_an_epoch_anew_no_workers_are_started_for_long() -> None:
    job, loader = Job(torch), DataLoader(Reading(lambda data, index: None), batch_size=4)
    job.saw_loader(loader)
    undo = WORKERS.apply(job, {"workers": 1})
    seen = [next(iter(loader)) for _ in range(8)]
    assert len(seen) == 8
    assert isinstance(undo, WatchedUndo)
    assert undo.trouble() == "its epochs end before workers are of use"
    undo()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_a_job_that_handles_the_end_of_its_children_gets_none_of_ours(handler: object) -> None:
    job, loader = Job(torch), DataLoader(Reading(lambda data, index: None), batch_size=4)
    job.saw_loader(loader)
    before = signal.signal(signal.SIGCHLD, handler)  # type: ignore[arg-type]
    try:
        with pytest.raises(Refused, match="SIGCHLD") if callable(handler) else contextlib.nullcontext():
            WORKERS.apply(job, {"workers": 1})()
    finally:
        signal.signal(signal.SIGCHLD, before)


class Split(str, enum.Enum):
    TRAIN = "train"


def test_members_of_an_enumeration_arrive_as_themselves() -> None:
    region, held = memoryview(bytearray(64)), batch_workers.HeldMemory(DatasetState([("a", Split.TRAIN)]))
    (arrived,) = receive(send([Split.TRAIN], region, held), region)  # type: ignore[misc]
    assert arrived is Split.TRAIN


def test_what_would_not_arrive_as_it_is_is_not_sent() -> None:
    region = memoryview(bytearray(1 << 16))
    base = torch.arange(12.0).reshape(3, 4)
    fine = {"a": [base, base], "b": (numpy.float32(2), None), "c": Marked(torch.ones(2)), "d": numpy.eye(2)}
    nothing = batch_workers.HeldMemory(DatasetState([]))
    arrived = receive(send(fine, region, nothing), region)
    assert exactly(fine, arrived)
    assert arrived["a"][0] is arrived["a"][1]  # type: ignore[index]
    for bad in (base[:, :2], [base, base[0]], nn.Parameter(base), numpy.eye(4)[:, ::2], torch.zeros(1 << 16)):
        with pytest.raises(Unsendable):
            send(bad, region, nothing)
    with pytest.raises(Unsendable, match="own"):
        send([fine], region, batch_workers.HeldMemory(DatasetState([fine])))
    rows = numpy.zeros((4, 4))
    for part in (rows[1:3], torch.from_numpy(rows[2])):
        with pytest.raises(Unsendable, match="something else holds"):
            send(part, region, batch_workers.HeldMemory(DatasetState([rows])))
    with torch.inference_mode(), pytest.raises(Unsendable):
        send(torch.ones(2), region, nothing)
    assert not exactly(base, base.t().contiguous().t())
    assert not exactly({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert exactly(float("nan"), float("nan"))
    assert not exactly(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert not exactly(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not exactly((1, 2), [1, 2])
    assert exactly([Path("a"), 1.5, {2}], [Path("a"), 1.5, {2}])
