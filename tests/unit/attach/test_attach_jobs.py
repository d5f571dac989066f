"""Ranks, workers, launchers and helpers of a job are told apart by what /proc shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.attach import job_roles
from autobrrr.machine import procfs
from autobrrr.readable import Foreign
from support.machines.fake_proc import FakeProc


def ranks(proc: FakeProc, busy: dict[int, int] | None = None) -> list[int]:
    """What lies below pid 10, when 300 ms burn so many ticks of CPU."""
    now = [0]

    def sleep(seconds: float) -> None:
        now[0] += int(seconds * 1e9)
        for pid, ticks in (busy or {}).items():
            stat = proc.root / str(pid) / "stat"
            stat.write_text(stat.read_text().replace(" 100 0 0 0 20 ", f" {100 + ticks} 0 0 0 20 "))

    return job_roles.ranks_below(10, proc.root, job_roles.Look(proc.root, clock=lambda: now[0], sleep=sleep))


@pytest.mark.parametrize(
    "words",
    [
        ("python", "-m", "torch.distributed.run", "train.py"),
        ("/opt/bin/accelerate", "launch", "train.py"),
        ("python3", "/opt/bin/deepspeed", "train.py"),
        ("mpirun", "-n", "2", "python", "train.py"),
        ("/usr/bin/srun", "python", "train.py"),
    ],
)
def test_launchers_by_command(words: tuple[str, ...]) -> None:
    assert job_roles.is_launcher_command([*map(Foreign, words)])


def test_init_launched_none_of_the_orphans_that_it_adopted(proc: FakeProc) -> None:
    proc.add(1, comm="systemd", words=("/sbin/init",), ppid=0)
    proc.add(11, torch=True, environ={**TORCHRUN, "RANK": "0"})
    assert job_roles.ranks_below(1, proc.root) == job_roles.launched_ranks(1, proc.root) == []
    proc.add(1, words=("python", "/bin/torchrun", "train.py"), ppid=0)  # the entry point of a container
    assert job_roles.launched_ranks(1, proc.root) == [11]


def test_the_children_of_mpirun_are_ranks_without_a_rank_of_torch(proc: FakeProc) -> None:
    proc.add(10, comm="mpirun", words=("mpirun", "-n", "2", "python", "train.py"))
    for pid in (11, 12):
        proc.add(pid, ppid=10, torch=True, environ={"OMPI_COMM_WORLD_RANK": str(pid - 11)})
    assert job_roles.launched_ranks(10, proc.root) == [11, 12]


def test_loader_and_compile_workers_are_no_ranks(proc: FakeProc) -> None:
    proc.add(10, torch=True)
    proc.add(11, ppid=10, torch=True, comm="pt_data_worker")
    proc.add(12, ppid=10, torch=True, words=("python", "x/_inductor/compile_worker/__main__.py"))
    proc.add(13, ppid=12, torch=True)
    assert job_roles.training_children(10, proc.root) == []
    assert ranks(proc) == []


def test_a_loader_s_workers_from_a_fork_server_are_no_ranks_however_long_training_waits_for_them(
    proc: FakeProc,
) -> None:
    proc.add(10, torch=True)
    proc.add(11, ppid=10, words=("python", "-c", "from multiprocessing.forkserver import main; main(5, 6)"))
    proc.add(12, ppid=11, torch=True, comm="pt_data_worker")
    assert job_roles.is_loader_worker(12, proc.root)
    assert job_roles.asker_through(11, proc.root) == 10
    assert ranks(proc, {12: 25}) == []
    proc.add(13, ppid=11, torch=True)  # one that trains is started so too
    assert ranks(proc, {13: 25}) == [13]


def test_what_a_job_spawns_is_no_rank_while_it_only_imports_but_a_script_is(proc: FakeProc) -> None:
    proc.add(10, torch=True, cpu_ticks=900)
    proc.add(11, ppid=10, torch=True, words=("python", "-c", "spawn_main()", "--multiprocessing-fork"))
    assert ranks(proc, {11: 25}) == []
    proc.add(12, ppid=10, torch=True)
    assert ranks(proc, {12: 25}) == [11, 12]


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["python", "-u", "train.py", "--lr", "1"], "train.py"),
        (["python", "-X", "dev", "-m", "pkg.train", "x"], "-m pkg.train"),
        (["python", "-c", "import torch"], "-c"),
        (["python"], None),
    ],
)
def test_what_a_command_line_runs(words: list[str], script: str | None) -> None:
    assert procfs.script([*map(Foreign, words)]) == (None if script is None else Foreign(script))


TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "2",
}


def test_ranks_of_one_rendezvous_are_one_job_whoever_started_them(proc: FakeProc) -> None:
    proc.add(11, ppid=10, environ={**TORCHRUN, "RANK": "0"})
    proc.add(12, ppid=20, environ={**TORCHRUN, "RANK": "1"})
    proc.add(13, ppid=10, environ={**TORCHRUN, "RANK": "1", "MASTER_PORT": "29501"})
    first, second, other = (job_roles.job_of(pid, proc.root) for pid in (11, 12, 13))
    assert first == second != other
    assert len(first) == 12


def test_children_without_a_rendezvous_are_one_job_with_their_siblings(proc: FakeProc) -> None:
    proc.add(10, torch=True, words=("python", "spawn.py"))
    proc.add(20, torch=True, words=("python", "spawn.py"), start_ticks=900)
    for pid, parent in ((11, 10), (12, 10), (21, 20), (31, 1)):
        proc.add(pid, ppid=parent, torch=True)
    assert (
        job_roles.job_of(11, proc.root) == job_roles.job_of(12, proc.root) != job_roles.job_of(21, proc.root)
    )
    assert job_roles.job_of(31, proc.root) is None  # whoever started it is gone
    assert job_roles.job_of(99, proc.root) is None


def test_a_launcher_s_ranks_come_by_rank(proc: FakeProc) -> None:
    proc.add(10, words=("python", "-m", "torch.distributed.run", "train.py"), torch=True)
    proc.add(11, ppid=10, torch=True, environ={**TORCHRUN, "RANK": "10"})
    proc.add(12, ppid=10, torch=True, environ={**TORCHRUN, "RANK": "9"})
    assert job_roles.launched_ranks(10, proc.root) == [12, 11]
    assert job_roles.launched_ranks(11, proc.root) == []


def test_a_shell_above_jobs_is_no_launcher_of_theirs_unless_they_are_one(proc: FakeProc) -> None:
    proc.add(10, words=("bash", "train.sh"))
    proc.add(11, ppid=10, torch=True)
    assert job_roles.launched_ranks(10, proc.root) == []
    proc.add(11, ppid=10, torch=True, environ={**TORCHRUN, "RANK": "0"})
    proc.add(12, ppid=10, torch=True, environ={**TORCHRUN, "RANK": "1"})
    assert job_roles.launched_ranks(10, proc.root) == [11, 12]
    proc.add(13, ppid=10, torch=True, environ={**TORCHRUN, "RANK": "0", "MASTER_PORT": "29501"})
    assert job_roles.launched_ranks(10, proc.root) == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}, 6),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, 0),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, 3),
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, 0),
        ({"WORLD_SIZE": "8"}, None),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "9"}, None),
        ({"WORLD_SIZE": "many", "LOCAL_WORLD_SIZE": "2"}, None),
        ({}, None),
    ],
)
def test_the_sizes_that_a_launcher_sets_say_it(
    environ: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    (tmp_path / "7").mkdir()
    words = [f"{name}={value}" for name, value in environ.items()]
    (tmp_path / "7/environ").write_text("\0".join(words))
    found = job_roles.size_of(7, tmp_path)
    here = next((value for name, value in environ.items() if "LOCAL" in name), "")
    assert (found.elsewhere, found.here) == ((0, 1) if expected is None else (expected, int(here)))


def test_the_ranks_beside_are_those_of_the_same_job(tmp_path: Path) -> None:
    job = "MASTER_ADDR=a\0MASTER_PORT=1\0WORLD_SIZE=2"
    of = {2: "", 3: f"RANK=0\0{job}", 4: f"RANK=1\0{job}", 5: f"RANK=1\0{job}", 6: "RANK=1\0MASTER_PORT=2"}
    parents = {2: 1, 3: 2, 4: 2, 5: 4, 6: 2}  # 5 is a loader's worker of rank 1
    for pid, environ in of.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_text(environ)
        fields = ["S", str(parents[pid]), *["0"] * 48]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (python) {' '.join(fields)}")
    assert job_roles.ranks_beside(3, tmp_path) == [4, 5]
    assert job_roles.ranks_beside(4, tmp_path) == [3]
    assert job_roles.ranks_beside(2, tmp_path) == []


def test_without_a_rendezvous_what_a_parent_with_torch_started_is_one_job(proc: FakeProc) -> None:
    # As mnist_hogwild has it.
    proc.add(10, torch=True)
    for pid in (11, 12):
        proc.add(pid, ppid=10, torch=True)
    proc.add(13, ppid=12, torch=True, comm="pt_data_worker")
    assert job_roles.ranks_beside(12, proc.root) == [10, 11]
    assert job_roles.ranks_beside(11, proc.root) == [10, 12, 13]
    proc.add(10, comm="bash", words=("bash",))
    assert job_roles.ranks_beside(11, proc.root) == []
