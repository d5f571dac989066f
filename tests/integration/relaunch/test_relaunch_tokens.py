"""Trials whose samples differ in length, or get another one by a flag: what counts is tokens a second."""

import sys
from pathlib import Path

import pytest

from autobrrr.relaunch.search.argparse_flags import declared_flags
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import make_space
from autobrrr.relaunch.study.study import Study
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from support import relaunch

pytestmark = pytest.mark.integration
ALL = ("bitwise", "rounding", "stream", "changes-training")
# A step takes so long by construction: 5 ms, and 4 us a token.
SCRIPT = """
import argparse, random, time
import torch
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--seq-len", type=int, default=128)
parser.add_argument("--shortest", type=int, default=0)
parser.add_argument("--label", default="a")
args = parser.parse_args()


class Whole:
    is_floating_point = is_complex = False


class Tokens(torch.Tensor):
    dtype = Whole()

    def __init__(self, length):
        self.shape = (8, length)


class Text:
    def __iter__(self):
        while True:
            yield Tokens(random.randint(args.shortest or args.seq_len, args.seq_len))


class Plain(Optimizer):
    def _update(self):
        pass


optimizer = Plain([torch.Tensor(1.0)])
for batch in DataLoader(Text()):
    optimizer.zero_grad()
    time.sleep(0.005 + 4e-6 * batch.shape[0] * batch.shape[1])
    torch.Tensor().backward()
    optimizer.step()
"""


def tune(tmp_path: Path, spec: str) -> dict[str, object]:
    """The study of one choice; nothing is forbidden."""
    relaunch.script(tmp_path / "user", SCRIPT)
    page = tmp_path / "r.html"
    words = ("--param", spec, "--allow", "changes-training", "--allow-writes", "--json", "--html", str(page))
    done = relaunch.tuned(tmp_path, *words)
    assert done.code == 0, done.stderr
    assert "tokens/s" in page.read_text()
    return done.json


def test_samples_of_twice_the_length_are_compared_by_the_token(tmp_path: Path) -> None:
    found = tune(tmp_path, "--seq-len=choice:128,256")
    assert found["objective"] == "tokens_per_s"
    assert found["kept"] == ["--seq-len=256"]
    # 9.1 ms for 1024 tokens, 13.2 ms for 2048: 1.38; by the sample it would be 0.69. Sleeping a little
    # longer than asked weighs more on the shorter step.
    low, high = found["interval"]  # type: ignore[misc]
    assert 1.2 < low <= found["speedup"] <= high < 1.7  # type: ignore[operator]
    assert 0.7 * 1024 / 0.0091 < found["baseline"] <= 1.01 * 1024 / 0.0091  # type: ignore[operator]
    assert "--seq-len may set the length of a sample: tokens are counted" in str(found["note"])
    assert "samples are counted" not in str(found["note"])


def stable(tmp_path: Path, text: str, env: dict[str, str], spec: str, *flags: str) -> TrialFactory:
    """Where trials of a script come from, whose one parameter is this."""
    file = relaunch.script(tmp_path / "user", text)
    command = [sys.executable, str(file), *flags]
    read = parse_parameter(spec, command, env, declared_flags(command))
    space = make_space([read], command, {}, ALL)
    launched = TrialLaunch(command=tuple(command), environment=env, folder=file.parent)
    return relaunch.factory(tmp_path, launched, space=space, walled=False)


def test_random_lengths_alone_bring_nothing(tmp_path: Path) -> None:
    flags = ("--seq-len", "512", "--shortest", "16")
    with stable(tmp_path, SCRIPT, relaunch.environment(), "--label=choice:a,b", *flags) as trials:
        search = Search(trials.space)
        tuning, recipe = Study(stable=trials, space=trials.space, search=search).run()
    assert tuning.objective == "tokens_per_s"
    assert "samples differ in length: tokens are counted" in (tuning.note or "")
    assert (tuning.kept, tuning.speedup, recipe) == ([], 1.0, None)
    (trial,) = tuning.trials
    assert trial.interval is not None
    low, high = trial.interval
    assert low < 1.05
    assert high > 0.95
