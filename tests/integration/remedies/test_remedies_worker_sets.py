"""Workers of ours that come and go within an epoch, stop reading, or are killed: the job goes on."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader import batch_workers, read_ahead
from autobrrr.injected.remedies.loader.batch_workers import DECLINED, BatchTask, Workers
from autobrrr.injected.remedies.loader.dataset_state import DatasetState

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]  # as in a worker

WORKERS = REGISTRY["loader.workers"]


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
            undo = WORKERS.apply(job, {"workers": 2})
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
        undo = WORKERS.apply(job, {"workers": 2})
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


def test_an_epoch_may_be_read_ahead_and_left_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "Workers", Declining)
    loader, job = DataLoader(Counting(1300), 1, shuffle=True), Job(torch)
    job.saw_loader(loader)
    batches = iter(loader)
    sampler = vars(batches)["_sampler_iter"]
    found = [next(batches)]
    job.saw_iterator(batches)
    for _ in range(1200):
        undo = WORKERS.apply(job, {"workers": 1})
        found.append(next(batches))
        undo()
    found += [next(batches) for _ in range(2)]
    assert vars(batches)["_sampler_iter"] is sampler  # all that was read of it is handed over
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
        undo = WORKERS.apply(job, {"workers": 1}) if len(found) < switches else None
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


class Either(Counting):
    """Takes an index as a number, or in a list."""

    def __getitem__(self, index: object) -> torch.Tensor:
        return super().__getitem__(index[0] if isinstance(index, list) else int(index))  # type: ignore[call-overload]


@pytest.mark.parametrize("sampler", [ReusingLists, ReusingArrays])
def test_a_sampler_may_write_over_an_index_that_it_has_yielded(sampler: type) -> None:
    loader: DataLoader[torch.Tensor] = DataLoader(Either(16), batch_sampler=sampler())
    job = Job(torch)
    job.saw_loader(loader)
    undo = WORKERS.apply(job, {"workers": 2})
    batches = iter(loader)
    found = [next(batches)]
    undo()  # what is on its way is made by the job
    found += batches
    assert torch.cat(found)[:, 0].tolist() == list(map(float, range(16)))


def children() -> list[int]:
    return list(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


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
        (child,) = children()
        os.kill(child, signal.SIGSTOP)
        index = list(range(100, 180))
        assert None in [workers.ask(index) for _ in range(2000)]
    finally:
        workers.close()
    assert not children()


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
            WORKERS.apply(job, {"workers": 2})
            found = []
            for batch in loader:
                found += batch[:, 0].tolist()
                if len(found) == 8:
                    for each in children():
                        os.kill(each, way)
            status = found != list(map(float, range(64)))
        finally:
            for each in children():
                os.kill(each, signal.SIGKILL)
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
