"""DataLoaders that load otherwise from their next epoch on, and have their own settings after the undo."""

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.loader import loader_settings, loader_workers
from autobrrr.agent.remedies.registry import RefusalCode, Refused, WatchedUndo

pytestmark = pytest.mark.integration

PLAIN_ITER = DataLoader.__dict__["__iter__"]
Remedies = dict[str, dict[str, object]]
WORKERS: Remedies = {"loader.workers": {"workers": 2}}
ALL: Remedies = {**WORKERS, "loader.prefetch_factor": {"batches": 3}, "loader.persistent_workers": {}}


class Numbers(Dataset[torch.Tensor]):
    """Items by index. Some of them do in a worker what a worker can't."""

    def __init__(self, odd: str | None = None) -> None:
        self.home, self.odd = os.getpid(), odd

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 13 and os.getpid() != self.home:
            if self.odd == "hangs":
                time.sleep(1000)
            if self.odd == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.odd == "raises":
                raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return torch.full((3,), float(index))


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.zeros(2)] * 8)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    assert DataLoader.__dict__["__iter__"] is PLAIN_ITER
    assert multiprocessing.active_children() == []


def seen(loader: DataLoader[torch.Tensor]) -> Job:
    job = Job(torch)
    job.saw_loader(loader)
    return job


def apply(job: Job, remedies: Remedies) -> list[WatchedUndo]:
    return [REGISTRY[name].apply(job, options) for name, options in remedies.items()]  # type: ignore[misc]


def settings(loader: DataLoader[torch.Tensor]) -> dict[str, object]:
    return {name: value for name, value in vars(loader).items() if not name.startswith("_IterableDataset")}


@pytest.mark.parametrize("remedies", [WORKERS, ALL], ids=["workers", "all"])
def test_the_next_epochs_have_the_same_items_also_where_the_undo_comes_in_mid_epoch(
    remedies: Remedies,
) -> None:
    loader = DataLoader(Numbers(), batch_size=4, shuffle=True, generator=torch.Generator())
    own, processes = settings(loader), []
    batches: list[list[float]] = []
    undos: list[WatchedUndo] = []
    for epoch in range(4):
        loader.generator.manual_seed(epoch)
        for number, batch in enumerate(loader):
            batches.append(batch[:, 0].tolist())
            if (epoch, number) == (0, 1):
                undos = apply(seen(loader), remedies)
            if (epoch, number) == (2, 1):
                while undos:
                    undos.pop()()
                assert settings(loader) == own
            if number == 2:
                processes.append(len(multiprocessing.active_children()))
    plain = DataLoader(Numbers(), batch_size=4, shuffle=True, generator=torch.Generator())
    expected = []
    for epoch in range(4):
        plain.generator.manual_seed(epoch)
        expected += [batch[:, 0].tolist() for batch in plain]
    assert processes == [0, 2, 2, 0]
    if remedies is WORKERS:  # workers that stay draw the seed of an epoch at another place in the stream
        assert batches == expected
    for epoch in range(0, 24, 6):
        assert sorted(itertools.chain(*batches[epoch : epoch + 6])) == [float(item) for item in range(24)]


@pytest.mark.parametrize(("odd", "remedies"), [("hangs", ALL), ("dies", WORKERS), ("raises", ALL)])
def test_a_worker_that_fails_ends_no_epoch_and_is_told(
    odd: str, remedies: Remedies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_settings, "PATIENCE_S", 1)
    loader = DataLoader(Numbers(odd), batch_size=4)
    undos = apply(seen(loader), remedies)
    for _ in range(2):
        assert [each for batch in loader for each in batch[:, 0].tolist()] == list(range(24))
        assert "loading failed with it" in str(undos[0].trouble())
    while undos:
        undos.pop()()
    assert loader.num_workers == 0


