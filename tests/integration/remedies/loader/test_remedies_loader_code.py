"""Code of datasets and collate functions that draws, counts, writes or asks where it runs."""

from __future__ import annotations

import array
import contextlib
import ctypes
import hashlib
import io
import mmap
import multiprocessing
import threading
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, get_worker_info

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader.dataset_contents import MOST_BYTES_EACH
from autobrrr.injected.remedies.loader.dataset_state import DatasetState
from autobrrr.injected.remedies.loader.loader_cache import Cached
from autobrrr.injected.remedies.loader.sent_batches import exactly
from autobrrr.injected.remedies.registry import Refused, Remedy
from support.injected import noisy_transforms

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]  # as in a worker

CACHE, WORKERS = REGISTRY["loader.cache"], REGISTRY["loader.workers"]
PERSISTENT = REGISTRY["loader.persistent_workers"]
GENERATOR = numpy.random.default_rng(5)


class Plain(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(4.0) + index


class InComprehension(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(GENERATOR.normal()) for _ in range(4)])


class InFunctionWithin(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        def noisy(x: torch.Tensor) -> torch.Tensor:
            return x + float(GENERATOR.normal())

        return noisy(super().__getitem__(index))


class InStaticMethod(Plain):
    @staticmethod
    def noise() -> float:
        return float(GENERATOR.normal())

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(4) + self.noise()


class InClassMethod(Plain):
    @classmethod
    def noise(cls) -> float:
        return float(GENERATOR.normal())

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(4) + self.noise()


class InProperty(Plain):
    @property
    def noise(self) -> float:
        return float(GENERATOR.normal())

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(4) + self.noise


class InOtherModule(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return noisy_transforms.jitter(torch.zeros(4))


class Shared:
    generator = GENERATOR


class InOtherClass(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(4) + float(Shared.generator.normal())


class CountsItself(Plain):
    seen = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        type(self).seen += 1
        return super().__getitem__(index)


class CountsInTensor(Plain):
    def __init__(self) -> None:
        self.seen = torch.zeros(16)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.seen[index] += 1
        return super().__getitem__(index)


class CountsInArray(Plain):
    def __init__(self) -> None:
        self.seen = numpy.zeros(16)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.seen[index] += 1
        return super().__getitem__(index)


class AsksWorker(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        worker = get_worker_info()
        return super().__getitem__(index) + (0 if worker is None else worker.id + 1)


class OneOfBytes(Plain):
    """Gives the same bytes again and again."""

    def __init__(self) -> None:
        self.buffer = bytearray(4)

    def __getitem__(self, index: int) -> bytearray:  # type: ignore[override]
        self.buffer[:] = bytes((index,)) * 4
        return self.buffer


def test_bytes_of_the_datasets_own_are_not_handed_to_workers() -> None:
    job, _ = job_of(OneOfBytes(), collate_fn=list)
    with pytest.raises(Refused, match=r"keeps count of what is read|own memory"):
        WORKERS.apply(job, {"workers": 1})


class OneBuffer(Plain):
    """Reads each item into the same memory."""

    def __init__(self) -> None:
        self.buffer = numpy.zeros(4, dtype=numpy.float32)

    def __getitem__(self, index: int) -> numpy.ndarray:  # type: ignore[override,type-arg]
        self.buffer[:] = index
        return self.buffer


class Labelled(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self.labels = numpy.arange(16)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(4), int(self.labels[index])


class Counting:
    """A collate function that keeps state of its own."""

    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, items: list[torch.Tensor]) -> torch.Tensor:
        self.batches += 1
        return torch.stack(items)


def masked(items: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.stack(items)
    return batch * (torch.rand_like(batch) < 0.9)


def job_of(dataset: object, **options: object) -> tuple[Job, DataLoader[object]]:
    job = Job(torch)
    loader: DataLoader[object] = DataLoader(dataset, **{"batch_size": 4, **options})  # type: ignore[arg-type]
    job.saw_loader(loader)
    return job, loader


@pytest.fixture(autouse=True)
def no_worker_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    "make",
    [
        InComprehension,
        InFunctionWithin,
        InStaticMethod,
        InClassMethod,
        InProperty,
        InOtherModule,
        InOtherClass,
    ],
)
def test_a_generator_is_found_wherever_code_names_it_and_never_advanced(
    make: Callable[[], Plain],
) -> None:
    before = [each.bit_generator.state for each in (GENERATOR, noisy_transforms.GENERATOR)]
    job, _ = job_of(make())
    assert WORKERS.class_on(job) == "stream"
    with pytest.raises(Refused, match="random numbers"):
        CACHE.apply(job, {})
    with pytest.raises(Refused, match="generator of its own"):
        WORKERS.apply(job, {"workers": 1})
    assert [each.bit_generator.state for each in (GENERATOR, noisy_transforms.GENERATOR)] == before


@pytest.mark.parametrize("make", [CountsItself, CountsInTensor, CountsInArray])
def test_a_dataset_that_counts_its_readings_is_not_read_by_others_and_counts_none_of_ours(
    make: Callable[[], Plain],
) -> None:
    data = make()
    data[3]
    before = torch.as_tensor(data.seen).clone()  # type: ignore[attr-defined]
    for remedy, options in ((WORKERS, {"num_workers": 0}), (PERSISTENT, {"num_workers": 1}), (CACHE, {})):
        job, loader = job_of(data, **options)
        with pytest.raises(Refused, match="keeps count of what is read"):
            remedy.apply(job, {"workers": 1} if remedy is WORKERS else {})
        assert (loader.num_workers, loader.persistent_workers) == (options.get("num_workers", 0), False)
    assert torch.equal(torch.as_tensor(data.seen), before)  # type: ignore[attr-defined]


def asks_worker(worker: int) -> None:
    get_worker_info().dataset.shard = worker  # type: ignore[union-attr]


@pytest.mark.parametrize("options", [{}, {"worker_init_fn": asks_worker}])
def test_code_that_asks_for_its_worker_is_not_given_another(options: dict[str, object]) -> None:
    job, loader = job_of(Plain() if options else AsksWorker(), num_workers=1, **options)
    job.planned = True
    with pytest.raises(Refused, match=r"asks which worker|is given their number"):
        WORKERS.apply(job, {"workers": 2})
    assert loader.num_workers == 1


def test_a_collate_function_that_draws_makes_another_stream_in_workers() -> None:
    job, _ = job_of(Plain(), collate_fn=masked)
    before = torch.get_rng_state()
    assert WORKERS.class_on(job) == "stream"
    assert torch.equal(before, torch.get_rng_state())


def test_a_collate_function_that_counts_keeps_its_batches_where_they_are() -> None:
    job, loader = job_of(Plain(), collate_fn=(collate := Counting()))
    with pytest.raises(Refused, match="keeps count of what is read"):
        WORKERS.apply(job, {"workers": 1})
    assert (collate.batches, loader.num_workers) == (0, 0)


def test_a_dataset_that_writes_files_writes_none_to_try(tmp_path: Path) -> None:
    path = tmp_path / "read.log"

    class Writing(Plain):
        def __getitem__(self, index: int) -> torch.Tensor:
            with open(path, "a") as file:
                file.write(f"{index}\n")
            return super().__getitem__(index)

    job, _ = job_of(Writing())
    for remedy in (WORKERS, CACHE):
        with pytest.raises(Refused, match="writes, starts processes"):
            remedy.apply(job, {"workers": 1} if remedy is WORKERS else {})
    assert not path.exists()


def epochs(make: Callable[[], object], change: Callable[[object], None], *, cached: bool) -> list[object]:
    """Three epochs; the dataset is changed before the last one."""
    data = make()
    job, loader = job_of(data, batch_size=1)
    undo = CACHE.apply(job, {}) if cached else lambda: None
    found: list[object] = []
    for epoch in range(3):
        if epoch == 2:
            change(data)
        found += [[part.tolist() for part in batch] for batch in loader]  # type: ignore[attr-defined]
    undo()
    return found


def relabel(data: object) -> None:
    data.labels[5] = 100  # type: ignore[attr-defined]


class Row(dict[str, torch.Tensor]):
    """Made in a way of its own."""

    def __init__(self, index: int) -> None:
        super().__init__(x=torch.tensor([index]), y=torch.tensor([index]))

    def tolist(self) -> list[object]:
        return [each.tolist() for each in self.values()]


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "make",
    [
        Row,
        lambda at: defaultdict(int, x=torch.tensor([at])),
        lambda at: Point(torch.tensor([at]), 2),
        lambda at: array.array("q", [at]),
        lambda at: numpy.ma.masked_array([at], [False]),
    ],
)
def test_items_in_containers_of_other_kinds_are_kept_exactly_or_not_at_all(
    make: Callable[[int], Any],
) -> None:
    cached = Cached([make(index) for index in range(3)], 1 << 20)
    for _ in range(2):
        for index in range(3):
            item = cached[index]
            assert type(item) is type(make(index))
            assert exactly(item, make(index))


@pytest.mark.parametrize(("make", "change"), [(OneBuffer, lambda data: None), (Labelled, relabel)])
def test_kept_items_are_those_that_would_be_read(
    make: Callable[[], object], change: Callable[[object], None]
) -> None:
    assert epochs(make, change, cached=True) == epochs(make, change, cached=False)


def test_kept_workers_see_a_label_that_was_changed_in_place() -> None:
    def found(remedies: list[str]) -> list[object]:
        data = Labelled()
        job, loader = job_of(data, num_workers=1)
        undos = [REGISTRY[name].apply(job, {}) for name in remedies]
        labels = []
        for epoch in range(3):
            data.labels[5] = 100 * epoch
            labels += [batch[1].tolist() for batch in loader]  # type: ignore[index]
        for undo in undos:
            undo()
        return labels

    assert found(["loader.persistent_workers"]) == found([])


class Slotted:
    __slots__ = ("label",)

    def __init__(self, label: int) -> None:
        self.label = label


def test_each_of_many_records_is_looked_at_and_what_can_not_be_looked_into_is_not_whole() -> None:
    kinds: list[tuple[Callable[[int], Any], Callable[[Any], object]]] = [
        (lambda index: {"label": index}, lambda each: each.update(label=-1)),
        (Slotted, lambda each: setattr(each, "label", -1)),
        (lambda index: (torch.zeros(1), index), lambda each: each[0].add_(1)),
        (lambda index: deque([index]), lambda each: each.append(1)),
        (lambda index: bytearray(b"ab"), lambda each: each.extend(b"c")),
    ]
    for make, change in kinds:
        records = [make(index) for index in range(2000)]
        state = DatasetState(records)
        assert state.is_whole
        assert state.is_as_it_was
        change(records[777])
        assert not state.is_as_it_was
    for hidden in (io.StringIO(), hashlib.sha256(), mmap.mmap(-1, 8), (ctypes.c_int * 4)()):
        assert not DatasetState([hidden]).is_whole


def test_what_lies_around_the_code_for_an_item_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes: list[Callable[[], object]] = [
        lambda: monkeypatch.setenv("STRENGTH", "2"),
        lambda: monkeypatch.chdir(tmp_path),
        lambda: stack.enter_context(torch.no_grad()),
        lambda: stack.enter_context(torch.autocast("cpu", torch.bfloat16)),
    ]
    with contextlib.ExitStack() as stack:
        for change in changes:
            state = DatasetState([])
            assert state.is_as_it_was
            change()
            assert not state.is_as_it_was


def test_of_large_arrays_some_elements_are_looked_at_and_no_write_to_a_tensor_is_missed() -> None:
    large = numpy.zeros(MOST_BYTES_EACH // 8 + 1)
    state = DatasetState([large])
    assert not state.is_whole
    large += 1
    assert not state.is_as_it_was
    tensor = torch.zeros(MOST_BYTES_EACH // 4 + 1)
    state = DatasetState([tensor])
    assert state.is_whole
    tensor[7] = 1
    assert not state.is_as_it_was


def test_a_write_through_an_array_that_shares_a_tensor_s_memory_is_seen() -> None:
    tensor = torch.zeros(100)
    state = DatasetState([tensor])
    tensor.numpy()[3] = 1
    assert not state.is_as_it_was


THRESHOLD = 0


class Rare(Dataset[torch.Tensor]):
    """Draws a random number for few items, in late epochs only."""

    def __init__(self) -> None:
        self.epoch = 0

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.noisy(index) if self.epoch > 2 and index == 3 else torch.tensor([index])

    def noisy(self, index: int) -> torch.Tensor:
        return torch.rand(1) * index


class Noise:
    def __init__(self) -> None:
        self.value = torch.rand(1)


class RareObject(Rare):
    """The same, in what it makes an object of."""

    def noisy(self, index: int) -> torch.Tensor:
        return Noise().value


class Drawn(Dataset[torch.Tensor]):
    """Draws its numbers once, when it is made; another method of it would draw more."""

    def __init__(self) -> None:
        self.items = list(torch.rand(16, 2))

    def __len__(self) -> int:
        return 16

    def shuffled(self) -> torch.Tensor:
        return torch.randperm(16)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.items[index]


class Thresholded(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index > THRESHOLD])


@pytest.mark.parametrize(
    ("data", "cls"), [(Rare(), "stream"), (RareObject(), "stream"), (Drawn(), "bitwise")]
)
def test_the_class_of_workers_goes_by_what_the_code_for_an_item_names(
    data: Dataset[torch.Tensor], cls: str
) -> None:
    job, _ = job_of(data)
    assert WORKERS.class_on(job) == cls


LOCK = threading.Lock()


class Locking(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        with LOCK:
            return super().__getitem__(index)


def test_a_lock_that_a_worker_could_wait_for_for_ever_keeps_workers_away() -> None:
    job, _ = job_of(Locking())
    with pytest.raises(Refused, match="holds a lock"):
        WORKERS.apply(job, {})


SEEN = 0


class CountsInAGlobal(Plain):
    def __getitem__(self, index: int) -> torch.Tensor:
        global SEEN
        SEEN += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("remedy", [WORKERS, CACHE])
def test_a_global_that_counts_what_is_read_is_seen_and_put_back(remedy: Remedy) -> None:
    job, _ = job_of(CountsInAGlobal())
    with pytest.raises(Refused, match="keeps count of what is read"):
        remedy.apply(job, {})
    assert SEEN == 0


@pytest.mark.parametrize("replacement", [True, False])
def test_a_sampler_that_shares_the_jobs_generator_draws_at_other_times_in_workers(
    *, replacement: bool
) -> None:
    data = Plain()
    for generator, cls in ((None, "bitwise"), (torch.Generator(), "stream")):
        sampler = RandomSampler(data, replacement=replacement, generator=generator)
        job, _ = job_of(data, sampler=sampler)
        assert WORKERS.class_on(job) == cls


def test_kept_workers_see_that_a_global_of_their_dataset_has_another_value() -> None:
    def found(remedies: list[str]) -> list[object]:
        global THRESHOLD
        job, loader = job_of(Thresholded(), num_workers=1)
        undos = [REGISTRY[name].apply(job, {}) for name in remedies]
        seen = []
        for epoch in range(3):
            THRESHOLD = epoch
            seen += [batch.tolist() for batch in loader]  # type: ignore[attr-defined]
        for undo in undos:
            undo()
        return seen

    assert found(["loader.persistent_workers"]) == found([])


def test_without_a_loader_the_reason_is_that_there_is_none() -> None:
    with pytest.raises(Refused, match="no DataLoader has been seen"):
        WORKERS.class_on(Job(torch))
