"""The memory model keeps a study from batches that would not fit; what is free is read from the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Parameter, Point, Result, Space
from autobrrr.relaunch.trial import memory_use
from autobrrr.relaunch.trial.memory_use import Bytes, MemoryModel

MIB = 1 << 20


def parameter(name: str, levels: tuple[int, ...], given_level: int) -> Parameter:
    return Parameter(
        name=name, kind="flag", levels=levels, given=given_level, ordered=True, cls="changes-training"
    )


BATCH = parameter("--batch-size", tuple(1 << i for i in range(12)), 3)
SPACE = Space(parameters=(BATCH, parameter("--num-workers", (0, 1, 2, 4), 0)))


def model(free_mib: int) -> MemoryModel:
    found = MemoryModel(SPACE, lambda: free_mib * MIB)
    found.look()
    return found


def at(batch: int, workers: int = 0) -> Point:
    return BATCH.levels.index(batch), (0, 1, 2, 4).index(workers)


def test_two_batch_sizes_make_a_line_and_the_line_a_prediction() -> None:
    found = model(1000)
    found.learn(at(8), Bytes(memory=180 * MIB))
    assert found.predicted(at(64)) is None
    found.learn(at(16), Bytes(memory=260 * MIB))
    assert found.predicted(at(64)) == pytest.approx(740 * MIB)
    assert found.problem(at(64)) is None
    assert found.problem(at(128)) == "it may need 1.35 GB of memory, 1000 MB are free"
    assert found.left_out({at(128)})[0].startswith("a batch of 128 was not started: it may need 1.35 GB")


def test_from_one_batch_size_a_larger_one_may_take_as_many_times_more() -> None:
    found = model(1000)
    found.learn(at(8), Bytes(memory=600 * MIB))
    assert [batch for batch in (1, 4, 8, 16, 32) if found.problem(at(batch)) is None] == [1, 4, 8]
    assert "may need 2.34 GB" in (found.problem(at(32)) or "")
    found.learn(at(4), Bytes(memory=599 * MIB))
    assert found.problem(at(512)) is None


def test_what_has_trained_beside_another_is_tried_again_without_a_margin() -> None:
    found = model(1000)
    found.learn(at(8), Bytes(memory=900 * MIB))  # by now 1000 MiB are free beside it
    assert [batch for batch in (4, 8, 16) if found.problem(at(batch, workers=2)) is None] == [4, 8]
    found.learn(at(4), Bytes(memory=700 * MIB))
    assert [batch for batch in (4, 8, 16) if found.problem(at(batch, workers=2)) is None] == [4, 8]


def test_what_a_gpu_will_hold_is_predicted_and_tried() -> None:
    found = model(1000)
    for batch in (8, 16):
        found.learn(at(batch), Bytes(memory=MIB, gpu=batch * 10 * MIB))
    assert found.predicted(at(1024)) == pytest.approx(10240 * MIB)
    assert found.problem(at(1024)) is None
    assert Bytes(memory=3, gpu=5).telling == 5
    assert Bytes(memory=3).telling == 3


def test_without_a_batch_flag_nothing_is_predicted_or_forbidden() -> None:
    found = MemoryModel(Space(parameters=SPACE.parameters[1:]), lambda: 1)
    found.look()
    found.learn((1,), Bytes(memory=5))
    assert found.problem((2,)) is None
    assert found.predicted((2,)) is None


@pytest.mark.parametrize(("fixed", "each", "seed"), [(300, 4, 0), (20, 30, 1), (900, 0.2, 2)])
def test_at_most_one_of_twenty_trials_runs_out_of_memory(fixed: float, each: float, seed: int) -> None:
    def takes(point: Point) -> int:
        batch, workers = (parameter.levels[i] for parameter, i in zip(SPACE.parameters, point, strict=True))
        assert isinstance(batch, int)
        assert isinstance(workers, int)
        return round(MIB * (fixed + each * batch + 10 * workers))

    memory = model(1200)
    memory.learn(SPACE.base, Bytes(memory=takes(SPACE.base)))
    search = Search(SPACE, trials=20, seed=seed)
    search.too_large = lambda point: memory.problem(point) is not None
    largest = 0
    while (point := search.ask()) is not None:
        if takes(point) > 1200 * MIB:
            search.tell(Result(point=point, value=None, kind="oom"))
            continue
        memory.learn(point, Bytes(memory=takes(point)))
        largest = max(largest, BATCH.levels[point[0]])  # type: ignore[call-overload]
        search.tell(Result(point=point, value=0.1 * point[0], kind="measured"))
    assert len(search.results) >= 12
    assert sum(result.kind == "oom" for result in search.results) <= 1
    assert fixed + 2 * each * largest * 1.1 > 1000 or largest == BATCH.levels[-1]  # it was not too shy


def test_limits_of_the_groups_around_us_count(tmp_path: Path) -> None:
    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    put("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 1000 kB\n")
    assert memory_use.available_bytes(tmp_path) == 1000 * 1024
    put("proc/self/cgroup", "0::/job/inner\n")
    put("sys/fs/cgroup/job/inner/memory.max", "max\n")
    put("sys/fs/cgroup/job/inner/memory.current", "70\n")
    put("sys/fs/cgroup/job/inner/memory.stat", "anon 1\ninactive_file 5\n")
    put("sys/fs/cgroup/job/memory.max", "900\n")
    put("sys/fs/cgroup/job/memory.current", "100\n")
    put("sys/fs/cgroup/job/memory.stat", "inactive_file 50\n")
    assert memory_use.available_bytes(tmp_path) == 850
    put("proc/self/cgroup", "4:memory:/job\n1:cpu:/\n")
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "700\n")
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900\n")
    put("sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 20\n")
    assert memory_use.available_bytes(tmp_path) == 0
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_use.available_bytes(tmp_path) == 1000 * 1024


def test_what_processes_took_is_their_own_pages_at_their_peak(tmp_path: Path) -> None:
    for pid, peak in ((7, 500), (8, 300)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/status").write_text(f"Name:\tpython\nVmHWM:\t{peak} kB\nVmRSS:\t250 kB\n")
        (tmp_path / f"{pid}/smaps_rollup").write_text("Rss: 250 kB\nPss_Anon: 100 kB\nPss_Shmem: 20 kB\n")
    found = memory_use.taken([7, 8, 9], None, tmp_path)
    assert found == Bytes(memory=(120 + 250 + 120 + 50) * 1024)
    assert memory_use.taken([9], 5, tmp_path) == Bytes(gpu=5 + memory_use.CONTEXT_BYTES)
