"""Flags of a recipe in a command, what a script certainly does not know, and what can't be had here."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr import recipe
from autobrrr.recipe.recipe_fit import Here
from autobrrr.recipe.script_flags import unknown_flags
from autobrrr.records import from_registry

PARSES = 'p.add_argument("--lr", "-l")\np.add_argument("--batch-size")\nargs = p.parse_args()\n'


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (PARSES, ["--workers"]),
        (PARSES.replace("parse_args", "parse_known_args"), []),
        (PARSES + "from .flags import more\n", []),
        (PARSES + "p.add_argument(name)\n", []),
        (PARSES + "p = ArgumentParser(parents=[other])\n", []),
        (PARSES + "p = ArgumentParser(prog='x')\n", ["--workers"]),
        (PARSES + "p = HfArgumentParser(Config)\n", []),
        ("print(1)\n", []),
        ("def broken(:\n", []),
    ],
)
def test_a_flag_is_unknown_only_where_the_scripts_text_shows_it(
    text: str, unknown: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    assert unknown_flags(str(script), ["--lr", "-l", "--batch", "--workers"]) == unknown


@pytest.mark.parametrize(
    ("written", "added"),
    [
        (["--compile=False"], ["--steps=4"]),
        (["config/small.py", "--lr=1", "-q"], ["--steps=4"]),
        (["--lr=1", "--width", "8"], ["--steps", "4"]),
        (["--amp", "data"], ["--steps", "4"]),
        ([], ["--steps", "4"]),
    ],
)
def test_a_new_flag_is_written_as_the_command_writes_its_own(written: list[str], added: list[str]) -> None:
    command = ["python", "train.py", *written]
    assert recipe.with_flags(command, {"--steps": 4}) == [*command, *added]


HERE = Here(device="cpu", environment={"PYTORCH_ALLOC_CONF": "pinned_use_background_threads:True"})


def test_what_can_not_be_had_here_is_a_line_and_stays_out_of_the_plan() -> None:
    found = recipe.parse(
        'schema = 1\n[remedies]\n"cuda.allocator" = true\n"optimizer.fused" = true\n'
        '"host.allocator" = { library = "tcmalloc_minimal" }\n'
    )
    left_out = recipe.unavailable(found, HERE)
    assert "GPU" in left_out["cuda.allocator"]
    assert "line 3: cuda.allocator is left out: this machine has no GPU" in recipe.misfits(found, HERE)
    planned = recipe.plan(found, left_out)["remedies"]
    assert "optimizer.fused" in [each["name"] for each in planned]  # type: ignore[index]
    assert "cuda.allocator" not in [each["name"] for each in planned]  # type: ignore[index]
    on_a_gpu = Here(device="cuda", environment=HERE.environment)
    assert (
        "is set to pinned_use_background_threads:True already"
        in recipe.unavailable(found, on_a_gpu)["cuda.allocator"]
    )


def test_a_remedy_that_the_recipe_s_own_variables_rule_out_is_left_out() -> None:
    name, text = "PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8"
    found = recipe.Recipe(remedies=(from_registry("cuda.allocator"),), env={name: text})
    left_out = recipe.unavailable(found, recipe.Here(device="cuda", environment={}))
    assert left_out == {"cuda.allocator": f"{name} is set to {text} already"}
    assert recipe.environment(found, {}, left_out) == {name: text}


def test_a_running_job_takes_loaders_for_its_next_epoch_workers_first() -> None:
    found = recipe.parse(
        'schema = 1\n[remedies]\n"loader.persistent_workers" = true\n"loader.workers" = { workers = 2 }\n'
        '"gc.freeze" = true\n"ddp.static_graph" = true\n[args]\n"--workers" = 2\n'
    )
    live, said = recipe.live_remedies(found)
    assert [each.remedy for each in live] == ["gc.freeze", "loader.workers", "loader.persistent_workers"]
    assert "ddp.static_graph is left out: it takes effect only when a run starts" in said
    assert any("--workers" in line for line in said)
    assert "loader.persistent_workers takes effect from the next epoch on" in said


@pytest.mark.parametrize(
    ("words", "flags", "became"),
    [
        ("--lr 0.1 --lr 0.2", {"--lr": 0.5}, "--lr 0.1 --lr 0.2 --lr 0.5"),
        ("--lr 0.1 -- data", {"--lr": 0.5}, "--lr 0.5 -- data"),
        ("-- data", {"--lr": 0.5}, "--lr 0.5 -- data"),
        ("-- --lr 0.1", {"--lr": 0.5}, "--lr 0.5 -- --lr 0.1"),
        ("--sizes 1 2 3 --amp", {"--sizes": 9}, "--sizes 1 2 3 --amp --sizes 9"),
        ("--lr 0.1 data", {"--lr": 0.5}, "--lr 0.1 data --lr 0.5"),
        ("--bias -0.5", {"--bias": 0.5}, "--bias 0.5"),
        ("--lr=0.1 data", {"--lr": 0.5}, "--lr=0.5 data"),
        ("--amp --amp", {"--amp": False}, ""),
        ("--workers 4", {"--workers": False}, "--workers 4"),
        ("--workers=4 data", {"--workers": False}, "data"),
        ("--lr 1 --amp", {"--lr": 0.1, "--new": "x"}, "--lr 0.1 --amp --new x"),
        ("--amp", {"--fused": True}, "--amp --fused"),
        ("--amp", {"--amp": True, "--gone": False}, "--amp"),
    ],
)
def test_the_last_flag_counts_and_none_stands_where_no_flag_is_read(
    words: str, flags: dict[str, object], became: str
) -> None:
    assert recipe.with_flags(["train.py", *words.split()], flags) == ["train.py", *became.split()]


def test_a_variable_that_the_command_sets_itself_is_said_to_be_left_out() -> None:
    why = {"OMP_NUM_THREADS": "the command sets it itself"}
    for command in (
        "env OMP_NUM_THREADS=8 python t.py",
        "nice env -u X OMP_NUM_THREADS=8 torchrun t.py",
        "env -u OMP_NUM_THREADS python t.py",
        "env --unset=OMP_NUM_THREADS python t.py",
        "env -vuOMP_NUM_THREADS python t.py",
    ):
        assert recipe.overruled(command.split(), ["OMP_NUM_THREADS", "MALLOC_ARENA_MAX"]) == why
    for command in (
        "env -i python t.py",
        "env - python t.py",
        "nice env --ignore-environment A=1 python t.py",
    ):
        assert recipe.overruled(command.split(), ["OMP_NUM_THREADS"]) == why
        assert recipe.unreached(command.split()) is not None
    for command in (
        "python t.py OMP_NUM_THREADS=8",
        "env -u X python -u OMP_NUM_THREADS t.py",
        "stdbuf -i0 python t.py",
        "t",
    ):
        assert recipe.overruled(command.split(), ["OMP_NUM_THREADS"]) == {}


def test_a_flag_that_stands_with_a_value_is_said_not_to_become_a_switch() -> None:
    assert recipe.misplaced(["python", "train.py", "--amp=false"], {"--amp": True}) == {
        "--amp": "it stands there with a value"
    }
    assert recipe.misplaced(["python", "train.py", "--amp"], {"--amp": True}) == {}


def test_a_flag_that_can_not_be_taken_away_is_said_to_stay() -> None:
    command = ["python", "train.py", "--workers", "4", "--amp"]
    assert recipe.misplaced(command, {"--workers": False, "--amp": False}) == {
        "--workers": "whether 4 goes with it can't be told"
    }


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python -I train.py", True),
        ("python3.12 -uE -m pkg", True),
        ("python -u train.py -I", False),
        ("python -m pkg -E", False),
        ("python -W error train.py", False),
        ("python --check-hash-based-pycs never -I t.py", True),
        ("nice -n 1 python -I train.py", True),
        ("torchrun -I train.py", False),
    ],
)
def test_a_python_that_ignores_its_environment_is_known(command: str, found: bool) -> None:
    assert recipe.ignores_environment(command.split()) is found


@pytest.mark.parametrize(
    "command",
    [
        "python -m cProfile train.py",
        "python -m cProfile",
        "python -mpdb train.py",
        "python -m coverage run train.py",
        "python",
        "make train.py",
        "mpirun -n 1 python train.py : -n 1 python other.py",
        "uv run train.py",
        "python_train.sh train.py",
        "torchrun --no-python nsys profile train.py",
        "torchrun -m cProfile train.py",
        "env A=1",
    ],
)
def test_flags_have_no_place_behind_a_program_that_reads_words_in_its_own_way(command: str) -> None:
    words = command.split()
    assert recipe.own_words(words) is None
    assert recipe.with_flags(words, {"-o": "evil"}) == words
    assert recipe.misplaced(words, {"-o": "evil"}) == {"-o": recipe.NO_PLACE}


@pytest.mark.parametrize(
    "ran", ["python train.py", "python -m pkg.train", "torchrun --nproc-per-node 2 train.py"]
)
@pytest.mark.parametrize(
    "wrapper",
    [
        "",
        "env",
        "env - A=1 B=train.py",
        "/usr/bin/nice -n 5",
        "numactl --cpunodebind=0 -m 0 --localalloc",
        "nohup nice -n 1 env A=1",
    ],
)
def test_plain_wrappers_before_a_script_leave_it_its_flags(wrapper: str, ran: str) -> None:
    words = [*wrapper.split(), *ran.split()]
    assert recipe.own_words(words) == len(words)
    assert recipe.with_flags(words, {"--lr": 2}) == [*words, "--lr", "2"]
    assert recipe.own_words([*words, "config/small.py"]) == (None if "-m" in ran.split() else len(words))


@pytest.mark.parametrize("script", ["profile.py", "cProfile.py", "./pdb.py", "timeit.py"])
def test_a_script_file_that_is_called_like_a_module_of_pythons_gets_its_flags(script: str) -> None:
    assert recipe.with_flags(["python", script], {"--lr": 2}) == ["python", script, "--lr", "2"]
