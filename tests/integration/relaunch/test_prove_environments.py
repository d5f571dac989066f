"""`prove --env`: environments are made once of lock files, and differ in what these say."""

import sys
import sysconfig
from pathlib import Path

import pytest

from autobrrr.errors import EXIT_REFUSED, AutobrrrError, UsageError
from autobrrr.prove.locked_environments import locked_environment, package_changes
from autobrrr.records.proof_records import PackageChange
from support import proof_verb
from support.outside.wheels import wheel
from support.proof_scripts import BACKWARD, SCRIPT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SITE = sysconfig.get_path("purelib")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """`training` 2 skips every second backward call; `borrowed` brings the torch of this installation."""
    folder = tmp_path / "wheels"
    wheel(folder, "borrowed", "1.0", {"borrowed.pth": f"{SITE}\n"})
    wheel(folder, "training", "1.0", {"training.py": "def back(loss, step):\n    loss.backward()\n"})
    return wheel(
        folder, "training", "2.0", {"training.py": "def back(loss, step):\n    step % 2 or loss.backward()\n"}
    )


def lock(tmp_path: Path, wheels: Path, name: str, *lines: str) -> Path:
    file = tmp_path / name
    file.write_text("\n".join(["--no-index", f"--find-links {wheels}", *lines, ""]))
    return file


@pytest.mark.nightly
def test_two_environments_are_judged_as_two_commands_are(tmp_path: Path, wheels: Path) -> None:
    files = [
        lock(tmp_path, wheels, f"{number}.txt", f"training=={number}.0", "borrowed==1.0") for number in (1, 2)
    ]
    folder = tmp_path / "user"
    folder.mkdir()
    text = SCRIPT.replace(BACKWARD, "    training.back(loss, step)\n")
    (folder / "train.py").write_text(f"import training\n{text}")
    words = (
        "--env",
        str(files[0]),
        "--env",
        str(files[1]),
        "--",
        sys.executable,
        "train.py",
        proof_verb.STEPS,
    )
    code, found, _ = proof_verb.proven(tmp_path, folder, *words)
    assert (code, found["refusals"][0]["code"]) == (EXIT_REFUSED, "skipped_backward")
    assert found["packages"] == [{"name": "training", "before": "1.0", "after": "2.0"}]


@pytest.mark.nightly
def test_an_environment_is_made_once_for_what_a_file_says(tmp_path: Path, wheels: Path) -> None:
    one = lock(tmp_path, wheels, "one.txt", "training==1.0")
    same = lock(tmp_path, wheels, "same.txt", "training==1.0")
    other = lock(tmp_path, wheels, "other.txt", "borrowed==1.0")
    said = list[str]()
    made = [
        locked_environment(each, sys.executable, tmp_path / "cache", said.append)
        for each in (one, same, other)
    ]
    assert made[0] == made[1] != made[2]
    assert len(said) == 2
    assert package_changes(made[0], made[2]) == [
        PackageChange(name="borrowed", before=None, after="1.0"),
        PackageChange(name="training", before="1.0", after=None),
    ]
    (made[0] / "made").unlink()  # as after a machine that went down meanwhile
    assert locked_environment(one, sys.executable, tmp_path / "cache", said.append) == made[0]
    assert len(said) == 3


def test_one_that_can_not_be_made_is_said_and_taken_away(tmp_path: Path, wheels: Path) -> None:
    file = lock(tmp_path, wheels, "one.txt", "training==3.0")
    with pytest.raises(AutobrrrError, match=r"one\.txt.*training==3\.0"):
        locked_environment(file, sys.executable, tmp_path / "cache", lambda line: None)
    assert [each for each in (tmp_path / "cache" / "environments").iterdir() if each.is_dir()] == []


@pytest.mark.parametrize("line", ["-r more.txt", "-e .", "--constraint c.txt", "--editable=x"])
def test_what_may_change_beside_the_file_is_refused(tmp_path: Path, wheels: Path, line: str) -> None:
    file = lock(tmp_path, wheels, "one.txt", line)
    with pytest.raises(UsageError, match=r"one\.txt"):
        locked_environment(file, sys.executable, tmp_path / "cache", lambda line: None)


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml", "nowhere.txt"])
def test_what_is_no_list_of_requirements_is_refused(tmp_path: Path, name: str) -> None:
    if name != "nowhere.txt":
        (tmp_path / name).write_text("version = 1\n")
    with pytest.raises(UsageError, match=name):
        locked_environment(tmp_path / name, sys.executable, tmp_path / "cache", lambda line: None)
