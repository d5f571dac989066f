"""Ranks side by side: the one that comes late is named, and its peers' waiting is measured."""

from __future__ import annotations

from pathlib import Path

from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.trace_analysis import analyse
from autobrrr.trace.trace_records import Analysis
from support.trace import Scene

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL()"


def job(
    folder: Path,
    lateness_us: list[int],
    clocks_ns: list[int] | None = None,
    left_out: list[range] | None = None,
    lengths_us: list[int] | None = None,
) -> Analysis:
    """One step on each rank: own kernels, then a collective that ends when the last has come.

    `left_out`: steps that a rank's window has not seen; `lengths_us`: what each step takes, so that
    steps can be told apart.
    """
    sources = []
    for rank, late in enumerate(lateness_us):
        head: dict[str, object] = {"distributedInfo": {"rank": rank, "world_size": len(lateness_us)}}
        scene = Scene(head=head, base_ns=10**12 + (clocks_ns or [0] * 8)[rank])
        for index in range(30):
            if left_out is not None and index in left_out[rank]:
                continue
            at = index * 1_000_000
            if lengths_us is not None:
                at = sum(lengths_us[:index]) * 1_000
            end = at + (max(lateness_us) + 300) * 1_000
            start = at + (200 + late) * 1_000
            scene.operator(at - 1_000, 800, "aten::mm")
            scene.kernel(at, start - at - 1_000, "ampere_sgemm_128x64_tn", launch=(at - 900, 300))
            scene.kernel(start, end - start, REDUCE, launch=(at - 500, 300), stream=20)
        path = scene.write(folder, f"rank{rank}.json")
        sources.append(TraceFile(name=path.name, path=path))
    return analyse(sources)


def test_the_rank_that_comes_last_keeps_the_others_waiting(tmp_path: Path) -> None:
    found = job(tmp_path, [0, 0, 600, 0]).ranks
    assert found.matched_collectives == 30
    assert [each.last_in for each in found.ranks] == [0, 0, 30, 0]
    assert [each.waiting_ns for each in found.ranks] == [18_000_000, 18_000_000, 0, 18_000_000]
    assert [each.late_ns for each in found.ranks] == [0, 0, 54_000_000, 0]


def test_clocks_that_differ_between_ranks_are_aligned_by_the_ends_of_the_collectives(tmp_path: Path) -> None:
    found = job(tmp_path, [0, 600], clocks_ns=[0, 7_000_000_000]).ranks
    assert [each.waiting_ns for each in found.ranks] == [18_000_000, 0]


def test_windows_that_begin_apart_are_matched_at_their_tail(tmp_path: Path) -> None:
    found = job(tmp_path, [0, 0, 600], left_out=[range(0), range(4), range(7)])
    assert found.ranks.matched_collectives == 23
    assert [each.last_in for each in found.ranks.ranks] == [0, 0, 23]
    assert [each.late_ns for each in found.ranks.ranks] == [0, 0, 2 * 23 * 600_000]
    assert "up to 7 more, which are left out" in found.ranks.note


def test_a_rank_that_waits_in_collectives_is_told_for_whom(tmp_path: Path) -> None:
    found = job(tmp_path, [0, 700])
    waiting = found.traces[0]
    assert waiting.regime == "communication"
    assert "rank 1 (100 %)" in waiting.reason
    assert any("Speed it up" in each.text for each in waiting.advice)


def test_ranks_whose_collectives_differ_are_not_matched(tmp_path: Path) -> None:
    job(tmp_path, [0, 100])
    other = Scene()
    other.kernel(0, 100, REDUCE)
    path = other.write(tmp_path, "other.json")
    names = ["rank0.json", "other.json"]
    found = analyse([TraceFile(name=name, path=tmp_path / name) for name in names]).ranks
    assert path.exists()
    assert found.matched_collectives == 0
    assert found.ranks[0].waiting_ns is None
    assert "differ" in found.note
