"""How many ranks of a job run here and on other machines, by what its launcher has set."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.attach.job_roles import ranks_elsewhere, ranks_here


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
    assert ranks_elsewhere(7, tmp_path) == expected
    here = next((value for name, value in environ.items() if "LOCAL" in name), "")
    assert ranks_here(7, tmp_path) == (None if expected is None else int(here))
