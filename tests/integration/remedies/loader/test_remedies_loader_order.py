"""When random numbers are drawn, and who else holds what a loader gives: with workers as without."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader import loader_items, loader_view
from autobrrr.injected.remedies.registry import Refused

pytestmark = pytest.mark.integration

WORKERS, PERSISTENT = ("loader.workers", {"workers": 1}), ("loader.persistent_workers", {})
Loader = DataLoader[object]


@pytest.fixture(autouse=True)
def no_worker_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def in_a_loop(one: Loader, other: Loader) -> Iterator[object]:
    for batch in one:
        yield batch, torch.rand(1)


def in_turn(one: Loader, other: Loader) -> Iterator[object]:
    yield from zip(one, other, strict=True)


def after_a_draw(one: Loader, other: Loader) -> Iterator[object]:
    iterator = iter(one)
    yield torch.rand(2)
    yield from iterator


def twice_at_once(one: Loader, other: Loader) -> Iterator[object]:
    yield from zip(one, one, strict=True)


def left_early(one: Loader, other: Loader) -> Iterator[object]:
    yield next(iter(one))
    yield torch.rand(1)


def begun_and_left(one: Loader, other: Loader) -> Iterator[object]:
    iter(one)
    yield torch.rand(1)


@pytest.mark.parametrize("remedies", [[WORKERS], [WORKERS, PERSISTENT]], ids=["workers", "persistent"])
@pytest.mark.parametrize(
    "loop", [in_a_loop, in_turn, after_a_draw, twice_at_once, left_early, begun_and_left]
)
def test_whatever_the_loop_the_batches_and_the_random_numbers_are_those_of_a_job_without_us(
    loop: Callable[[Loader, Loader], Iterator[object]], remedies: list[tuple[str, dict[str, object]]]
) -> None:
    def seen(*, on: bool) -> list[object]:
        torch.manual_seed(4)
        loaders: list[Loader] = [
            DataLoader(TensorDataset(torch.arange(24.0)), batch_size=4, shuffle=True) for _ in range(2)
        ]
        job, undos = Job(torch), []
        for loader in loaders:
            job.saw_loader(loader)
        if on:
            undos = [REGISTRY[name].apply(job, options) for name, options in remedies]
        found = [str(each) for _ in range(3) for each in loop(*loaders)]
        for undo in reversed(undos):
            undo()
        return [*found, str(torch.rand(3)), *map(str, loop(*loaders))]

    assert seen(on=True) == seen(on=False)


class Kept(Dataset[object]):
    """Hands over what it keeps."""

    def __init__(self) -> None:
        self.items = [{"state": torch.zeros(2), "name": "x"} for _ in range(16)]

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> object:
        return self.items[index]


class Unchanging(Dataset[object]):
    """Hands over what it keeps, all of which nobody can write to."""

    def __init__(self) -> None:
        self.items = [(Path(f"{each}.png"), "word", numpy.float32(each), 1.5, None) for each in range(16)]

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> object:
        return self.items[index]


def test_what_can_not_be_written_to_may_be_handed_over() -> None:
    job = Job(torch)
    job.saw_loader(loader := DataLoader(Unchanging(), batch_size=4, collate_fn=list))
    assert not loader_items.read_items(job, loader_view.of_loader(loader)).handed


class Mean(Dataset[torch.Tensor]):
    """So many numbers that torch adds them up on several threads, where it has them."""

    def __init__(self) -> None:
        self.numbers = torch.rand(300_000, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return (self.numbers - self.numbers.mean()) / self.numbers.std()


@pytest.mark.parametrize(
    ("options", "is_handed"), [({"collate_fn": list}, True), ({"batch_size": None}, True), ({}, False)]
)
def test_what_the_dataset_keeps_is_not_handed_over_by_workers(
    options: dict[str, object], *, is_handed: bool
) -> None:
    job = Job(torch)
    job.saw_loader(loader := DataLoader(Kept(), **{"batch_size": 4, **options}))  # type: ignore[arg-type]
    if is_handed:
        with pytest.raises(Refused, match="hold the dataset's own memory"):
            REGISTRY["loader.workers"].apply(job, {})
    else:
        REGISTRY["loader.workers"].apply(job, {})()
    assert loader.num_workers == 0


def test_items_that_several_threads_compute_may_round_otherwise_in_a_worker() -> None:
    threads = torch.get_num_threads()
    job = Job(torch)
    job.saw_loader(loader := DataLoader(Mean(), batch_size=4))
    found = []
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            found.append(REGISTRY["loader.workers"].class_on(job))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert found == ["bitwise", "rounding"]
    assert loader.num_workers == 0
