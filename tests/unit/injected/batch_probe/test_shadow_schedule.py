"""Which batch size is replayed when, and what a pause may cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.injected.batch_probe import replay_schedule
from autobrrr.injected.live_torch import available_memory

MS = 1_000_000


def test_a_pause_is_three_steps_or_30_ms_or_less_if_less_is_wanted() -> None:
    assert replay_schedule.pause_limit_ns(1 * MS, None) == 30 * MS
    assert replay_schedule.pause_limit_ns(100 * MS, None) == 300 * MS
    assert replay_schedule.pause_limit_ns(100 * MS, 50 * MS) == 50 * MS


def test_batch_sizes_are_whole_and_each_stands_once() -> None:
    assert replay_schedule.batches(16, [0.25, 0.5, 1, 2]) == [4, 8, 16, 32]
    assert replay_schedule.batches(2, [0.25, 0.5, 1, 2]) == [1, 2, 4]


@pytest.mark.parametrize("spent", [1, 199, 200, 201, 12_345])
def test_replays_add_a_fifth_of_training_time_at_most(spent: int) -> None:
    steps = replay_schedule.steps_until_next(spent * MS, 1000 * MS)
    assert spent <= replay_schedule.SHARE * 1000 * steps
    assert steps == 1 or spent > replay_schedule.SHARE * 1000 * (steps - 1)


def test_a_round_alternates_around_b_and_every_other_round_is_reversed() -> None:
    assert replay_schedule.cycle([4, 8, 16, 32], 16, 0) == [16, 8, 32, 4]
    assert replay_schedule.cycle([4, 8, 16, 32], 16, 1) == [4, 32, 8, 16]


def test_long_replays_get_fewer_rounds_but_never_fewer_than_two() -> None:
    sizes = [4, 8, 16, 32]
    assert replay_schedule.rounds(8, 1 * MS, 1 * MS, 16, sizes) == 8
    assert 2 <= replay_schedule.rounds(8, 90 * MS, 90 * MS, 16, sizes) < 8
    assert replay_schedule.rounds(8, 5000 * MS, 20_000 * MS, 16, sizes) == 2


def test_replays_of_a_long_step_begin_with_what_decides() -> None:
    assert replay_schedule.by_decision(16, [4, 8, 16, 32]) == [16, 32, 16, 32, 8, 8, 16, 32, 4, 4]
    assert replay_schedule.by_decision(16, [4, 8, 16]) == [16, 8, 16, 8, 4, 4, 16, 8]
    assert replay_schedule.by_decision(1, [1]) == [1, 1, 1]
    assert replay_schedule.warm_ups(replay_schedule.LONG_STEP_NS) == 0


def test_a_larger_batch_is_predicted_through_the_origin_from_the_nearest_smaller_one() -> None:
    measured = {4: [10 * MS], 8: [90 * MS, 16 * MS, 17 * MS]}
    assert replay_schedule.predicted_ns(8, measured, 1, 8) == 16 * MS
    assert replay_schedule.predicted_ns(16, measured, 1, 8) == 32 * MS
    assert replay_schedule.predicted_ns(16, {}, 5 * MS, 8) == 10 * MS


class NoCuda:
    class cuda:
        @staticmethod
        def is_available() -> bool:
            return False


def test_memory_is_what_the_machine_or_the_container_leaves_whichever_is_less(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 500 kB\n")
    assert available_memory.available_bytes(NoCuda, tmp_path) == 500 * 1024  # type: ignore[arg-type]
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("100\n")
    assert available_memory.available_bytes(NoCuda, tmp_path) == 500 * 1024  # type: ignore[arg-type]
    (group / "memory.max").write_text("1100\n")
    assert available_memory.available_bytes(NoCuda, tmp_path) == 1000  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "folder", "names", "cached"),
    [
        ("0::/train.slice/job", "", ("memory.max", "memory.current"), "inactive_file"),
        (
            "4:memory:/train.slice/job",
            "memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            "total_inactive_file",
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_the_limit_of_any_group_around_the_job_counts_less_what_it_can_drop(
    tmp_path: Path, line: str, folder: str, names: tuple[str, str], cached: str
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"7:cpu:/elsewhere\n{line}\n")
    group = tmp_path / "sys/fs/cgroup" / folder / "train.slice"
    (group / "job").mkdir(parents=True)
    for name, text in zip(names, ("5000\n", "4500\n"), strict=True):
        (group / name).write_text(text)
    stat = f"anon 100\n{cached} 200\n{cached.replace('inactive', 'active')} 100\n"
    (group / "memory.stat").write_text(stat)
    assert available_memory.free_bytes(NoCuda, tmp_path) == 800  # type: ignore[arg-type]
    (group / "job" / names[0]).write_text(f"{1 << 62}\n")
    (group / "job" / names[1]).write_text("1\n")
    assert available_memory.free_bytes(NoCuda, tmp_path) == 800  # type: ignore[arg-type]


def test_a_limit_of_the_address_space_counts_too(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name: python\nVmSize:\t    3000 kB\n")
    limits = tmp_path / "proc/self/limits"
    limits.write_text(
        "Max stack size  8388608  unlimited  bytes\nMax address space  unlimited  unlimited  bytes\n"
    )
    assert available_memory.free_bytes(NoCuda, tmp_path) is None  # type: ignore[arg-type]
    limits.write_text("Max address space         4096000              unlimited            bytes\n")
    assert available_memory.free_bytes(NoCuda, tmp_path) == 4_096_000 - 3_000 * 1024  # type: ignore[arg-type]
    (tmp_path / "proc/self/status").write_text("Name: python\nVmData:\t    3000 kB\n")
    limits.write_text("Max data size             4096000              unlimited            bytes\n")
    assert available_memory.free_bytes(NoCuda, tmp_path) == 4_096_000 - 3_000 * 1024  # type: ignore[arg-type]


def test_memory_needed_grows_with_the_batch_but_not_the_weights() -> None:
    once, twice = (available_memory.needed_bytes(1000, 4000, scale) for scale in (1, 2))
    assert once < twice < 2 * once


def test_three_times_the_parameters_must_be_free_before_anything_is_called(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 6144 kB\n")
    assert available_memory.shortage(NoCuda, tmp_path, 2 << 20) is None  # type: ignore[arg-type]
    why = available_memory.shortage(NoCuda, tmp_path, 3 << 20)  # type: ignore[arg-type]
    assert why == "a replay needs about 9 MiB of memory, 6 MiB are free"


def test_the_largest_batch_is_where_a_step_s_peak_would_take_the_free_memory() -> None:
    mib = 1 << 20
    fits = available_memory.largest(32, 32 * mib, float(mib), 4375 * mib)
    assert fits == 1000
    assert available_memory.peak_bytes(fits * mib) * 1.25 == pytest.approx(4375 * mib)


def test_no_more_than_two_digits_of_the_largest_batch_are_claimed() -> None:
    assert available_memory.largest(32, 0, 1000.0, 99_999_999_999) == 22_000_000
    assert available_memory.largest(123, 0, float(1 << 20), 4375 << 18) == 370


def test_the_batch_that_trains_already_fits_however_little_is_free() -> None:
    assert available_memory.largest(32, 1 << 30, float(1 << 25), 1 << 20) == 32


def test_what_grows_with_the_square_of_a_size_is_predicted_so() -> None:
    assert replay_schedule.predicted_ns(16, {8: [10 * MS]}, 1, 8, power=2) == 40 * MS
    assert replay_schedule.predicted_ns(16, {}, 5 * MS, 8, power=2) == 20 * MS


def test_a_size_that_has_not_run_is_told_from_the_first_replay_of_the_next_smaller_one() -> None:
    pauses = {2: [3 * MS, 1 * MS], 4: [9 * MS, 2 * MS, 2 * MS]}
    assert replay_schedule.predicted_pause_ns(8, pauses, step_ns=MS, batch=4) == 18 * MS
    assert replay_schedule.predicted_pause_ns(4, pauses, step_ns=MS, batch=4) == 2 * MS
    assert replay_schedule.predicted_pause_ns(16, {}, step_ns=MS, batch=4, power=2) == 16 * MS


def test_a_length_grows_as_it_has_been_seen_to_grow_and_half_a_power_more() -> None:
    linear = {4: [2 * MS], 8: [4 * MS]}
    assert replay_schedule.predicted_pause_ns(16, linear, step_ns=MS, batch=8, power=2) == int(
        4 * MS * 2**1.5
    )
    steep = {4: [2 * MS], 8: [16 * MS]}
    assert replay_schedule.predicted_pause_ns(16, steep, step_ns=MS, batch=8, power=2) == 64 * MS


@pytest.mark.parametrize(("free_mib", "is_short"), [(255, True), (256, False), (None, False)])
def test_no_step_is_logged_where_the_host_has_too_little_memory_for_it(
    free_mib: int | None, is_short: bool, tmp_path: Path
) -> None:
    """However much the device has: the log lies in the host's."""
    if free_mib is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/meminfo").write_text(f"MemAvailable: {free_mib << 10} kB\n")
    assert (available_memory.short_of_a_log(tmp_path) is not None) is is_short
