# ruff: noqa: E501 - one fault a line reads best
"""A recipe sets variables of one table only, none of which can bring code, and each to values of its kind."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr import recipe
from autobrrr.cli import main
from autobrrr.errors import EXIT_USAGE, UsageError
from autobrrr.recipe.recipe_schema import json_schema
from autobrrr.recipe.recipe_variables import MOST_LETTERS, VARIABLES

# Each of these names code, or a file, library, folder or host to take it from.
BRING_CODE = (
    "LD_PRELOAD",
    "PATH",
    "PYTHONPATH",
    "NCCL_NET_PLUGIN",
    "TRITON_PTXAS_PATH",
    "TORCH_HOME",
    "CC",
    "TMPDIR",
)
GOOD = {
    "OMP_NUM_THREADS": "8",
    "OMP_PROC_BIND": "spread,close",
    "OMP_PLACES": "{0:4}:2:4",
    "OMP_SCHEDULE": "dynamic,4",
    "KMP_BLOCKTIME": "infinite",
    "KMP_AFFINITY": "granularity=fine,compact,1,0",
    "GOMP_CPU_AFFINITY": "0-3,8-11:2",
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_CONF": "oversize_threshold:1,background_thread:true,dirty_decay_ms:-1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]",
    "PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.8,backend:cudaMallocAsync",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "NCCL_ALGO": "^Tree,Ring",
    "NCCL_P2P_LEVEL": "NVL",
    "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN,CPP",
    "TOKENIZERS_PARALLELISM": "false",
}


def with_variable(name: str, value: str) -> str:
    return f"schema = 1\n[env]\n{name} = {json.dumps(value)}\n"


@pytest.mark.parametrize("name", BRING_CODE)
def test_a_variable_that_can_bring_code_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        recipe.parse(with_variable(name, "1"), "r.toml")
    assert raised.value.message.startswith(f"r.toml:3: no variable '{name}' that a recipe may set")
    assert "\n" not in raised.value.message
    assert raised.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('OMP_NUM_THREAD = "2"', "r.toml:3: no variable 'OMP_NUM_THREAD' that a recipe may set (did you mean OMP_NUM_THREADS?)"),
        ('ATEN_CPU_CAPABILITY = "avx512"', "may set; torch believes it unseen"),
        ('LD_PRELOAD = "x.so"', "may set; the remedy host.allocator starts a job with another allocator"),
        ('OMP_NUM_THREADS = "two"', "r.toml:3: OMP_NUM_THREADS must be a whole number, not 'two'"),
        ("OMP_NUM_THREADS = true", "must be a whole number, not true"),
        ("OMP_NUM_THREADS = -1", "must be a whole number, not -1"),
        ('OMP_NUM_THREADS = "2\\n"', "must be a whole number"),
        ('OMP_NUM_THREADS = "\\u0662"', "must be a whole number"),
        ('PYTORCH_CUDA_ALLOC_CONF = "backend:/tmp/evil.so"', "must be at most 200 letters, digits and :,"),
        ('MALLOC_CONF = "prof_prefix:/tmp/x"', "must be at most 200 letters, digits"),
        ('NCCL_ALGO = "../evil"', "must be at most 200 letters, digits"),
    ],
)  # fmt: skip
def test_a_fault_of_a_variable_is_one_line_with_its_place(line: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        recipe.parse(f"schema = 1\n[env]\n{line}\n", "r.toml")
    assert says in raised.value.message
    assert raised.value.message.startswith("r.toml:3: ")


def test_usual_settings_are_valid_and_reach_the_job() -> None:
    text = "schema = 1\n[env]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in GOOD.items())
    found = recipe.parse(text)
    assert dict(found.env) == GOOD
    assert recipe.environment(found, {}) == GOOD
    assert recipe.parse(recipe.dump(found)) == found


@given(st.sampled_from(sorted(VARIABLES)), st.text(max_size=2 * MOST_LETTERS))
def test_no_value_that_is_let_through_can_name_a_file_or_a_command(name: str, value: str) -> None:
    if VARIABLES[name].problem_with(value) is None:
        assert len(value) <= MOST_LETTERS
        assert re.fullmatch(r"[A-Za-z0-9_:,.=^>{}()\[\]! -]*", value)


def test_the_schema_shows_every_variable_with_its_values() -> None:
    shown = json_schema()["properties"]["env"]  # type: ignore[index]
    assert shown["additionalProperties"] is False
    assert set(shown["properties"]) == set(VARIABLES)
    for name, value in GOOD.items():
        node = shown["properties"][name]
        written = next((each for each in node.get("anyOf", ()) if each["type"] == "string"), node)
        assert re.search(written["pattern"], value), name
        assert node["description"].endswith(".")


def test_a_script_is_not_started_with_a_recipe_that_brings_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, started = tmp_path / "r.toml", tmp_path / "started"
    file.write_text(with_variable("LD_PRELOAD", "/tmp/evil.so"))
    assert main(["run", "--recipe", str(file), "--", "touch", str(started)]) == EXIT_USAGE
    assert f"{file}:3: no variable 'LD_PRELOAD'" in capsys.readouterr().err
    assert not started.exists()


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["python", "-m", "pkg.train", "--lr", "1"], ["python", "-m", "pkg.train"]),
        (["python", "-c", "pass", "--lr", "1"], ["python", "-c", "pass"]),
        (["torchrun", "--nproc-per-node", "2", "-m", "pkg.train"], ["torchrun", "--nproc-per-node", "2", "-m", "pkg.train"]),
        (["python", "-m", "torch.distributed.run", "--module=pkg.train"], ["python", "-m", "torch.distributed.run", "--module=pkg.train"]),
        (["bash", "-c", "python3 -m pkg.train"], ["bash", "-c", "python3 -m pkg.train"]),
        (["python", "-W", "error", "train.py", "-W", "1"], ["python", "-W", "error", "train.py"]),
    ],
)  # fmt: skip
def test_flags_of_a_recipe_reach_the_script_alone_never_what_starts_it(
    command: list[str], kept: list[str]
) -> None:
    flags = {"-m": "evil", "-c": "evil", "--module": "evil", "-W": "evil", "--nproc-per-node": 9}
    assert recipe.with_flags(command, flags)[: len(kept)] == kept


@pytest.mark.parametrize(
    "command",
    [
        "./wrap.sh python -u train.py 1",
        "./wrap.sh -m mypkg.train",
        "python3 -um mypkg.train",
        "accelerate launch --config_file c.py train.py",
        "python /usr/bin/torchrun -m mypkg.train",
        "python launch.py python -u other.py",
    ],
)
def test_no_flag_of_a_recipe_becomes_an_interpreter_s_whatever_stands_around_it(command: str) -> None:
    words = command.split()
    flags = {"-u": "-cevil", "-m": "evil", "-O": "evil", "-um": "evil", "-s": "evil", "-c": "evil"}
    found = recipe.with_flags(words, flags)
    assert found[: len(words)] == words  # what stands there stays as it is
    assert found == words or recipe.own_words(words) == len(words) or words[-1] == "1"


def test_without_a_place_for_flags_the_command_stays_as_it_is_and_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recipe.with_flags(["make", "train"], {"--eval": "$(shell id)"}) == ["make", "train"]
    file = tmp_path / "r.toml"
    file.write_text('schema = 1\n[args]\n"--lr" = 2\n')
    assert main(["run", "--recipe", str(file), "--", "true"]) == 0
    said = capsys.readouterr().err
    assert "--lr is left out: where the script's own flags begin can't be told" in said
    assert "prove --recipe" not in said  # nothing of the recipe was applied
    assert main(["run", "--recipe", str(file), "--", "env", sys.executable, "-c", "pass"]) == 0
    assert "prove --recipe" in capsys.readouterr().err
    assert main(["run", "--strict", "--recipe", str(file), "--", "true"]) == EXIT_USAGE
