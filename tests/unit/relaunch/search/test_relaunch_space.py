"""Specs become parameters, points become recipes; what can't be read is said in one line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.errors import UsageError
from autobrrr.relaunch.search.argparse_flags import Declared, declared_flags, given_value
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.search_space import BATCH, Parameter, Space, agreed_ratio, make_space

COMMAND = ["python", "train.py", "--batch-size", "16"]
DECLARED = {
    "--batch-size": Declared(default=32),
    "--num-workers": Declared(default=0),
    "--accumulate": Declared(default=4),
    "--compile": Declared(switch=True),
    "--lr": Declared(default=0.1),
}
USUAL = ("bitwise", "rounding")
ALL = ("bitwise", "rounding", "stream", "changes-training")


def read(spec: str) -> Parameter:
    return parse_parameter(spec, COMMAND, {"OMP_NUM_THREADS": "2"}, DECLARED)


def test_a_logarithmic_range_doubles_and_knows_what_is_given() -> None:
    found = read("--batch-size=int:8..512:log")
    assert found.levels == (8, 16, 32, 64, 128, 256, 512)
    assert found.levels[found.given] == 16
    assert found.ordered
    assert found.cls == "changes-training"


@pytest.mark.parametrize(
    ("spec", "levels", "given_level"),
    [
        ("--num-workers=int:0..3", (0, 1, 2, 3), 0),
        ("--num-workers=int:1..2", (None, 1, 2), None),
        ("--compile=choice:on,off", (True, False), False),
        ("--lr=float:0.1..0.3", tuple(0.1 + 0.2 * i / 8 for i in range(9)), 0.1),
        ("env:OMP_NUM_THREADS=choice:1,2", ("1", "2"), "2"),
        ("env:MALLOC_ARENA_MAX=choice:1", (None, "1"), None),
        ("gc.freeze", (False, True), False),
        ("threads.intra_op.threads=choice:1,2", (False, 1, 2), False),
    ],
)
def test_every_kind_of_spec(spec: str, levels: tuple[object, ...], given_level: object) -> None:
    found = read(spec)
    assert found.levels == pytest.approx(levels) if "float" in spec else found.levels == levels
    assert found.levels[found.given] == given_level


def test_zero_is_a_level_to_try_where_the_default_is_not_known() -> None:
    found = parse_parameter("--num-workers=int:0..2", COMMAND, {}, {"--num-workers": Declared()})
    assert found.levels == (None, 0, 1, 2)
    assert found.levels[found.given] is None
    assert len(make_space([found], COMMAND, {}, USUAL).points()) == 3


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "nonsense",
        "--batch-size",
        "--batch-size=8",
        "--batch-size=int:8",
        "--batch-size=int:9..8",
        "--batch-size=int:0..8:log",
        "--batch-size=int:1.5..8",
        "--batch-size=choice:a,a",
        "--batch-size=choice:",
        "env:1X=choice:1",
        "env:BATCH_SIZE=choice:8,32",
        "env:LD_PRELOAD=choice:/usr/lib/libtcmalloc.so",
        "env:OMP_NUM_THREADS=choice:no,1",
        "env:CUDA_MODULE_LOADING=choice:EAGER,./lazy",
        "gc.freeze=choice:on",
        "no.such=choice:1",
        "threads.intra_op.nope=int:1..2",
        "threads.intra_op.threads=choice:many",
    ],
)
def test_a_spec_that_can_t_be_read_is_one_clear_line(spec: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(spec)
    assert raised.value.message.startswith("--param")
    assert "\n" not in raised.value.message


@given(st.text(max_size=40))
def test_any_text_is_a_parameter_or_a_usage_error(text: str) -> None:
    try:
        found = parse_parameter(text, COMMAND, {}, {})
    except UsageError:
        return
    assert 0 <= found.given < len(found.levels)
    assert len(set(map(str, found.levels))) == len(found.levels)


def space_of(*specs: str, allowed: tuple[str, ...] = ALL) -> Space:
    return make_space([read(spec) for spec in specs], COMMAND, DECLARED, allowed)  # type: ignore[arg-type]


def test_what_changes_the_training_needs_leave() -> None:
    with pytest.raises(UsageError, match="may change training results"):
        make_space([read("--lr=float:0.1..0.2")], COMMAND, DECLARED, USUAL)
    assert len(space_of("--lr=float:0.1..0.2").parameters[0].levels) == 9


def test_without_leave_the_batch_of_an_update_is_kept_through_accumulation() -> None:
    space = space_of("--batch-size=int:8..512:log", allowed=USUAL)
    batches = [space.batch_of(point) for point in space.points()]
    assert batches == [8, 32, 64]  # 16 x 4 samples an update; 16 is given
    recipe = space.recipe(space.points()[0])
    assert dict(recipe.args) == {"--batch-size": 8, "--accumulate": 8}
    assert space.cls(space.points()[0]) == "rounding"
    assert space.samples(space.base) == space.samples(space.points()[2]) == 64


@pytest.mark.parametrize(
    ("spec", "point", "ratio"),
    [
        ("--num-workers=int:0..1", (1,), 1.0),
        ("env:OMP_NUM_THREADS=choice:2,4", (1,), 1.0),
        ("loader.workers.workers=choice:1", (1,), 1.0),
        ("--batch-size=choice:16,64", (1,), 4.0),
        ("--lr=choice:0.1,0.2", (1,), None),
        ("--accumulate=choice:4,8", (1,), None),
        ("batch.larger.factor=choice:2", (1,), None),
    ],
)
def test_only_what_may_change_the_samples_of_a_step_does(
    spec: str, point: tuple[int, ...], ratio: float | None
) -> None:
    space = make_space([read(spec)], COMMAND, {}, ALL)
    assert space.told_ratio(point, space.base) == ratio


@pytest.mark.parametrize(
    ("told", "seen", "counted"),
    [
        (1.0, 64.0, 1.0),
        (4.0, 4.0, 4.0),
        (4.0, 1.0, 1.0),
        (2.0, 8.0, 2.0),
        (None, 3.0, 3.0),
        (4.0, None, 4.0),
        (None, None, 1.0),
    ],
)
def test_of_two_counts_of_samples_the_smaller_gain_is_believed(
    told: float | None, seen: float | None, counted: float
) -> None:
    assert agreed_ratio(told, seen) == counted


@pytest.mark.parametrize("words", [["--no-amp"], ["--amp", "on"], ["--amp", "off"], []])
def test_a_level_that_would_leave_the_command_as_it_is_is_no_level(words: list[str]) -> None:
    command, on = ["python", "train.py", *words], {"--amp": Declared(default=True)}
    with pytest.raises(UsageError, match="leaves the command as it is"):
        parse_parameter("--amp=choice:on,off", command, {}, on)


def test_a_variable_that_the_command_sets_itself_can_not_be_varied() -> None:
    with pytest.raises(UsageError, match="the command sets it itself"):
        parse_parameter(
            "env:OMP_NUM_THREADS=choice:1,2", ["env", "OMP_NUM_THREADS=8", "python", "train.py"], {}, {}
        )


def test_where_accumulation_is_to_keep_the_samples_agents_are_asked() -> None:
    assert agreed_ratio(1.0, 0.25, accumulates=True) == 0.25
    assert agreed_ratio(1.0, 4.0, accumulates=True) == 1.0
    assert agreed_ratio(1.0, None, accumulates=True) == 1.0


def test_what_an_evaluation_accumulates_keeps_no_batch_of_the_training() -> None:
    command = ["python", "train.py", "--batch_size=16", "--eval_accumulation_steps=8"]
    parameter = parse_parameter("--batch_size=choice:8,16", command, {}, {})
    with pytest.raises(UsageError, match="may change training results"):
        make_space([parameter], command, {}, USUAL)


def test_the_batch_of_an_evaluation_is_not_the_batch() -> None:
    names = ["--test-batch-size", "--eval_batch_size", "--val-bs", "--per_device_eval_batch_size"]
    assert not [name for name in names if BATCH.match(name)]
    names = ["--batch-size", "--train_batch_size", "--bs", "-b", "--per_device_train_batch_size"]
    assert [name for name in names if BATCH.match(name)] == [each for each in names if each != "-b"]


@pytest.mark.parametrize(
    ("flag", "feeds"),
    [
        ("--num-workers", True),
        ("-j", True),
        ("--nworkers", True),
        ("--prefetch_factor", True),
        ("--pin-mem", True),
        ("--persistent-workers", True),
        ("--loader-shuffle", False),
        ("--workers-seed", False),
        ("--num-rollout-workers", False),
        ("--prefetch-drop-rate", False),
    ],
)
def test_only_how_batches_are_fed_is_a_flag_of_the_loader(flag: str, feeds: bool) -> None:
    found = parse_parameter(f"{flag}=choice:1,2", COMMAND, {}, {})
    assert (found.cls != "changes-training") == feeds
    space = Space(parameters=(found,))
    assert (space.told_ratio((1,), (2,)) is not None) == feeds


def test_a_flag_for_accumulation_that_only_the_command_shows_is_known_too() -> None:
    command = ["python", "train.py", "--batch-size=16", "--gradient_accumulation_steps=2"]
    parameter = parse_parameter("--batch-size=choice:8,16,32", command, {}, {})
    space = make_space([parameter], command, {}, USUAL)
    assert [dict(space.recipe(point).args) for point in space.points()] == [
        {"--batch-size": 8, "--gradient_accumulation_steps": 4},
        {"--batch-size": 32, "--gradient_accumulation_steps": 1},
    ]


def test_a_point_is_a_recipe_of_what_differs_from_the_command() -> None:
    space = space_of(
        "--num-workers=int:0..1",
        "env:OMP_NUM_THREADS=choice:1,2",
        "gc.freeze",
        "threads.intra_op.threads=choice:1",
    )
    assert len(space.points()) == math.prod(len(each.levels) for each in space.parameters) - 1
    recipe = space.recipe((1, 0, 1, 1))
    assert dict(recipe.args) == {"--num-workers": 1}
    assert dict(recipe.env) == {"OMP_NUM_THREADS": "1"}
    assert [(each.remedy, each.options) for each in recipe.remedies] == [
        ("gc.freeze", {}),
        ("threads.intra_op", {"threads": 1}),
    ]
    assert space.recipe(space.base).args == {}
    assert space.label((1, 1, 0, 0)) == "--num-workers=1"


def test_an_option_that_is_false_is_not_a_remedy_that_is_off() -> None:
    space = space_of("compile.default.dynamic=choice:on,off")
    assert [space.label(point) for point in space.points()] == [
        "compile.default.dynamic=True",
        "compile.default.dynamic=False",
    ]
    chosen = [space.recipe(point).remedies for point in space.points()]
    assert [[(each.remedy, each.options) for each in found] for found in chosen] == [
        [("compile.default", {"dynamic": True})],
        [("compile.default", {"dynamic": False})],
    ]


def test_remedies_that_set_the_same_thing_never_meet() -> None:
    space = space_of("optimizer.fused", "optimizer.foreach")
    assert (1, 1) not in space.points()
    assert len(space.points()) == 2


def test_flags_are_read_from_the_script_s_text(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--batch-size', '-b', type=int, default=8)\n"
        "p.add_argument('--amp', action='store_true')\n"
        "p.add_argument('--no-pin', dest='pin', action='store_false', default=True)\n"
        "p.parse_args()\n"
    )
    command = ["python", str(file), "--amp", "-b=4"]
    found = declared_flags(command)
    assert found["-b"].default == 8
    assert given_value(command, "--amp", found) is True
    assert given_value(command, "--no-pin", found) is False
    assert given_value([*command, "--no-pin"], "--no-pin", found) is True
    assert given_value(command, "-b", found) == 4
    assert given_value(["python", str(file)], "--batch-size", found) == 8
    file.write_text("import argparse, flags\nargparse.ArgumentParser(parents=[flags.p]).parse_args()")
    assert declared_flags(command) == {}


def test_where_settings_come_from_elsewhere_too_no_default_is_believed(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("p.add_argument('--batch-size', '-b', default=8)\np.parse_known_args()\n")
    command = ["python", str(file)]
    found = declared_flags(command)
    assert given_value(command, "--batch-size", found) is None
    assert given_value([*command, "-b", "4"], "--batch-size", found) == 4
    parse_parameter("--of-another-module=int:1..2", command, {}, found)
    file.write_text("p.add_argument('--batch-size', '-b', default=8)\np.parse_args()\n")
    with pytest.raises(UsageError, match="does not have this flag"):
        parse_parameter("--of-another-module=int:1..2", command, {}, declared_flags(command))


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["-b", "4"], 4),
        (["-b4"], 4),
        (["--batch-size=4"], 4),
        (["--batch", "4"], 4),
        (["--b", "4"], 8),  # argparse refuses it: two flags begin so
        (["--batch-size", "2", "-b", "4"], 4),
        (["--bench"], 8),
        (["-a", "-b"], True),
    ],
)
def test_a_flag_is_found_by_every_name_that_argparse_takes_for_it(
    words: list[str], value: object, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "p.add_argument('-b', '--batch-size', default=8)\np.add_argument('--bench', action='store_true')\n"
        "p.add_argument('-a', action='store_true')\np.parse_args()\n"
    )
    command = ["python", str(file), *words]
    assert given_value(command, "--batch-size", declared_flags(command)) == value


@pytest.mark.parametrize(
    ("flag", "resizes"),
    [
        ("--max-length", True),
        ("--block-size", True),
        ("--context_length", True),
        ("--batch-size", False),
        ("--max-steps", False),
    ],
)
def test_a_flag_that_sets_the_length_of_samples_is_known(flag: str, resizes: bool) -> None:
    parameter = Parameter(
        name=flag, kind="flag", levels=(1, 2), given=0, ordered=True, cls="changes-training"
    )
    assert Space(parameters=(parameter,)).resized((1,)) == ([flag] if resizes else [])
    assert Space(parameters=(parameter,)).resized((0,)) == []
