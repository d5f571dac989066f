"""A batch from workers is what it would have been without: memory that its parts share, and its device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader.sent_batches import receive, send

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]


def windows(items: list[int]) -> list[Any]:
    series = np.arange(8.0) + items[0]
    return [series[:-1], series[1:]]


def halves(items: list[int]) -> list[Any]:
    series = np.arange(8.0) + items[0]
    return [series, torch.from_numpy(series[1:])]


def trained(collate: Callable[[list[int]], list[Any]], *, with_workers: bool) -> list[float]:
    loader = DataLoader([*range(64)], batch_size=4, collate_fn=collate)  # type: ignore[arg-type]
    undo: Callable[[], object] = int
    seen: list[float] = []
    for epoch in range(2):
        if epoch == 1 and with_workers:
            job = Job(torch)
            job.saw_loader(loader)
            undo = REGISTRY["loader.workers"].apply(job, {"workers": 1})
        for past, following in loader:
            past.__imul__(0.5)
            seen.append(float(following.sum()))
    undo()
    return seen


@pytest.mark.parametrize("collate", [windows, halves])
def test_what_shares_memory_within_a_batch_still_does(collate: Callable[[list[int]], list[Any]]) -> None:
    assert trained(collate, with_workers=True) == trained(collate, with_workers=False)


class Blocks(Dataset[Any]):
    """Of the last part of an array; what each fourth one gives is turned, and so no view of it."""

    def __init__(self) -> None:
        self.rows = np.ones((40, 3))[4:]

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        rows = self.rows[4 * index : 4 * index + 4]
        return rows if index % 4 else rows[::-1].copy()


def halved(*, with_workers: bool) -> list[float]:
    loader = DataLoader(Blocks(), batch_size=None, collate_fn=lambda batch: batch)
    undo: Callable[[], object] = int
    seen: list[float] = []
    for epoch in range(3):
        if epoch == 1 and with_workers:
            job = Job(torch)
            job.saw_loader(loader)
            undo = REGISTRY["loader.workers"].apply(job, {"workers": 1})
        for batch in loader:
            batch.__imul__(0.5)
            seen.append(float(batch.sum()))
    undo()
    return seen


def test_a_view_of_what_a_dataset_holds_a_part_of_is_written_to_as_before() -> None:
    assert halved(with_workers=True) == halved(with_workers=False)


class Nothing:
    def __contains__(self, _: object) -> bool:
        return False

    def has_place(self, _: int, __: int) -> bool:
        return False


def test_a_batch_arrives_on_the_cpu_whatever_the_jobs_default_device() -> None:
    region = memoryview(bytearray(4096))
    sent = send(torch.ones(4), region, Nothing())
    with torch.device("meta"):
        assert str(receive(sent, region).device) == "cpu"  # type: ignore[attr-defined]
