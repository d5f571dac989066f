"""DataLoaders cured in mid-training: the next epochs load otherwise, with the same bits, and are put back."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader import loader_workers
from autobrrr.injected.remedies.loader.loader_cache import CHECK_EVERY, Cached
from autobrrr.injected.remedies.loader.loader_switch import DESK
from autobrrr.injected.remedies.loader.loader_view import of_loader
from autobrrr.injected.remedies.registry import Refused

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]  # as in a worker

PLAIN_ITER = DataLoader.__dict__["__iter__"]
Names = list[tuple[str, dict[str, object]]]
WORKERS: Names = [("loader.workers", {"workers": 1})]
ALL: Names = [*WORKERS, ("loader.prefetch_factor", {"batches": 3}), ("loader.persistent_workers", {})]


PLACE: Any = torch  # an installed module: nobody looks into it
PLACE.readings = {}


class Numbers(Dataset[torch.Tensor]):
    """Items by index; notes its readings where nobody looks; may change."""

    def __init__(self, *, drifts: bool = False, length: int = 16) -> None:
        self.drifts, self.length = drifts, length
        PLACE.readings[id(self)] = 0

    @property
    def read(self) -> int:
        return int(PLACE.readings[id(self)])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        PLACE.readings[id(self)] += 1
        item = torch.full((3,), float(index))
        return item + self.read if self.drifts else item


class Drawing(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + torch.rand(3)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.zeros(2)] * 8)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    assert DataLoader.__dict__["__iter__"] is PLAIN_ITER
    assert not DESK.has("loader.workers")
    assert multiprocessing.active_children() == []


def epochs(
    remedies: Names, *, undo_at: int = 4, loader: DataLoader[torch.Tensor] | None = None
) -> tuple[list[object], list[tuple[object, ...]]]:
    """Five epochs, a random number after each batch; remedies go on in the first, off in `undo_at`."""
    torch.manual_seed(1)
    loader = loader or DataLoader(Numbers(), batch_size=4, shuffle=True)
    seen: list[object] = []
    settings = []
    undos: list[Callable[[], None]] = []
    for epoch in range(5):
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            seen += [batch.tolist(), torch.rand(1).item()]
            if (epoch, number) == (0, 1):
                job = Job(torch)
                job.saw_iterator(iterator)
                undos = [REGISTRY[name].apply(job, options) for name, options in remedies]
            if (epoch, number) == (undo_at, 1):
                while undos:
                    undos.pop()()
        view = DESK.view_of(loader)
        settings.append((view.num_workers, view.prefetch_factor, view.persistent_workers))
        assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (0, None, False)
        del iterator
    return seen, settings


@pytest.mark.parametrize("undo_at", [2, 4])
@pytest.mark.parametrize("remedies", [WORKERS, ALL, [("loader.cache", {})]], ids=["workers", "all", "cache"])
def test_cured_loaders_give_the_same_bits_and_are_put_back(remedies: Names, undo_at: int) -> None:
    plain, settings = epochs([])
    cured, during = epochs(remedies, undo_at=undo_at)
    assert cured == plain
    assert during[-1] == settings[-1] == (0, None, False)
    assert remedies != ALL or during[1] == (1, 3, True)
    assert remedies != WORKERS or during[1] == (1, 2, False)


def test_a_cache_reads_each_item_once_and_checks_some_of_them_again() -> None:
    data = Numbers()
    epochs([("loader.cache", {})], loader=DataLoader(data, batch_size=4))
    assert data.read < 16 + 9 + 16 + 5  # the first epoch, the proof, at most one more, some checks
    cached = Cached(drifting := Numbers(), 1 << 20)
    for _ in range(CHECK_EVERY):
        assert cached[3].tolist() == [3.0] * 3  # type: ignore[attr-defined]
    drifting.drifts = True
    assert cached[3].tolist() != [3.0] * 3  # type: ignore[attr-defined]
    assert cached.broken
    assert Cached(Numbers(), 1)[5].tolist() == [5.0] * 3  # type: ignore[attr-defined]


def test_random_items_make_another_stream_and_are_never_cached() -> None:
    job = Job(torch)
    job.saw_loader(loader := DataLoader(Drawing()))
    before = torch.get_rng_state()
    workers = REGISTRY["loader.workers"]
    undo = workers.apply(job, {"workers": 1})
    assert workers.class_on(job) == "stream"
    assert torch.equal(before, torch.get_rng_state())
    undo()
    with pytest.raises(Refused, match="random numbers"):
        REGISTRY["loader.cache"].apply(job, {})
    assert loader.num_workers == 0


@pytest.mark.parametrize("name", ["loader.workers", "loader.prefetch_factor", "loader.persistent_workers"])
def test_a_later_loader_that_draws_stays_as_it_is_where_its_stream_must_stay(name: str) -> None:
    workers = 0 if name == "loader.workers" else 1
    calm, drawing = (DataLoader(made(), num_workers=workers) for made in (Numbers, Drawing))
    for allowed, changed in ((["bitwise"], False), (["bitwise", "rounding", "stream"], True)):
        job = Job(torch)
        job.saw_loader(calm)
        job.allowed = allowed
        undo = REGISTRY[name].apply(job, {})
        job.allowed = None  # of what is applied next
        before = of_loader(drawing)
        for loader in (calm, drawing):
            iter(loader)
        assert (before != replace(DESK.view_of(drawing), began_persistent=False)) == changed
        undo()


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (lambda: DataLoader(Stream()), "loader.workers", "iterable dataset"),
        (lambda: DataLoader(Numbers(drifts=True)), "loader.workers", "differs from itself"),
        (lambda: DataLoader(Numbers(), num_workers=1), "loader.cache", "in the workers"),
        (lambda: DataLoader(Numbers(), batch_size=None), "loader.cache", "training could change"),
        (lambda: DataLoader(Numbers(), collate_fn=list), "loader.cache", "training could change"),
        (lambda: DataLoader(Numbers()), "loader.prefetch_factor", "no workers"),
        (lambda: DataLoader(Numbers()), "loader.persistent_workers", "no workers"),
        (lambda: DataLoader(Numbers(), batch_size=9), "batch.larger", "smaller than a batch"),
        (lambda: DataLoader(Numbers(), batch_sampler=[[1, 2]]), "batch.larger", "the job's own"),
        (lambda: DataLoader([]), "loader.workers", "empty"),
        (lambda: DataLoader([1 / 3, None]), "loader.workers", None),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(
    make: Callable[[], DataLoader[object]], name: str, says: str | None
) -> None:
    job = Job(torch)
    try:
        job.saw_loader(loader := make())
    except ValueError:
        return  # torch takes no empty dataset itself
    before = dict(vars(loader))
    if says is None:
        REGISTRY[name].apply(job, {"workers": 1})()
    else:
        with pytest.raises(Refused, match=says):
            REGISTRY[name].apply(job, {"workers": 1} if name == "loader.workers" else {})
    assert vars(loader) == before


def test_a_loader_that_cannot_start_with_workers_starts_without(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(torch)
    job.saw_loader(loader := DataLoader(Numbers(), batch_size=4))
    undo = REGISTRY["loader.workers"].apply(job, {"workers": 1})

    def no_fork(*_: object) -> None:
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr("os.fork", no_fork)
    assert [len(list(loader)) for _ in range(2)] == [4, 4]
    assert DESK.view_of(loader).num_workers == 0
    undo()


def test_a_larger_batch_comes_with_the_next_epoch_and_goes_with_the_undo() -> None:
    job = Job(torch)
    job.saw_loader(loader := DataLoader(TensorDataset(torch.arange(16.0)), batch_size=2, shuffle=True))
    sampler = loader.batch_sampler
    undo = REGISTRY["batch.larger"].apply(job, {"factor": 4})
    assert [len(batch[0]) for batch in loader] == [8, 8]
    assert loader.batch_size == 8
    undo()
    assert loader.batch_sampler is sampler
    assert [len(batch[0]) for batch in loader] == [2] * 8


def test_a_batch_beyond_the_free_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autobrrr.injected.remedies.loader import batch_size

    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "status").write_text("VmHWM:\t 1024 kB\n")
    assert batch_size.extra_bytes(Job(torch), 3, tmp_path) == 2 << 20
    monkeypatch.setattr(batch_size, "free_bytes", lambda job: 1 << 20)
    job = Job(torch)
    job.saw_loader(loader := DataLoader(Numbers(), batch_size=2))
    with pytest.raises(Refused, match=r"may need \d+ MiB more, 1 MiB are free"):
        REGISTRY["batch.larger"].apply(job, {})
    assert loader.batch_size == 2


class Wide(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index).repeat(2048)


class WideDrawing(Wide):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + torch.rand((), generator=self.generator)


@pytest.mark.parametrize("kind", [Wide, WideDrawing])
@pytest.mark.parametrize(
    ("name", "options", "fits"),
    [
        ("batch.larger", {"factor": 2}, True),
        ("batch.larger", {"factor": 8}, False),
        ("loader.prefetch_factor", {"batches": 3}, True),
        ("loader.prefetch_factor", {"batches": 16}, False),
    ],
)
def test_workers_of_the_jobs_own_send_no_more_at_a_time_than_shared_memory_holds(
    kind: type[Numbers], name: str, options: dict[str, object], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_workers, "_free_shared_bytes", lambda: 1 << 20)  # a batch takes 48 KiB
    job = Job(torch)
    job.saw_loader(loader := DataLoader(kind(), batch_size=2, num_workers=1))
    if fits:
        REGISTRY[name].apply(job, options)()
        return
    with pytest.raises(Refused, match="MiB of shared memory"):
        REGISTRY[name].apply(job, options)
    assert (loader.batch_size, loader.prefetch_factor) == (2, 2)


class Resumable(SequentialSampler):
    """Says where it stands, to a checkpoint."""

    def state_dict(self) -> dict[str, object]:
        return {}


def test_a_sampler_that_is_saved_with_where_it_stands_is_not_read_ahead() -> None:
    data = Numbers()
    samplers = (
        {"batch_size": 2, "sampler": Resumable(data)},
        {"batch_sampler": BatchSampler(Resumable(data), 2, drop_last=False)},
    )
    for each in samplers:
        job = Job(torch)
        job.saw_loader(loader := DataLoader(data, **each))  # type: ignore[arg-type]
        with pytest.raises(Refused, match="would stand some batches ahead"):
            REGISTRY["loader.workers"].apply(job, {"workers": 1})
        assert loader.num_workers == 0
