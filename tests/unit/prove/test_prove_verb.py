"""Arguments of `prove`: what does not go together is said before anything starts; exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autobrrr import cli, recipe
from autobrrr.cli.verbs import prove as verb
from autobrrr.recipe.recipe_fit import Here
from autobrrr.records.proof_records import Proof
from support.proofs import proof, refused

PAIR = ("--before", "python a.py", "--after", "python b.py")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--before", "python a.py"),
        (*PAIR, "--git", "a..b"),
        (*PAIR, "--", "python", "c.py"),
        ("--git", "main..HEAD"),
        (*PAIR, "--env", "a.txt", "--env", "b.txt"),
        ("--env", "a.txt", "--", "python", "c.py"),
        ("--env", "a.txt", "--env", "b.txt"),
        ("--env", "/nowhere/a.txt", "--env", "/nowhere/b.txt", "--", "python", "c.py"),
        ("--before", "python 'a.py", "--after", "python b.py"),
        (*PAIR, "--gate", "3%"),
        (*PAIR, "--gate", "slower:0%"),
        (*PAIR, "--for", "1s"),
        (*PAIR, "--allow", "everything"),
        (*PAIR, "--html", "/nowhere/page.html"),
        ("--before", "", "--after", "python b.py"),
        ("--before", "srun python a.py", "--after", "python b.py"),
    ],
)
def test_wrong_words_end_with_two(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["prove", *words]) == 2
    assert capsys.readouterr().out == ""


def test_a_recipe_that_can_not_be_had_here_whole_is_not_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "here", lambda: Here(device="cpu"))
    file = tmp_path / "fast.toml"
    file.write_text('schema = 1\n[remedies."compile.reduce_overhead"]\n')
    assert cli.main(["prove", "--recipe", str(file), "--", "python", "c.py"]) == 2
    assert "compile.reduce_overhead: this machine has no GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "code"),
    [(proof(), 0), (proof(verdict="not_slower"), 0), (proof(verdict="not_proven"), 1), (refused(), 6)],
)
def test_the_exit_code_is_the_verdict(
    found: Proof,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(verb, "_proof", lambda args, gate: found)
    files = {flag: tmp_path / flag.strip("-") for flag in ("--markdown", "--junit", "--html")}
    flags = [str(word) for pair in files.items() for word in pair]
    assert cli.main(["prove", *PAIR, "--json", *flags]) == code
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["verdict"]) == (1, found.verdict)
    assert all(file.read_text() for file in files.values())
