"""`run --recipe` on unedited scripts: plain, as a module, under launchers and trainers; what strict means."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.day_cases import by_day
from support.training import JOBS, TrainingJob, autobrrr

pytestmark = pytest.mark.integration

PYTHON = [sys.executable]
BIN = Path(sys.executable).parent
LOADING = """
"loader.workers" = { workers = 1 }
"loader.persistent_workers" = true
"""
RANKS = """
"ddp.bucket_size" = { megabytes = 64 }
"ddp.gradient_as_bucket_view" = true
"""
FOREACH = '"optimizer.foreach" = true\n'
TORCHRUN = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]
ACCELERATE = [str(BIN / "accelerate"), "launch", "--cpu", "--num_processes", "1"]
HOW = {
    "plain": (PYTHON, "epochs.py", FOREACH + LOADING, "processes beside 1"),
    "torchrun": (TORCHRUN, "ranks.py", FOREACH + RANKS, "rank 1 bucket 64 view True"),
    "accelerate launch": (ACCELERATE, "accelerated.py", FOREACH + LOADING, "updates foreach True"),
    "Lightning": (PYTHON, "lit.py", FOREACH + LOADING, "updates foreach True workers 1"),
    "HF Trainer": (PYTHON, "trainer.py", LOADING, "steps 12"),
}


def recipe(folder: Path, remedies: str, match: str = "") -> str:
    file = folder / "r.toml"
    file.write_text(f"schema = 1\n{match}[remedies]\n{remedies}")
    return str(file)


@pytest.mark.parametrize("how", by_day(HOW, {"plain", "torchrun"}.__contains__))
def test_every_remedy_of_the_recipe_is_applied(how: str, tmp_path: Path) -> None:
    launcher, script, remedies, says = HOW[how]
    if not Path(launcher[0]).exists():
        pytest.skip(f"{launcher[0]} is not installed")
    if launcher == TORCHRUN:  # else it leaves a folder with the temporary files
        launcher = [*TORCHRUN, "--log-dir", str(tmp_path / "logs")]
    words = [*launcher, str(JOBS / script), "--steps", "12"]
    done = autobrrr(
        tmp_path, "run", "--strict", "--json", "--recipe", recipe(tmp_path, remedies), "--", *words
    )
    assert done.code == 0, done.stderr
    named = [line.split('"')[1] for line in remedies.splitlines() if line]
    assert sorted((line["remedy"], line["status"]) for line in done.json["remedies"]) == sorted(
        (name, "applied") for name in named
    )
    assert done.json["step_ns"]["count"] == 11
    assert says in done.stdout


def test_a_module_is_known_by_its_own_name_when_the_recipe_asks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nparameter = torch.nn.Parameter(torch.ones(3))\n"
        "optimizer = torch.optim.AdamW([parameter])\n"
        "for _ in range(9):\n    parameter.sum().backward()\n    optimizer.step()\n"
    )
    words = ["sh", "-c", f"cd {tmp_path} && {sys.executable} -m train"]
    order = recipe(tmp_path, FOREACH, '[match]\nscript = "train*"\n')
    done = autobrrr(tmp_path, "run", "--strict", "--json", "--recipe", order, "--", *words)
    assert done.code == 0, done.stderr
    assert [line["status"] for line in done.json["remedies"]] == ["applied"]


DRAWS = """
import torch
class Noisy(torch.utils.data.Dataset):
    def __len__(self): return 16
    def __getitem__(self, index): return torch.rand(4)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(Noisy(), 4)
for _ in range(4):
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
print("sum", repr(model.weight.sum().item()), torch.rand(1).item())
"""


def test_what_a_recipe_declares_to_keep_is_kept_on_a_job_where_its_remedies_would_not(tmp_path: Path) -> None:
    words = [*PYTHON, "-c", DRAWS]
    plain = autobrrr(tmp_path, "run", "--", *words)
    order = recipe(tmp_path, FOREACH + LOADING + '[numerics]\nclass = "bitwise"\n')
    found = autobrrr(tmp_path, "run", "--recipe", order, "--", *words)
    assert found.stdout == plain.stdout
    assert "refused loader.workers: its class is stream on this job" in found.stderr
    assert "applied optimizer.foreach" in found.stderr


@pytest.mark.parametrize(
    ("remedies", "body", "says"),
    [
        (FOREACH, "print(1)", "before the command ended no process of it said that it trains with torch"),
        (RANKS, "import torch, time; time.sleep(0.4)", "never got its chance"),
        ('"host.allocator" = true\n', "print('started')", "not installed"),
    ],
)
def test_strict_means_that_every_remedy_had_its_chance(
    remedies: str, body: str, says: str, tmp_path: Path
) -> None:
    order = recipe(tmp_path, remedies)
    lenient = autobrrr(tmp_path, "run", "--recipe", order, "--", *PYTHON, "-c", body)
    assert lenient.code == 0
    assert says in lenient.stderr
    strict = autobrrr(tmp_path, "run", "--strict", "--recipe", order, "--", *PYTHON, "-c", body)
    assert strict.code == 2
    assert "started" not in strict.stdout


def test_a_job_started_elsewhere_is_told_what_takes_effect_and_detaching_gives_its_settings_back(
    job: Callable[..., TrainingJob], tmp_path: Path
) -> None:
    running = job("epochs")
    order = recipe(tmp_path, LOADING + '"ddp.static_graph" = true\n')
    attached = autobrrr(tmp_path, "attach", str(running.pid), "--recipe", order, "--for", "3s", "--plain")
    assert attached.code == 0, attached.stderr
    for says in (
        "loader.workers is applied",
        "loader.persistent_workers takes effect from the next epoch on",
        "ddp.static_graph is left out",
    ):
        assert says in attached.stderr
    assert autobrrr(tmp_path, "detach", str(running.pid)).code == 0
    running.finish()
    assert "processes beside 0" in running.lines
    assert "loader 0 None False 4" in running.lines
