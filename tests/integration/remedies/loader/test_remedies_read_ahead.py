"""Workers of ours: the job takes a batch of theirs where making it would come to the same, else makes it."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, get_worker_info

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader import batch_workers, loader_items, loader_workers, read_ahead
from autobrrr.injected.remedies.loader.read_ahead import ReadAhead
from autobrrr.injected.remedies.registry import Refused, WatchedUndo
from support.processes.own_children import own_children

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]  # as in a worker

WORKERS = REGISTRY["loader.workers"]
Misnamed = namedtuple("Another", "x y")
LOGGER = logging.getLogger(__name__)
COUNT = 24


class Plain(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(4.0) + index


class RarelyDropping(Plain):
    """Draws through a library's module, for an item that nobody tries."""

    def __init__(self) -> None:
        self.drop = nn.Dropout(0.5)

    def __getitem__(self, index: int) -> torch.Tensor:
        item = super().__getitem__(index)
        return self.drop(item) if index == 5 else item


class RarelyCounting(Plain):
    seen = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        self.seen += index == 5
        return super().__getitem__(index) + self.seen


class RarelyPrinting(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            print("five")
            LOGGER.warning("five")
        return super().__getitem__(index)


class RarelyStarting(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            subprocess.run([sys.executable, "-c", ""], check=True)
        return super().__getitem__(index)


class RarelyFailing(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            raise ValueError("bad", index)
        return super().__getitem__(index)


class RarelyEnding(Plain):
    """Ends any process but the job's."""

    job = os.getpid()

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5 and os.getpid() != self.job:
            os._exit(3)
        return super().__getitem__(index)


class RarelyWriting(Plain):
    """Past Python's own streams."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            os.write(1, b"five\n")
        return super().__getitem__(index)


class RarelySharing(Plain):
    """Counts where other processes see it."""

    def __init__(self) -> None:
        self.counts = torch.zeros(1).share_memory_()

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            self.counts[0] += 1
        return super().__getitem__(index) + self.counts[0]


class ByDescriptor(Plain):
    """Reads places of a file, by its number."""

    def __init__(self) -> None:
        self.file = os.memfd_create("items")
        os.write(self.file, bytes(range(256)) * 4)
        os.lseek(self.file, 0, os.SEEK_SET)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(list(os.pread(self.file, 4, 4 * index)))

    def __del__(self) -> None:
        os.close(self.file)


class ReadingOn(ByDescriptor):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(list(os.read(self.file, 4)))


class Asking(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + (get_worker_info() is not None)


class Filling(Plain):
    """Reads what it needs with the first item."""

    table: torch.Tensor | None = None

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(100.0)
        return super().__getitem__(index) + self.table[index]


class Transformed(Plain):
    transform: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __getitem__(self, index: int) -> torch.Tensor:
        item = super().__getitem__(index)
        return item if self.transform is None else self.transform(item)


class WithGradient(Plain):
    def __init__(self) -> None:
        self.points = torch.arange(COUNT * 4.0).reshape(COUNT, 4).requires_grad_()

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.points[index]


@dataclasses.dataclass
class Marked:
    x: torch.Tensor


def misnamed(items: list[torch.Tensor]) -> object:
    return Misnamed(torch.stack(items), len(items))


def with_attribute(items: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.stack(items)
    batch.scale = 2.0  # type: ignore[attr-defined]
    return batch


def transposed(items: list[torch.Tensor]) -> object:
    return numpy.stack([item.numpy() for item in items]).T


def marked(items: list[torch.Tensor]) -> Marked:
    return Marked(torch.stack(items))


class Circular:
    """Holds itself, and can't be compared."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.itself = x, [self]


def circular(items: list[torch.Tensor]) -> Circular:
    return Circular(torch.stack(items))


def numbers_of(batch: object) -> object:
    """All that a step could see of a batch."""
    if isinstance(batch, (list, tuple)):
        return type(batch).__name__, [numbers_of(each) for each in batch]
    if isinstance(batch, (Marked, torch.Tensor)) and vars(batch):
        return [(name, numbers_of(each)) for name, each in vars(batch).items()]
    if isinstance(batch, numpy.ndarray):
        return batch.tolist(), batch.strides, float(batch.sum())
    return (batch.tolist(), batch.stride()) if isinstance(batch, torch.Tensor) else batch


def epochs(
    make: Callable[[], DataLoader[object]],
    *,
    on: bool,
    each: Callable[[int, DataLoader[object]], None] = lambda epoch, loader: None,
    use: Callable[[object], object] = numbers_of,
) -> list[object]:
    """What a job sees in four epochs; workers come in the second."""
    torch.manual_seed(1)
    loader, undo, seen = make(), lambda: None, []
    for epoch in range(4):
        if epoch == 1 and on:
            job = Job(torch)
            job.saw_loader(loader)
            job.allowed = ["bitwise"]
            undo = WORKERS.apply(job, {"workers": 2})  # type: ignore[assignment]
        each(epoch, loader)
        batches = iter(loader)
        while True:
            try:
                seen += [use(next(batches)), torch.rand(1).item()]
            except StopIteration:
                break
            except ValueError as error:
                seen.append(str(error))
    undo()
    return seen


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many batches came from workers; nothing of them stays."""
    found: list[int] = []
    fetch = ReadAhead.fetch

    def counted(self: ReadAhead, index: object) -> object:
        before = self._record.taken
        batch = fetch(self, index)
        found.append(self._record.taken - before)
        return batch

    monkeypatch.setattr(ReadAhead, "fetch", counted)
    yield found
    assert multiprocessing.active_children() == []
    assert own_children() == []


def of(dataset: Dataset[torch.Tensor], **options: object) -> DataLoader[object]:
    return DataLoader(dataset, batch_size=4, shuffle=True, **options)  # type: ignore[arg-type]


KINDS: dict[str, tuple[Callable[[], DataLoader[object]], bool]] = {
    "plain": (lambda: of(Plain()), True),
    "draws rarely": (lambda: of(RarelyDropping()), True),
    "counts rarely": (lambda: of(RarelyCounting()), True),
    "starts a process rarely": (lambda: of(RarelyStarting()), True),
    "raises rarely": (lambda: of(RarelyFailing()), True),
    "ends its worker": (lambda: of(RarelyEnding()), True),
    "writes to shared memory rarely": (lambda: of(RarelySharing()), True),
    "reads places of a file": (lambda: of(ByDescriptor()), True),
    "asks for its worker": (lambda: of(Asking()), True),
    "fills itself": (lambda: of(Filling()), True),
    "items that want a gradient": (lambda: of(WithGradient()), False),
    "no batches": (lambda: DataLoader(Plain(), batch_size=None), True),
    "a batch that no name leads to": (lambda: of(Plain(), collate_fn=misnamed), False),
    "a batch with an attribute": (lambda: of(Plain(), collate_fn=with_attribute), False),
    "a transposed batch": (lambda: of(Plain(), collate_fn=transposed), True),
    "a batch of its own type": (lambda: of(Plain(), collate_fn=marked), True),
    "starts workers its own way": (lambda: of(Plain(), worker_init_fn=[].__getitem__), True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_random_numbers_are_those_of_a_job_without_workers(kind: str, taken: list[int]) -> None:
    make, is_read = KINDS[kind]
    assert epochs(make, on=True) == epochs(make, on=False)
    assert bool(sum(taken)) == is_read


def test_what_is_printed_and_logged_is_so_by_the_job_alone(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    LOGGER.addHandler(handler)
    try:
        epochs(lambda: of(RarelyPrinting()), on=True)
        epochs(lambda: of(RarelyWriting()), on=True)
    finally:
        LOGGER.removeHandler(handler)
        handler.close()
    assert capfd.readouterr().out == "five\n" * 8
    assert (tmp_path / "log").read_text() == "five\n" * 4


def test_what_reads_a_file_on_is_refused_and_nothing_of_it_is_read() -> None:
    data = ReadingOn()
    job, loader = Job(torch), of(data)
    job.saw_loader(loader)
    with pytest.raises(Refused, match="differs from itself"):
        WORKERS.apply(job, {"workers": 1})
    assert os.lseek(data.file, 0, os.SEEK_CUR) == 0


def test_a_transform_that_comes_later_is_seen_and_so_is_one_in_mid_epoch() -> None:
    def change(epoch: int, loader: DataLoader[object]) -> None:
        if epoch == 2:
            loader.dataset.transform = torch.rand_like  # type: ignore[attr-defined]

    def in_between(batch: object) -> object:
        if batch[0, 0] == 7:  # type: ignore[index]
            data.transform = torch.neg
        return numbers_of(batch)

    def make() -> DataLoader[object]:
        nonlocal data
        data = Transformed()
        return of(data)

    data = Transformed()
    for more in ({"each": change}, {"use": in_between}):
        assert epochs(make, on=True, **more) == epochs(make, on=False, **more)  # type: ignore[arg-type]


def test_samplers_that_share_a_generator_draw_in_their_turn() -> None:
    def seen(*, on: bool) -> list[object]:
        generator = torch.Generator().manual_seed(2)
        loaders = [
            DataLoader(
                Plain(),
                4,
                sampler=SubsetRandomSampler(range(COUNT), generator=generator),
                generator=generator,
            )
            for _ in range(2)
        ]
        job = Job(torch)
        for loader in loaders:
            job.saw_loader(loader)
        undo = WORKERS.apply(job, {"workers": 1}) if on else lambda: None
        found = [numbers_of(pair) for _ in range(2) for pair in zip(*loaders, strict=True)]
        undo()
        return found

    assert seen(on=True) == seen(on=False)


def test_a_batch_is_the_jobs_own_memory() -> None:
    def grown(batch: object) -> object:
        return numbers_of(batch.resize_(8, 4)[:4])  # type: ignore[attr-defined]

    assert epochs(lambda: of(Plain()), on=True, use=grown) == epochs(lambda: of(Plain()), on=False, use=grown)


@pytest.mark.parametrize("after", range(8))
def test_no_batch_is_lost_or_seen_twice_where_workers_have_gone(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, asked, ask = epochs(lambda: of(Plain()), on=False), 0, batch_workers.Workers.ask

    def gone(self: batch_workers.Workers, index: object) -> int | None:
        nonlocal asked
        asked += 1
        if asked > after:
            raise BrokenPipeError
        return ask(self, index)

    monkeypatch.setattr(batch_workers.Workers, "ask", gone)
    assert epochs(lambda: of(Plain()), on=True) == before


def test_a_job_may_keep_more_tensors_than_it_may_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[object] = []
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 12, hard))
    try:
        epochs(lambda: DataLoader(Plain(), 1), on=True, use=kept.append)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(kept) == 4 * COUNT


def test_a_worker_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_workers, "PATIENCE_S", 0.2)
    job = os.getpid()

    class Hanging(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            if os.getpid() != job and index == 9:
                time.sleep(60)
            return super().__getitem__(index)

    assert epochs(lambda: of(Hanging()), on=True) == epochs(lambda: of(Hanging()), on=False)


def test_the_jobs_signal_handlers_are_not_called_in_workers(tmp_path: Path) -> None:
    def handle(number: int, frame: object) -> None:
        (tmp_path / f"{os.getpid()}").touch()

    children: list[int] = []

    def signalled(batch: object) -> object:
        children.extend(own_children())
        for pid in {*children, os.getpid()}:
            try:
                os.kill(pid, signal.SIGUSR1)
            except ProcessLookupError:
                continue
        return None

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        epochs(lambda: of(Plain()), on=True, use=signalled)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert children
    assert [file.name for file in tmp_path.iterdir()] == [f"{os.getpid()}"]


def test_where_workers_make_other_batches_the_remedy_has_trouble_and_the_job_makes_them() -> None:
    job_pid = os.getpid()

    class Unlike(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            return super().__getitem__(index) + (os.getpid() != job_pid)

    loader, job = of(Unlike()), Job(torch)
    job.saw_loader(loader)
    undo = WORKERS.apply(job, {"workers": 1})
    assert isinstance(undo, WatchedUndo)
    assert undo.trouble() is None
    rows = torch.cat(list(loader))  # type: ignore[arg-type]
    assert sorted(rows[:, 0].tolist()) == list(map(float, range(COUNT)))
    assert undo.trouble() == "a worker made another batch than the job"
    undo()


@pytest.mark.parametrize("is_known", [True, False])
def test_it_goes_on_and_off_in_the_middle_of_an_epoch(taken: list[int], *, is_known: bool) -> None:
    def seen(*, on: bool) -> list[object]:
        torch.manual_seed(5)
        loader, job, undo = DataLoader(Plain(), 2, shuffle=True), Job(torch), None
        if is_known:
            job.saw_loader(loader)
        found: list[object] = []
        for _ in range(3):
            iterator = iter(loader)
            for number, batch in enumerate(iterator):
                found += [numbers_of(batch), torch.rand(1).item()]
                job.saw_iterator(iterator)
                if on and number % 6 == 1:
                    undo = WORKERS.apply(job, {"workers": 2})
                if undo is not None and number % 6 == 4:
                    undo = undo()
        return found

    assert seen(on=True) == seen(on=False)
    assert sum(taken) >= 3


def test_workers_of_the_jobs_own_stay_as_many_on_a_running_job() -> None:
    job, loader = Job(torch), of(Plain(), num_workers=1)
    job.saw_loader(loader)
    with pytest.raises(Refused, match="takes a new start"):
        WORKERS.apply(job, {"workers": 2})


def test_an_undo_in_mid_epoch_leaves_nothing_of_ours_and_loses_no_batch() -> None:
    loader = of(Plain())
    job = Job(torch)
    job.saw_loader(loader)
    undo = WORKERS.apply(job, {"workers": 2})
    iterator = iter(loader)
    first = next(iterator)
    undo()
    ours = [value for value in vars(iterator).values() if type(value).__module__.startswith("autobrrr")]
    assert ours == []
    assert loader.num_workers == 0
    rows = torch.cat([first, *iterator])  # type: ignore[list-item]
    assert sorted(rows[:, 0].tolist()) == list(map(float, range(COUNT)))


def test_a_sampler_that_fails_does_so_in_its_turn() -> None:
    class Failing:
        def __iter__(self) -> Iterator[list[int]]:
            yield [0, 1]
            yield [2, 3]
            raise ValueError("no more")

    def make() -> DataLoader[object]:
        return DataLoader(Plain(), batch_sampler=Failing())  # type: ignore[arg-type]

    def seen(*, on: bool) -> list[object]:
        loader, job, found = make(), Job(torch), list[object]()
        job.saw_loader(loader)
        undo = WORKERS.apply(job, {"workers": 2}) if on else lambda: None
        with pytest.raises(ValueError, match="no more"):
            found.extend(map(numbers_of, loader))
        undo()
        return found

    assert seen(on=True) == seen(on=False)
    assert len(seen(on=True)) == 2


def test_workers_that_were_the_jobs_own_draw_the_sampler_when_the_epoch_begins() -> None:
    def seen(number: int | None) -> list[object]:
        torch.manual_seed(3)
        loader, job = of(Plain(), num_workers=1), Job(torch)
        job.saw_loader(loader)
        job.planned = True
        undo = WORKERS.apply(job, {"workers": number}) if number is not None else lambda: None
        found: list[object] = []
        for _ in range(2):
            iterator = iter(loader)
            found += [torch.rand(1).item(), *map(numbers_of, iterator)]
            del iterator
        undo()
        return found

    assert seen(0) == seen(2) == seen(None)


def test_a_batch_that_can_not_be_compared_is_the_jobs_own_and_no_error_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(one: object, other: object) -> bool:
        raise RecursionError

    job, loader = Job(torch), of(Plain(), collate_fn=circular)
    job.saw_loader(loader)
    with pytest.raises(Refused, match="hold themselves"):
        WORKERS.apply(job, {"workers": 1})
    monkeypatch.setattr(read_ahead, "exactly", fails)
    assert epochs(lambda: of(Plain()), on=True) == epochs(lambda: of(Plain()), on=False)


def test_a_thread_that_reads_the_loader_loses_no_batch_to_an_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (read_ahead, loader_items, loader_workers):  # it may be seen too late
        monkeypatch.setattr(where, "refuse_children", lambda: None)
    for _ in range(20):
        job, loader = Job(torch), DataLoader(Plain(), 1)
        job.saw_loader(loader)
        undo = WORKERS.apply(job, {"workers": 1})
        found: list[float] = []
        reader = threading.Thread(target=lambda: found.extend(each[0, 0].item() for each in loader))  # noqa: B023
        reader.start()
        time.sleep(0.003 * len(found))
        undo()
        again = WORKERS.apply(job, {"workers": 1})
        reader.join()
        again()
        assert found == list(range(COUNT))


def test_a_child_of_the_jobs_that_reads_on_takes_nothing_from_the_job() -> None:
    job, loader = Job(torch), DataLoader(Plain(), 1)
    job.saw_loader(loader)
    undo = WORKERS.apply(job, {"workers": 1})
    batches, found = iter(loader), list[float]()
    for number in range(COUNT):
        if number == 9 and not (child := os.fork()):
            os._exit([next(batches)[0, 0].item() for _ in range(3)] != [9.0, 10.0, 11.0])
        found.append(next(batches)[0, 0].item())
    assert os.waitpid(child, 0)[1] == 0
    undo()
    assert found == list(range(COUNT))
