"""Frames of pandas that a dataset holds: what is written to them is in the next batch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.loader.dataset_state import DatasetState
from autobrrr.injected.remedies.registry import Refused

pandas = pytest.importorskip("pandas")

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]  # as in a worker

COUNT = 16
LABELS = range(10, 26)


def frame() -> Any:
    return pandas.DataFrame(
        {
            "number": numpy.arange(float(COUNT)),
            "name": ["a", "b"] * (COUNT // 2),
            "kind": pandas.Categorical(["x", "y"] * (COUNT // 2)),
            "day": pandas.date_range("2020-01-01", periods=COUNT),
            "maybe": pandas.array([1, None] * (COUNT // 2), dtype="Int64"),
            "many": pandas.Series([[index] for index in range(COUNT)], index=LABELS),
        },
        index=pandas.Index(LABELS, name="id"),
    )


class Rows(Dataset[torch.Tensor]):
    def __init__(self, table: Any) -> None:
        self.table = table

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        row = self.table.iloc[index]
        numbers = [row["number"], row["day"].day, row["many"][0], len(row["name"])]
        maybe = 0 if row["maybe"] is pandas.NA else row["maybe"]
        return torch.tensor([float(each) for each in (*numbers, row["kind"] == "x", maybe)])


class Column(Rows):
    """One column, by the labels of its index."""

    def __init__(self, table: Any) -> None:
        super().__init__(table["number"].copy())

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(self.table.loc[self.table.index[index]])])


WRITES: dict[str, Callable[[Any], object]] = {
    "a number": lambda table: table.__setitem__("number", table["number"] + 1),
    "a number in place": lambda table: table.loc.__setitem__((13, "number"), 100.0),
    "a name in place": lambda table: table.loc.__setitem__((13, "name"), "longer"),
    "a kind in place": lambda table: table.loc.__setitem__((13, "kind"), "x"),
    "a day in place": lambda table: table.loc.__setitem__((13, "day"), pandas.Timestamp("2021-03-30")),
    "a gap in place": lambda table: table.loc.__setitem__((13, "maybe"), 7),
    "in an object": lambda table: table["many"].iloc[3].__setitem__(0, 100),
    "the order": lambda table: table.__setitem__("number", table["number"].to_numpy()[::-1]),
}
OTHER_WRITES: dict[str, Callable[[Any], object]] = {
    "an index": lambda table: setattr(table, "index", range(COUNT)),
    "a column more": lambda table: table.__setitem__("more", 1),
    "a column less": lambda table: table.__delitem__("name"),
    "an attribute": lambda table: table.attrs.update(scale=2),
}


@pytest.fixture(autouse=True)
def no_worker_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("write", [*WRITES, *OTHER_WRITES])
def test_a_write_into_a_frame_is_seen_and_a_reading_is_none(write: str) -> None:
    data = Rows(frame())
    state = DatasetState(data)
    data[3], data.table.loc[13], data.table["number"], str(data.table)
    assert state.is_as_it_was
    assert state.is_whole
    (WRITES | OTHER_WRITES)[write](data.table)
    assert not state.is_as_it_was


@pytest.mark.parametrize("remedy", ["loader.workers", "loader.persistent_workers", "loader.cache"])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_between_two_epochs_is_in_the_next_batch(write: str, remedy: str) -> None:
    def epochs(*, on: bool) -> list[object]:
        data, job, seen = Rows(frame()), Job(torch), list[object]()
        loader = DataLoader(data, batch_size=4, num_workers=int(remedy == "loader.persistent_workers"))
        job.saw_loader(loader)
        options = {"workers": 1} if remedy == "loader.workers" else {}
        undo = REGISTRY[remedy].apply(job, options) if on else lambda: None
        for epoch in range(3):
            if epoch == 2:
                WRITES[write](data.table)
            seen += [batch.tolist() for batch in loader]
        undo()
        return seen

    assert epochs(on=True) == epochs(on=False)


def test_a_column_with_its_index_is_looked_into() -> None:
    data = Column(frame())
    state = DatasetState(data)
    assert data[3].item() == 3
    assert state.is_as_it_was
    data.table.loc[13] = 7.0
    assert not state.is_as_it_was


def test_what_pandas_keeps_in_c_alone_leaves_the_loader_alone() -> None:
    data, job = Rows(frame()), Job(torch)
    data.known = pandas._libs.hashtable.Int64HashTable()  # type: ignore[attr-defined]
    loader = DataLoader(data, batch_size=4)
    job.saw_loader(loader)
    with pytest.raises(Refused, match="Int64HashTable, which may change unseen"):
        REGISTRY["loader.workers"].apply(job, {"workers": 1})
