"""The study behind a tuning, held by Optuna through ask and tell: one trial, one comparison.

A parameter is a remedy, its levels are `off` and the options to try; a trial is an arm: what is kept, and the
candidate. Its value is the log of the arm's speed-up over the job as it was. What has ended is kept in a
journal that Optuna's own tools read, and that a later tuning of the same job goes on from. Imports Optuna, so
that it is imported itself when a study begins.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from autobrrr import paths
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.tuner.candidate_space import USUAL_GAIN, Candidate, Choice
from autobrrr.tuner.comparison import Comparison

OFF = "off"
USUAL_HORIZON_S = 1800.0
MOST_OF_TIME = 0.3  # of what is left for trials, for one of them, where others wait


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCandidate:
    """A candidate whose turn it is."""

    number: int
    candidate: Candidate


class TuningStudy:
    """Candidates in, results out.

    Args:
        candidates: To be tried; of equals the earlier one comes first.
        journal: File of the study; None keeps it in memory. One that can't be read is set aside, and one that
            can't be written ends there: a full disk stops no tuning.
        on: What may be among the kept beside them.
        horizon_s: Time over which a gain counts against the pause of switching it on.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        journal: Path | None = None,
        on: Sequence[Choice] = (),
        horizon_s: float = USUAL_HORIZON_S,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._open: dict[int, tuple[optuna.Trial, float]] = {}  # with the log speed-up of what was kept
        self._waiting, self._horizon_s = list(candidates), horizon_s
        choices = [*(each.choice for each in candidates), *on]
        self._space: dict[str, BaseDistribution] = {
            remedy: CategoricalDistribution(
                (OFF, *sorted({_level(each) for each in choices if each.remedy == remedy}))
            )
            for remedy in sorted({each.remedy for each in choices})
        }
        space = hashlib.sha256(str(self._space).encode()).hexdigest()[:8]
        self._journal = None if journal is None else _journal(journal, f"tune-{space}")
        self._study = optuna.create_study(direction="maximize")
        if self._journal is not None:
            self._study.add_trials(self._journal.trials)
        told = (trial.user_attrs for trial in self._study.trials)
        self._measured: dict[str, float] = {
            each["candidate"]: each["gain"] for each in told if "gain" in each
        }

    def expected(self, candidate: Candidate) -> float:
        """Log of the gain, measured or predicted, less the share of the horizon that switching on takes."""
        predicted = math.log(candidate.predicted or USUAL_GAIN)
        price = REGISTRY[candidate.choice.remedy].price_s / self._horizon_s
        return self._measured.get(candidate.choice.label, predicted) - price

    def share_of_time(self, candidate: Candidate) -> float:
        """What one candidate may take of the time that is left for it and all that wait.

        Like its expected gain among theirs, so that what promises most is not left undecided for what
        promises hardly anything; but a prediction that is wrong leaves most of the time to the others.
        """
        gains = [max(self.expected(each), 0.0) for each in (candidate, *self._waiting)]
        by_gain = gains[0] / sum(gains) if any(gains) else 0.0
        return max(1 / len(gains), min(by_gain, MOST_OF_TIME))

    def ask(self, kept: Mapping[Choice, float] | None = None) -> AskedCandidate | None:
        """The candidate that promises most, on top of what is kept; None after the last.

        Args:
            kept: What is on already, with the factor on speed that each has brought.
        """
        if not self._waiting:
            return None
        kept = kept or {}
        candidate = max(self._waiting, key=self.expected)
        self._waiting.remove(candidate)
        arm = [*(each for each in kept if not candidate.choice.conflicts(each)), candidate.choice]
        levels = {each.remedy: _level(each) for each in arm}
        self._study.enqueue_trial({**dict.fromkeys(self._space, OFF), **levels})
        trial = self._study.ask(self._space)
        trial.set_user_attr("candidate", candidate.choice.label)
        trial.set_user_attr("predicted", candidate.predicted)
        trial.set_user_attr("price_s", REGISTRY[candidate.choice.remedy].price_s)
        self._open[trial.number] = trial, math.log(math.prod(kept.values()))
        return AskedCandidate(number=trial.number, candidate=candidate)

    def again(self, candidate: Candidate) -> None:
        """One more turn for a candidate."""
        self._waiting.append(candidate)

    def tell(self, asked: AskedCandidate, result: Comparison | None, outcome: str, why: str) -> None:
        """Enter what became of a candidate."""
        trial, before = self._open.pop(asked.number)
        trial.set_user_attr("outcome", outcome)
        trial.set_user_attr("why", why)
        if result is None or result.interval is None:
            self._keep(self._study.tell(trial, state=TrialState.FAIL))
            return
        trial.set_user_attr("gain", result.interval.mean)
        trial.set_user_attr("interval", [result.interval.low, result.interval.high])
        trial.set_user_attr("pairs", result.pairs)
        trial.set_user_attr("steps", result.steps)
        self._keep(self._study.tell(trial, before + result.interval.mean))

    def _keep(self, ended: FrozenTrial) -> None:
        try:
            if self._journal is not None:
                self._journal.add_trial(ended)
        except OSError:
            self._journal = None


def _journal(file: Path, name: str) -> optuna.Study | None:
    """The study in a file; None where it can't be kept there."""
    for _ in range(2):
        try:
            paths.make_closed(file.parent)
            storage = JournalStorage(JournalFileBackend(str(file)))
            return optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=True
            )
        except OSError:
            return None
        except Exception:  # noqa: BLE001 - cut by a crash, or no journal: Optuna asserts what it should ask
            file.rename(file.with_suffix(".unread"))
    return None


def _level(choice: Choice) -> str:
    return ", ".join(f"{name}={value}" for name, value in choice.options) or "on"
