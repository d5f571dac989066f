"""The order of batches and random numbers, and who else holds them: the same with workers, which may go."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader import batch_workers, loader_items, loader_view, read_ahead
from autobrrr.injected.remedies.loader.batch_workers import DECLINED, BatchTask, Workers
from autobrrr.injected.remedies.loader.dataset_state import DatasetState
from autobrrr.injected.remedies.registry import Refused
from support.processes.own_children import own_children

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


class Counting(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


class Noisy(Counting):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, torch.rand(()).item(), random.random(), numpy.random.random()])


def test_workers_that_come_again_within_an_epoch_draw_on() -> None:
    loader, job = DataLoader(Noisy(32), 1), Job(torch)
    job.saw_loader(loader)
    undo, rows = None, []
    batches = iter(loader)
    for number, batch in enumerate(batches):
        rows.append(batch[0])
        job.saw_iterator(batches)
        if number % 4 == 1:
            undo = REGISTRY["loader.workers"].apply(job, {"workers": 2})
        if number % 4 == 3 and undo is not None:
            undo()
    for column in torch.stack(rows).T:
        assert len(set(column.tolist())) == len(rows)


def test_an_epoch_that_begins_with_workers_draws_one_seed_from_the_job_as_it_does_without() -> None:
    def drawn(*, on: bool) -> float:
        torch.manual_seed(1)
        loader, job = DataLoader(Noisy(8), 1), Job(torch)
        job.saw_loader(loader)
        if not on:
            iter(loader)
            return torch.rand(()).item()
        undo = REGISTRY["loader.workers"].apply(job, {"workers": 2})
        assert len(list(loader)) == 8
        undo()
        return torch.rand(()).item()

    assert drawn(on=True) == drawn(on=False)


class Declining:
    """In the place of workers: asked, and never of use."""

    is_idle = True

    def __init__(self, task: BatchTask, count: int, ahead: int) -> None:
        self.state = task.state
        self.numbers = itertools.count()

    def ask(self, index: object) -> int:
        return next(self.numbers)

    def take(self, number: int) -> object:
        return DECLINED

    def close(self) -> None:
        """Nothing to end."""


class Grows:
    """A sampler that can fail and go on."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        self.at += 1
        if self.at == 5:
            raise ValueError("five")
        if self.at > 9:
            raise StopIteration
        return [self.at]


def stands_for_its_sampler(batches: object) -> list[object]:
    """What Python's own iterators hold there."""
    found = [vars(batches)["_sampler_iter"]]
    own = (map, itertools.chain, itertools.repeat, tuple, type(iter(())), type(iter([])))
    for each in found:
        if isinstance(each, own):
            found += gc.get_referents(each)
    return found


def test_an_epoch_may_be_read_ahead_and_left_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "Workers", Declining)
    loader, job = DataLoader(Counting(1300), 1, shuffle=True), Job(torch)
    job.saw_loader(loader)
    batches = iter(loader)
    sampler = vars(batches)["_sampler_iter"]
    found = [next(batches)]
    job.saw_iterator(batches)
    for _ in range(1200):
        undo = REGISTRY["loader.workers"].apply(job, {"workers": 1})
        found.append(next(batches))
        undo()
    found += [next(batches) for _ in range(2)]
    standing = stands_for_its_sampler(batches)
    assert any(each is sampler for each in standing)
    assert len(standing) < 20  # no deeper, however often
    found += batches
    assert sorted(torch.cat(found)[:, 0].tolist()) == list(map(float, range(1300)))


@pytest.mark.parametrize("switches", [0, 1, 2, 9])
def test_a_sampler_that_fails_and_goes_on_does_so_in_its_turn(
    switches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "Workers", Declining)
    loader: DataLoader[torch.Tensor] = DataLoader(Counting(16), batch_sampler=Grows())  # type: ignore[arg-type]
    job, found = Job(torch), list[object]()
    job.saw_loader(loader)
    batches = iter(loader)
    while True:
        job.saw_iterator(batches)
        undo = REGISTRY["loader.workers"].apply(job, {"workers": 1}) if len(found) < switches else None
        try:
            found.append(next(batches).item())
        except ValueError as error:
            found.append(str(error))
        except StopIteration:
            break
        finally:
            if undo is not None:
                undo()
    assert found == [1, 2, 3, 4, "five", 6, 7, 8, 9]


