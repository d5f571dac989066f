"""Ranks change their buckets together or not at all, whoever comes late or never."""

import threading
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.remedies.process.ddp_arguments import PATIENCE_S, agree
from autobrrr.agent.remedies.registry import Refused

WHAT = "ddp.bucket_size/64"


class Store:
    """What is used of torch's store, for all ranks of one process."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            self.counts[key] = self.counts.get(key, 0) + amount
            return self.counts[key]

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        with self._lock:
            return self.kept.setdefault(key, desired.encode())


class Clock:
    """Goes on while somebody sleeps; the others may do something meanwhile."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now_s = 0.0
        self._meanwhile = meanwhile

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._meanwhile()


def job_of(ranks: int, store: object) -> Job:
    torch = ModuleType("torch")
    torch.distributed = SimpleNamespace(  # type: ignore[attr-defined]
        is_available=lambda: True,
        is_initialized=lambda: True,
        group=SimpleNamespace(WORLD="world"),
        get_process_group_ranks=lambda group: list(range(ranks)),
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    return Job(torch)


def test_all_ranks_that_ask_get_it() -> None:
    store, refused = Store(), []

    def rank() -> None:
        try:
            agree(job_of(3, store), {}, WHAT, earlier=Counter(), clock=lambda: 0.0, sleep=lambda _: None)
        except Refused as error:
            refused.append(str(error))

    threads = [threading.Thread(target=rank) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert refused == []
    assert list(store.counts.values()) == [3]


def test_a_rank_that_never_asks_leaves_all_without() -> None:
    clock = Clock()
    with pytest.raises(Refused, match="not all of the 2 ranks asked for it within 60 s"):
        agree(job_of(2, Store()), {}, WHAT, earlier=Counter(), clock=clock, sleep=clock.sleep)
    assert clock.now_s >= PATIENCE_S


def test_who_comes_after_the_answer_takes_it() -> None:
    store, clock = Store(), Clock()
    for _ in range(2):  # the second one makes the count full, and too late
        with pytest.raises(Refused, match="not all"):
            agree(job_of(2, store), {}, WHAT, earlier=Counter(), clock=clock, sleep=clock.sleep)


def test_each_construction_is_asked_about_by_itself() -> None:
    store, earlier = Store(), Counter[str]()
    clock = Clock(lambda: [store.add(key, 1) for key in list(store.counts) if store.counts[key] < 2])
    for _ in range(2):
        agree(job_of(2, store), {}, WHAT, earlier=earlier, clock=clock, sleep=clock.sleep)
    assert len(store.counts) == 2


def test_one_rank_and_a_job_without_ranks_ask_nobody() -> None:
    agree(job_of(1, None), {}, WHAT)
    agree(Job(ModuleType("torch")), {}, WHAT)


def test_where_ranks_have_no_way_to_find_out_nothing_changes() -> None:
    with pytest.raises(Refused, match="could not agree"):
        agree(job_of(2, object()), {}, WHAT)
    with pytest.raises(Refused, match="device mesh"):
        agree(job_of(2, Store()), {"device_mesh": object()}, WHAT)
