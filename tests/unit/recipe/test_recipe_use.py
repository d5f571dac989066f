"""Recipes in use: made from a tuning, fitted to a machine, listed, copied, compared."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from autobrrr import recipe
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.cli.verbs import recipe as cli
from autobrrr.errors import UsageError
from autobrrr.recipe.recipe_fit import Here, satisfies
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob

SHIPPED = (
    "bitwise-only",
    "cpu-only",
    "ddp-small-buckets",
    "inference-heavy-rl",
    "input-bound-images",
    "memory-bound-pointwise",
    "small-batch-transformer",
    "tiny-model-host-bound",
)


def words(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.prepare_parser(parser)
    return parser.parse_args(given)


def test_a_tuning_becomes_a_recipe_with_its_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    job = SimulatedJob(
        effects={"optimizer.fused": Effect(speed=1.3), "threads.intra_op(threads=1)": Effect(speed=1.2)}
    )
    tuning = tune(job, settings=TuneSettings(budget_ns=20_000_000_000))
    made = recipe.from_tuning(tuning)
    assert {chosen.remedy: chosen.options for chosen in made.remedies} == {
        "optimizer.fused": {},
        "threads.intra_op": {"threads": 1},
    }
    assert made.evidence.speedup == tuning.speedup
    assert made.evidence.at_least, "no fresh start was measured"
    assert "at_least = true  # gained by a running job" in recipe.dump(made)
    assert made.evidence.measured_on == "2 cores, torch 2.13.0"
    assert made.match.script == "train.py"
    assert made.numerics == "rounding"
    assert recipe.parse(recipe.dump(made)) == made


def test_a_tuning_stopped_before_its_closing_run_claims_nothing() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.3)}, cancel_after_steps=550)
    tuning = tune(job, settings=TuneSettings(budget_ns=40_000_000_000, only=("optimizer.fused",)))
    assert tuning.kept == ["optimizer.fused"]
    assert recipe.from_tuning(tuning).evidence is None


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes_are_valid_and_say_what_they_are_for(name: str) -> None:
    found = recipe.load(name)
    assert found.description
    assert found.remedies
    assert found.numerics is not None


@pytest.mark.parametrize(
    ("version", "clauses", "meets"),
    [
        ("2.13.0+cpu", ">=2.4", True),
        ("2.3.1", ">=2.4", False),
        ("2.13.0", ">=2.4,<2.13", False),
        ("2.13.1", "==2.13.*", True),
        ("2.13.1", "==2.13", False),
        ("3.0.0", "!=3.*", False),
        ("2.4.0a0+git1a2b", ">=2.4", True),
        ("of my own", ">=2.4", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, clauses: str, meets: bool) -> None:
    assert satisfies(version, clauses) is meets


def test_what_does_not_fit_is_said_line_by_line() -> None:
    found = recipe.parse(
        'schema = 1\n[match]\nscript = "t*.py"\ndevice = "cuda"\ntorch = "<2"\n'
        '[remedies]\n"threads.intra_op" = { threads = 64 }'
    )
    lines = recipe.misfits(found, Here(script="/home/me/eval.py", device="cpu", torch="2.13.0", cores=2))
    assert len(lines) == 4
    assert "line 7" in lines[-1]
    assert recipe.misfits(found, Here()) == []
    assert recipe.misfits(found, Here(script="x/train.py", device="cuda", torch="1.13", cores=64)) == []


def test_new_and_cp_never_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine.toml"
    assert cli.run(words("new", str(target))) == 0
    with pytest.raises(UsageError, match="already exists"):
        cli.run(words("new", str(target)))
    with pytest.raises(UsageError, match="already exists"):
        cli.run(words("cp", "cpu-only", str(target)))
    assert cli.run(words("cp", "cpu-only", str(tmp_path / "copy.toml"))) == 0
    assert recipe.load(tmp_path / "copy.toml") == recipe.load("cpu-only")


def test_validate_looks_at_all_before_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("schema = 7")
    with pytest.raises(UsageError, match=r"bad\.toml:1: schema 7"):
        cli.run(words("validate", str(bad), "cpu-only"))
    assert "cpu-only: valid, 3 remedies" in capsys.readouterr().out


def test_diff_shows_how_two_recipes_differ(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cli.run(words("diff", "cpu-only", "tiny-model-host-bound"))
    assert capsys.readouterr().out.splitlines() == [
        '- remedies."host.malloc" = true',
        '- remedies."threads.intra_op" = true',
        '+ remedies."threads.intra_op" = { threads = 1 }',
    ]
    cli.run(words("diff", "cpu-only", "cpu-only"))
    assert capsys.readouterr().out == ""
    for name, value in (("switch", "true"), ("number", "1")):
        (tmp_path / name).write_text(f'schema = 1\n[args]\n"--amp" = {value}\n')
    cli.run(words("diff", str(tmp_path / "switch"), str(tmp_path / "number")))
    assert capsys.readouterr().out.splitlines() == ["- args.--amp = true", "+ args.--amp = 1"]


def test_show_and_schema_print(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(words("show", "cpu-only"))
    assert recipe.parse(capsys.readouterr().out) == recipe.load("cpu-only")
    cli.run(words("schema"))
    schema = json.loads(capsys.readouterr().out)
    assert schema["title"] == "autobrrr recipe"
    said = {
        name: node["description"] for name, node in schema["properties"]["remedies"]["properties"].items()
    }
    assert {name for name, text in said.items() if "Unproven" in text} == {
        name for name, remedy in REGISTRY.items() if "cuda" in remedy.needs
    }


def test_a_recipe_with_what_has_never_run_on_its_device_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "card.toml"
    file.write_text('schema = 1\n[remedies]\n"cuda.allocator" = true\n"gc.freeze" = true\n')
    monkeypatch.setattr(recipe, "shipped", lambda: {"card": file})
    cli.run(words("ls"))
    assert capsys.readouterr().out.strip().endswith("(unproven: cuda.allocator)")
    cli.run(words("ls", "--json"))
    assert json.loads(capsys.readouterr().out)["recipes"][0]["unproven"] == ["cuda.allocator"]
