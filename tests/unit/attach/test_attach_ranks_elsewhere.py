"""How many ranks of a job run here and on other machines, by what its launcher has set."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.attach.job_roles import ranks_beside, size_of
from support.machines.fake_proc import FakeProc


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
    found = size_of(7, tmp_path)
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
    assert ranks_beside(3, tmp_path) == [4, 5]
    assert ranks_beside(4, tmp_path) == [3]
    assert ranks_beside(2, tmp_path) == []


def test_without_a_rendezvous_what_a_parent_with_torch_started_is_one_job(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)  # as mnist_hogwild has it
    proc.add(10, torch=True)
    for pid in (11, 12):
        proc.add(pid, ppid=10, torch=True)
    proc.add(13, ppid=12, torch=True, comm="pt_data_worker")
    assert ranks_beside(12, proc.root) == [10, 11]
    assert ranks_beside(11, proc.root) == [10, 12, 13]
    proc.add(10, comm="bash", words=("bash",))
    assert ranks_beside(11, proc.root) == []
