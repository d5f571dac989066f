"""The job's own files are read, installed ones are not."""

import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from autobrrr.agent.remedies.compile.compile_models import second_order_file


def module(file: Path | None, text: str = "") -> ModuleType:
    made = ModuleType("made")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        made.__file__ = str(file)
    return made


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("torch.autograd.grad(u.sum(), x, create_graph=True)", True),
        ("loss.backward(create_graph = second_order)", True),
        ("loss.backward(create_graph=False)", False),
        ("loss.backward()  # no create_graph here", False),
    ],
)
def test_a_file_that_differentiates_gradients_is_found(text: str, refused: bool, tmp_path: Path) -> None:
    modules = {"__main__": module(None), "losses": module(tmp_path / "losses.py", text)}
    assert second_order_file(modules) == ("losses.py" if refused else None)


def test_what_is_installed_or_standard_or_gone_is_not_the_jobs_own(tmp_path: Path) -> None:
    text = "grad(y, x, create_graph=True)"
    gone = module(tmp_path / "gone.py", text)
    (tmp_path / "gone.py").unlink()
    standard = ModuleType("standard")
    standard.__file__ = str(Path(sysconfig.get_paths()["stdlib"]) / "argparse.py")
    installed = module(tmp_path / "site-packages" / "lib" / "losses.py", text)
    assert second_order_file({"a": gone, "b": standard, "c": installed}) is None
