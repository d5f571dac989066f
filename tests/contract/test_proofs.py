"""Planted fakes are refused for the right reason, honest changes are not: real runs, as in `prove`."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from autobrrr.prove.referee import Counted, counted
from autobrrr.prove.run_account import RunAccount, accounts_of
from autobrrr.records.proof_records import WorkRefusal
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from support import proof_scripts
from support.day_cases import by_day
from support.proof_scripts import Change

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
STEPS = 80
# A run costs four seconds of a core: all run by night. The rules have unit tests (test_work_rules).
BY_DAY = {"skips_backward", "half_batch", "silent_bfloat16", "smaller_evaluation", "vectorised", "workers"}


def cases(changes: Iterable[Change]) -> list[Change | ParameterSet]:
    return by_day(changes, lambda change: change.name in BY_DAY)


Account = Callable[..., list[RunAccount]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Referee:
    """The unchanged script, run twice, and how others are run."""

    before: RunAccount
    again: RunAccount
    folder: Path
    account: Account
    factory: TrialFactory
    known: dict[str, RunAccount] = field(default_factory=dict)  # by the name of a change, which runs once

    def of(self, change: Change, *allowed: str) -> Counted:
        if change.name not in self.known:
            file = proof_scripts.written(self.folder, change.name, change.text())
            (self.known[change.name],) = self.account(after=file)
        after = self.known[change.name]
        return counted(self.before, self.again, after, ("bitwise", "rounding", *allowed))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    place = tmp_path_factory.mktemp("prove")
    folder = place / "user"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.randbelow", lambda most: 1)  # all runs have the same steps watched
        with TrialFactory(
            command=(),
            folder=folder,
            environment={"PATH": os.defpath, "HOME": str(place)},
            runtime=place / "r",
        ) as factory:

            def account(**files: Path) -> list[RunAccount]:
                launches = {
                    name: TrialLaunch(
                        command=(sys.executable, str(file), str(STEPS)),
                        environment=factory.variables(),
                        folder=folder,
                    )
                    for name, file in files.items()
                }
                return accounts_of(factory, list(launches.items()), 60.0)

            base = proof_scripts.written(folder, "before", proof_scripts.SCRIPT)
            before, again = account(before=base, again=base)
            yield Referee(before=before, again=again, folder=folder, account=account, factory=factory)
    assert sorted(file.suffix for file in folder.iterdir() if file.is_file()) == [".py"] * len(
        list(folder.iterdir())
    )


def test_a_script_is_counted_from_inside(referee: Referee) -> None:
    found = counted(referee.before, referee.again, referee.again, ("bitwise",))
    assert (found.refusals, found.broken, found.sameness.class_) == ([], None, "bitwise")
    work = found.work.before
    assert (work.steps, work.ended, work.samples_per_step, work.tokens_per_step) == (STEPS, True, 32.0, 512.0)
    assert (work.backwards_per_step, work.updated_share, work.dataset_samples) == (1.0, 1.0, 2048)
    assert (work.evaluated, work.checkpoints, work.seeds) == (1024, 4, ["torch.seed(0)"])
    products = 2 * 32 * (32 * 96 + 96 * 96 + 96 * 10)
    assert work.flops_per_step == 3 * products  # forward, and two for the gradients


@pytest.mark.parametrize("fake", cases(proof_scripts.FAKES), ids=lambda fake: str(fake.name))
def test_a_fake_is_refused_for_what_it_does(referee: Referee, fake: Change) -> None:
    found = referee.of(fake)
    assert found.refusals, found.sameness
    assert found.refusals[0].code in fake.reasons, found.refusals


@pytest.mark.parametrize("change", cases(proof_scripts.HONEST), ids=lambda change: str(change.name))
def test_an_honest_change_is_the_same_work(referee: Referee, change: Change) -> None:
    found = referee.of(change)
    assert found.refusals == []
    assert found.sameness.class_ in ("bitwise", "rounding")


def test_another_order_of_the_same_samples_must_be_allowed(referee: Referee) -> None:
    found = referee.of(proof_scripts.KEPT_WORKERS)
    assert [each.code for each in found.refusals] == [WorkRefusal.OTHER_STREAM]
    assert (found.sameness.step, found.sameness.class_) == (64, "stream")
    assert referee.of(proof_scripts.KEPT_WORKERS, "stream").refusals == []


def test_what_parts_is_named_with_its_line(referee: Referee) -> None:
    change = Change(
        name="leaky", edits=(("F.relu(self.second(hidden))", "F.leaky_relu(self.second(hidden * 0.9))"),)
    )
    found = referee.of(change)
    assert [each.code for each in found.refusals] == [WorkRefusal.CHANGES_TRAINING]
    assert (found.sameness.step, found.sameness.what, found.sameness.module) == (0, "output", "second")
    line = 1 + change.text().splitlines().index("        hidden = F.leaky_relu(self.second(hidden * 0.9))")
    assert found.sameness.place == f"leaky.py:{line}"
    assert referee.of(change, "stream", "changes-training").refusals == []


@pytest.mark.nightly
@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_need_not_be_computed(referee: Referee, reentrant: bool) -> None:
    layer = "hidden = F.relu(self.second(hidden))"
    again = f"hidden = F.relu(checkpoint(self.second, hidden, use_reentrant={reentrant}))"
    imports = "import torch\nfrom torch.utils.checkpoint import checkpoint\n"
    text = proof_scripts.SCRIPT.replace(layer, again).replace("import torch\n", imports, 1)
    file = proof_scripts.written(referee.folder, f"recomputes_{reentrant}", text)
    found = counted(*referee.account(before=file, again=file), referee.before, ("bitwise",))
    assert (found.refusals, found.sameness.class_) == ([], "bitwise")
    assert found.work.before.samples_per_step == found.work.after.samples_per_step