def test_where_torch_can_not_start_workers_the_epoch_begins_without(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    (undo,) = apply(seen(loader), WORKERS)

    def start(_: object) -> None:
        raise OSError("Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(multiprocessing.context.Process, "start", start)
        assert len(list(loader)) == 6
    assert loader.num_workers == 0
    assert "Cannot allocate memory" in str(undo.trouble())
    undo()


def test_in_mid_epoch_the_iterator_shows_the_settings_of_a_loader_that_nobody_has_seen() -> None:
    job, loader = Job(torch), DataLoader(Numbers(), batch_size=4)
    job.saw_iterator(reading := iter(loader))
    undos = apply(job, {**WORKERS, "batch.larger": {"factor": 2}})
    assert (len(list(reading)), len(list(loader)), loader.num_workers) == (6, 3, 2)
    for undo in undos:
        undo()
    assert (len(list(loader)), loader.num_workers) == (6, 0)
    job.saw_iterator(busy := iter(DataLoader(Numbers(), batch_size=4, num_workers=2)))
    with pytest.raises(Refused, match="has 2 workers already"):
        apply(job, WORKERS)
    with pytest.raises(Refused, match="has prefetch_factor=2 already"):
        apply(job, {"loader.prefetch_factor": {"batches": 2}})
    assert len(list(busy)) == 6


def test_a_loader_that_is_made_anew_gets_workers_and_one_that_evaluation_reads_does_not() -> None:
    model = torch.nn.Linear(3, 1)
    first = DataLoader(Numbers(), batch_size=4)
    job = seen(first)
    job.saw_optimizer(torch.optim.SGD(model.parameters(), 0.1))
    (undo,) = apply(job, WORKERS)
    job.saw_optimizer(optimizer := torch.optim.SGD(model.parameters(), 0.1))
    made, read = DataLoader(Numbers(), batch_size=4), DataLoader(Numbers(), batch_size=4)
    assert len(list(made)) == 6
    with torch.no_grad():
        assert len(list(read)) == 6
    assert (first.num_workers, made.num_workers, read.num_workers) == (2, 2, 0)
    undo()
    assert (first.num_workers, made.num_workers) == (0, 0)
    assert optimizer


def test_what_workers_would_load_twice_or_not_at_all_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "items"
    file.write_bytes(b"items")
    with file.open("rb") as opened:
        data: Any = Numbers()
        data.file = opened
        loose = DataLoader(Numbers())
        loose.in_order = False
        for loader, says in (
            (loose, "in any order"),
            (DataLoader(Stream()), "iterable dataset"),
            (DataLoader(Subset(data, [0])), "a file open in file"),
            (DataLoader(Numbers(), num_workers=2), "2 workers already"),
        ):
            with pytest.raises(Refused, match=says):
                apply(seen(loader), WORKERS)
    with pytest.raises(Refused, match="seen") as refused:
        apply(Job(torch), WORKERS)
    assert refused.value.code is RefusalCode.NOT_MET
    with pytest.raises(Refused, match="no workers") as refused:
        apply(seen(without := DataLoader(Numbers())), {"loader.persistent_workers": {}})
    assert without.num_workers == 0
    assert refused.value.code is RefusalCode.NOT_MET


def test_a_larger_batch_begins_with_the_next_epoch() -> None:
    loader = DataLoader(TensorDataset(torch.arange(24.0)), batch_size=4)
    iterator = iter(loader)
    (undo,) = apply(seen(loader), {"batch.larger": {"factor": 3}})
    assert [len(batch[0]) for batch in iterator] == [4] * 6
    assert [len(batch[0]) for batch in loader] == [12, 12]
    undo()
    assert [len(batch[0]) for batch in loader] == [4] * 6


def test_workers_say_what_memory_they_take() -> None:
    model = torch.nn.Linear(1000, 1000, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1000)).sum().backward()
    optimizer.step()
    job = seen(DataLoader(Numbers()))
    job.saw_optimizer(optimizer)
    job.batch_bytes = 1 << 20
    count = loader_workers.MOST_WORKERS  # more than the CPUs are tried where loading waits
    each = loader_workers.WORKER_BYTES + (2 << 20)
    assert loader_workers.worker_bytes(job) == pytest.approx(16_000_000 + count * each, abs=64)
    iterator = iter(loader := DataLoader(Numbers(), num_workers=1))
    job.saw_iterator(iterator)
    assert loader_workers.worker_bytes(job) == count * each
    assert REGISTRY["loader.prefetch_factor"].host_takes(job) == 4 << 20  # type: ignore[misc]
    job.iterator._num_workers = 10
    assert loader_workers.worker_bytes(job) == 20 * each
    job.iterator._num_workers = 1
    del iterator, loader
