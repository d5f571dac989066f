"""The study of a tuning on the running job, in Optuna by ask and tell: one trial, one comparison.

Candidates are enqueued as they are listed: what is predicted to gain most comes first. A trial's value is the
log of what its candidate gains beside all that is kept. Imports Optuna, so that it is imported itself when a
tuning begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from autobrrr.records import Advice

CANDIDATE = "candidate"


class TuningStudy:
    """Candidates out, gains in."""

    def __init__(self, candidates: Sequence[Advice]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize")
        self._candidates: dict[str, Advice] = {}
        self._open: optuna.Trial | None = None
        for candidate in candidates:
            self.again(candidate)

    @property
    def waiting(self) -> int:
        """How many are still to be asked for."""
        return len(self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def ask(self) -> Advice | None:
        """The next candidate; None after the last."""
        self.tell(None)
        if not self.waiting:
            return None
        self._open = self._study.ask({CANDIDATE: CategoricalDistribution(tuple(self._candidates))})
        return self._candidates[self._open.params[CANDIDATE]]

    def tell(self, gain: float | None) -> None:
        """The log of the gain of the candidate that was asked for last; None: it was not measured."""
        trial, self._open = self._open, None
        if trial is not None:
            self._study.tell(trial, gain, state=TrialState.FAIL if gain is None else None)

    def again(self, candidate: Advice) -> None:
        """One more turn for a candidate."""
        self._candidates[candidate.label] = candidate
        self._study.enqueue_trial({CANDIDATE: candidate.label})