class SetsItselfBack:
    """Batches that are their own iterator, which begins anew after its end."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> SetsItselfBack:
        return self

    def __next__(self) -> list[int]:
        if self.at == 8:
            self.at = 0
            raise StopIteration
        self.at += 1
        return [self.at]


@pytest.mark.parametrize("undone_after", [1, 6, 8, None])  # all are asked for after 5
def test_a_sampler_that_sets_itself_back_at_its_end_ends_the_epoch_there(undone_after: int | None) -> None:
    loader, job = DataLoader(Counting(64), batch_sampler=SetsItselfBack()), Job(torch)
    job.saw_loader(loader)
    undo = REGISTRY["loader.workers"].apply(job, {"workers": 2})
    epochs = []
    for _ in range(2):
        epochs.append(0)
        for _ in itertools.islice(loader, 99):
            epochs[-1] += 1
            if epochs == [undone_after]:
                undo()
    undo()
    assert epochs == [8, 8]


def read_to_the_end(loader: Loader) -> None:
    for _ in loader:
        pass


def left_with_the_last_batch(loader: Loader) -> None:
    for number, _ in enumerate(loader, 1):
        if number == len(loader):
            break


def left_when_all_are_asked_for(loader: Loader) -> None:
    for number, _ in enumerate(loader, 1):
        if number == len(loader) - 2:
            break


@pytest.fixture
def of_ours() -> Iterator[Callable[[], int]]:
    """Counts what would stay; nothing is collected meanwhile."""
    kinds = read_ahead.ReadAhead, read_ahead._Indices, Workers
    gc.collect()
    gc.disable()
    try:
        yield lambda: sum(isinstance(each, kinds) for each in gc.get_objects())
    finally:
        gc.enable()


@pytest.mark.parametrize("epoch", [read_to_the_end, left_with_the_last_batch, left_when_all_are_asked_for])
def test_an_epoch_leaves_neither_workers_nor_cycles_whatever_ends_it(
    epoch: Callable[[Loader], None], of_ours: Callable[[], int]
) -> None:
    loader, job = DataLoader(Counting(64), 4, shuffle=True), Job(torch)
    job.saw_loader(loader)
    others = own_children()
    undo = REGISTRY["loader.workers"].apply(job, {"workers": 2})
    try:
        for _ in range(3):
            epoch(loader)
            assert (of_ours(), own_children()) == (0, others)
    finally:
        undo()


def test_what_stands_for_a_sampler_after_the_undo_is_no_object_of_ours() -> None:
    loader, job = DataLoader(Counting(64), 4, shuffle=True), Job(torch)
    job.saw_loader(loader)
    batches = iter(loader)
    job.saw_iterator(batches)
    undo = REGISTRY["loader.workers"].apply(job, {"workers": 2})
    next(batches)
    undo()
    assert not any(isinstance(each, read_ahead._Indices) for each in stands_for_its_sampler(batches))
    assert len(list(batches)) == 15


def test_an_epoch_that_goes_on_without_workers_leaves_no_cycle_either(of_ours: Callable[[], int]) -> None:
    loader, job = DataLoader(Counting(64), 4, shuffle=True), Job(torch)
    job.saw_loader(loader)
    undo = REGISTRY["loader.workers"].apply(job, {"workers": 2})
    batches = iter(loader)
    for _ in range(14):
        next(batches)
    undo()
    next(batches)
    del batches
    assert of_ours() == 0


class ReusingLists:
    """Writes each index over the one before."""

    def __iter__(self) -> Iterator[list[list[int]]]:
        held = [[0], [0]]
        for number in range(0, 16, 2):
            held[0][0], held[1][0] = number, number + 1
            yield held


class ReusingArrays:
    def __iter__(self) -> Iterator[numpy.ndarray]:
        held = numpy.zeros(2, dtype=int)
        for number in range(0, 16, 2):
            held[:] = number, number + 1
            yield held


class ReusingItsOwn:
    """A list of its own class, which nobody can copy exactly."""

    class Batch(list[int]):
        pass

    def __iter__(self) -> Iterator[list[int]]:
        held = self.Batch([0, 0])
        for number in range(0, 16, 2):
            held[:] = number, number + 1
            yield held


class Either(Counting):
    """Takes an index as a number, or in a list."""

    def __getitem__(self, index: object) -> torch.Tensor:
        return super().__getitem__(index[0] if isinstance(index, list) else int(index))  # type: ignore[call-overload]


@pytest.mark.parametrize("sampler", [ReusingLists, ReusingArrays, ReusingItsOwn])
def test_a_sampler_may_write_over_an_index_that_it_has_yielded(sampler: type) -> None:
    loader: DataLoader[torch.Tensor] = DataLoader(Either(16), batch_sampler=sampler())
    job = Job(torch)
    job.saw_loader(loader)
    undo = REGISTRY["loader.workers"].apply(job, {"workers": 2})
    batches = iter(loader)
    found = [next(batches)]
    undo()  # what is on its way is made by the job
    found += batches
    assert torch.cat(found)[:, 0].tolist() == list(map(float, range(16)))


def test_a_worker_that_stops_reading_keeps_nobody_waiting_who_asks() -> None:
    data = Counting(8)
    task = BatchTask(
        fetch=partial(list, [[1]]),
        state=DatasetState(data),
        room_bytes=1 << 16,
        draws=False,
        seed=0,
    )
    workers = Workers(task, 1, 256)
    try:
        (child,) = own_children()
        os.kill(child, signal.SIGSTOP)
        index = list(range(100, 180))
        assert None in [workers.ask(index) for _ in range(2000)]
    finally:
        workers.close()
    assert not own_children()


@pytest.mark.parametrize("way", [signal.SIGSTOP, signal.SIGKILL])
def test_workers_that_are_stopped_or_killed_end_no_job_that_has_sigpipe_at_its_default(
    way: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_workers, "PATIENCE_S", 0.2)
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            loader, job = DataLoader(Counting(64), 2), Job(torch)
            job.saw_loader(loader)
            REGISTRY["loader.workers"].apply(job, {"workers": 2})
            found = []
            for batch in loader:
                found += batch[:, 0].tolist()
                if len(found) == 8:
                    for each in own_children():
                        os.kill(each, way)
            status = found != list(map(float, range(64)))
        finally:
            for each in own_children():
                os.kill(each, signal.SIGKILL)
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
