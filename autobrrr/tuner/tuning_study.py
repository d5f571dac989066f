"""The study behind a tuning, held by Optuna through ask and tell: one trial, one comparison.

Candidates are few, so that the study is a queue, the most promising first; nothing is drawn while
blocks run. A journal file keeps it readable for Optuna's own tools. Optuna is imported when a
study begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr.tuner.candidate_space import Candidate
from autobrrr.tuner.comparison import Comparison

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import Trial as OptunaTrial

CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCandidate:
    """A candidate whose turn it is."""

    number: int
    candidate: Candidate


class TuningStudy:
    """Candidates in, results out.

    Args:
        candidates: In the order in which they are to be tried.
        journal: File of the study; None keeps it in memory.
    """

    def __init__(self, candidates: Sequence[Candidate], journal: Path | None = None) -> None:
        self._by_label = {candidate.choice.label: candidate for candidate in candidates}
        self._waiting = len(self._by_label)
        self._open: dict[int, OptunaTrial] = {}
        self._study = _make(journal)
        for label in self._by_label:
            self._study.enqueue_trial({CANDIDATE: label})

    @property
    def waiting(self) -> int:
        """Candidates whose turn has not come."""
        return self._waiting

    def ask(self) -> AskedCandidate | None:
        """The next candidate; None after the last."""
        from optuna.distributions import CategoricalDistribution

        if not self._waiting:
            return None
        self._waiting -= 1
        trial = self._study.ask({CANDIDATE: CategoricalDistribution(tuple(self._by_label))})
        self._open[trial.number] = trial
        return AskedCandidate(number=trial.number, candidate=self._by_label[trial.params[CANDIDATE]])

    def again(self, candidate: Candidate) -> None:
        """One more turn for a candidate, after the others."""
        self._waiting += 1
        self._study.enqueue_trial({CANDIDATE: candidate.choice.label})

    def tell(self, asked: AskedCandidate, result: Comparison | None, outcome: str, why: str) -> None:
        """Enter what became of a candidate. The value is the log of the speed-up."""
        from optuna.trial import TrialState

        trial = self._open.pop(asked.number)
        trial.set_user_attr("outcome", outcome)
        trial.set_user_attr("why", why)
        if result is None or result.interval is None:
            self._study.tell(trial, state=TrialState.FAIL)
            return
        trial.set_user_attr("interval", [result.interval.low, result.interval.high])
        trial.set_user_attr("pairs", result.pairs)
        trial.set_user_attr("steps", result.steps)
        self._study.tell(trial, result.interval.mean)


def _make(journal: Path | None) -> OptunaStudy:
    import optuna
    from optuna.storages import InMemoryStorage, JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = InMemoryStorage() if journal is None else JournalStorage(JournalFileBackend(str(journal)))
    return optuna.create_study(storage=storage, study_name="tune", direction="maximize", load_if_exists=False)
