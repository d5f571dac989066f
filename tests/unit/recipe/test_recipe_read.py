# ruff: noqa: E501 - one fault a line reads best
"""Recipes are read strictly: a valid one gives what it says, any other one line with its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr import recipe
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.errors import EXIT_USAGE, UsageError
from autobrrr.recipe.recipe_contents import Match, Measured, Recipe
from autobrrr.recipe.recipe_schema import template
from autobrrr.records import from_registry

FULL = """\
schema = 1
[match]
script = "train.py"
[remedies]
"optimizer.fused" = true
"threads.intra_op" = { threads = 1 }
[args]
"--num-workers" = 2
[evidence]
speedup = 1.58
interval = [1.52, 1.63]
host_peak_bytes = 900000000
measured_on = "2 cores, torch 2.13.0"
[numerics]
class = "rounding"
"""


def is_valid_or_one_line(read: Callable[[], object]) -> bool:
    try:
        read()
    except UsageError as error:
        return "\n" not in error.message and error.exit_code == EXIT_USAGE
    return True


def fault(text: str) -> str:
    with pytest.raises(UsageError) as raised:
        recipe.parse(text, "r.toml")
    assert raised.value.exit_code == EXIT_USAGE
    assert "\n" not in raised.value.message
    return raised.value.message


def test_a_full_recipe_gives_what_it_says() -> None:
    found = recipe.parse(FULL)
    assert found.match == Match(script="train.py")
    assert found.remedies == (
        from_registry("optimizer.fused"),
        from_registry("threads.intra_op", {"threads": 1}),
    )
    assert [*found.lines.values()] == [5, 6]
    assert found.args == {"--num-workers": 2}
    assert found.evidence == Measured(
        speedup=1.58, interval=(1.52, 1.63), host_peak_bytes=9e8, measured_on="2 cores, torch 2.13.0"
    )
    assert found.numerics == "rounding"


@pytest.mark.parametrize(
    "remedies",
    [
        '[remedies]\n"optimizer.fused" = true\n"threads.intra_op" = { threads = 1 }',
        "[remedies]\noptimizer.fused = true\nthreads.intra_op = { threads = 1 }",
        "[remedies]\noptimizer.fused = true\nthreads.intra_op.threads = 1",
        "[remedies.optimizer]\nfused = true\n[remedies.threads.intra_op]\nthreads = 1",
        'remedies = { "optimizer.fused" = true, "threads.intra_op" = { threads = 1 } }',
        '[remedies]\n"optimizer.fused" = {}\n[remedies."threads.intra_op"]\nthreads = 1',
    ],
)
def test_quoted_and_dotted_forms_mean_the_same(remedies: str) -> None:
    assert recipe.parse(f"schema = 1\n{remedies}\n").remedies == recipe.parse(FULL).remedies


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "r.toml:1: `schema = 1` is missing"),
        ("\n\nschema = 2", "r.toml:3: schema 2; this version reads schema 1"),
        ("schema = true", "r.toml:1: schema true"),
        ('schema = 1\n[remedies]\n"optimizer.fuse" = true', "r.toml:3: no remedy 'optimizer.fuse' (did you mean optimizer.fused?)"),
        ('schema = 1\n[remedies]\n"loader.cache" = true', "r.toml:3: loader.cache is no longer a remedy; keep the items in the dataset itself"),
        ("schema = 1\n[remedies]\noptimizer.fuse = true", "r.toml:3: no remedy 'optimizer.fuse' (did you mean optimizer.fused?)"),
        ('schema = 1\n[remedies]\n"optimizer.fused" = false', "r.toml:3: optimizer.fused must be `true` or a table"),
        ('schema = 1\n[remedies]\n"optimizer.fused" = "yes"', "r.toml:3: optimizer.fused must be `true`"),
        ('schema = 1\n[remedies]\n"threads.intra_op" = { thread = 1 }', "(did you mean threads?)"),
        ('schema = 1\n[remedies]\n"threads.intra_op" = { threads = 0 }', "r.toml:3: threads.intra_op: threads must be at least 1, not 0"),
        ('schema = 1\n[remedies]\n"threads.intra_op" = { threads = true }', "must be a whole number"),
        ('schema = 1\n[remedies."threads.intra_op"]\n\nthreads = "many"', "r.toml:4: threads.intra_op: threads must be a whole number"),
        ('schema = 1\n[remedies]\n"optimizer.fused" = true\n\n"optimizer.foreach" = true', "r.toml:5: optimizer.foreach and optimizer.fused (line 3) both set"),
        ('schema = 1\n[remedies]\n"optimizer.fused" = true\noptimizer.fused = true', "r.toml:4: optimizer.fused is already in line 3"),
        ('schema = 1\n[remedies]\n"optimizer.fused" = true\n"optimizer.fused" = true', "r.toml:4: Cannot overwrite"),
        ("schema = 1\n[remedy]", "r.toml:2: Object contains unknown field `remedy` (did you mean remedies?)"),
        ("schema = 1\nremedies = 3", "r.toml:2: remedies: Expected `object`, got `int`"),
        ("schema = 1\n[match]\nscript = 3", "r.toml:3: match.script: Expected `str | null`, got `int`"),
        ('schema = 1\n[match]\ndevice = "tpu"', "r.toml:3: match.device: Invalid enum value 'tpu'"),
        ('schema = 1\n[match]\ntorch = "new"', "r.toml:3: versions 'new'"),
        ("schema = 1\n[args]\nworkers = 2", "r.toml:3: 'workers' is not a flag"),
        ('schema = 1\n[args]\n"--x" = [1]', "r.toml:3: --x must be text, a number or true, not a list"),
        ("schema = 1\n[evidence]\ninterval = [2, 1]", "r.toml:3: interval must be two numbers, the lower first"),
        ("schema = 1\n[evidence]\nspeedup = nan", "r.toml:3: evidence.speedup: Expected `float` > 0"),
        ('schema = 1\n[numerics]\nclass = "roundin"', "(did you mean rounding?)"),
        ("schema = 1\n[match", "r.toml:2:"),
        ("schema = 1\n\n[match]\nx = \x01", "r.toml:4:"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_with_its_place(text: str, says: str) -> None:
    assert says in fault(text)
    assert fault(text).startswith("r.toml:")


@given(st.binary(max_size=400), st.integers(0, 10_000), st.integers(0, 300))
def test_a_damaged_recipe_is_a_recipe_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, cut: int
) -> None:
    body = FULL.encode()
    at %= len(body)
    file = tmp_path_factory.getbasetemp() / "damaged.toml"
    file.write_bytes(body[:at] + junk + body[at + cut :])
    assert is_valid_or_one_line(lambda: recipe.load(file))


chosen = st.builds(
    dict,
    **{
        "optimizer.fused": st.none() | st.just({}),
        "threads.intra_op": st.none() | st.just({}) | st.builds(dict, threads=st.integers(1, 4096)),
        "gc.freeze": st.none() | st.builds(dict, threshold=st.integers(700, 1_000_000)),
    },
)
texts = st.text(max_size=30)
positive = st.none() | st.floats(1e-6, 1e12)
recipes = st.builds(
    Recipe,
    description=st.none() | texts,
    match=st.builds(
        Match,
        script=st.none() | texts,
        device=st.sampled_from([None, "cpu", "cuda"]),
        torch=st.sampled_from([None, ">=2.1", ">=2.4,<3", "==2.13.*"]),
    ),
    remedies=chosen.map(lambda some: tuple(from_registry(k, v) for k, v in some.items() if v is not None)),
    args=st.dictionaries(
        st.sampled_from(["--lr", "-b", "--a.b"]), st.booleans() | st.integers(-9, 9) | st.just('"\n')
    ),
    evidence=st.none()
    | st.builds(
        Measured,
        speedup=positive,
        interval=st.none() | st.tuples(st.floats(-9, 0), st.floats(0, 1e300)),
        baseline_ns=positive,
        measured_on=st.none() | texts,
    ),
    numerics=st.sampled_from([None, "bitwise", "changes-training"]),
)


@given(recipes)
def test_what_is_written_reads_back_equal(made: Recipe) -> None:
    assert recipe.parse(recipe.dump(made)) == made


def test_the_template_is_valid_and_names_every_remedy() -> None:
    assert recipe.parse(template()).remedies == ()
    assert all(f'"{name}"' in template() for name in REGISTRY)
    lines = template().splitlines()
    for name in REGISTRY:
        line = next(line for line in lines if line.startswith(f'# "{name}"'))
        assert recipe.parse(f"schema = 1\n[remedies]\n{line[2:]}").remedies[0].remedy == name
