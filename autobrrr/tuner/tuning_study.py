"""The study of a tuning on the running job, in Optuna by ask and tell: one trial, one comparison.

What is predicted to gain most is enqueued first. A trial's value is the log of what its candidate gains
beside all that is kept. Imports Optuna, so that it is imported itself when a tuning begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.tuner.candidate_space import USUAL_GAIN, Candidate

MOST_OF_TIME = 0.3  # of what is left for trials, for one of them, where others wait
CANDIDATE = "candidate"


class TuningStudy:
    """Candidates out, gains in.

    Args:
        candidates: To be tried; of equals the earlier one comes first.
        horizon_s: Time over which a gain counts against the pause of applying it.
    """

    def __init__(self, candidates: Sequence[Candidate], horizon_s: float) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize")
        self._candidates: dict[str, Candidate] = {}
        self._horizon_s = horizon_s
        self._open: optuna.Trial | None = None
        for candidate in sorted(candidates, key=self._expected, reverse=True):
            self.again(candidate)

    def ask(self) -> Candidate | None:
        """The candidate that promises most; None after the last."""
        if not self._waiting():
            return None
        self._open = self._study.ask({CANDIDATE: CategoricalDistribution(tuple(self._candidates))})
        return self._candidates[self._open.params[CANDIDATE]]

    def tell(self, gain: float | None) -> None:
        """What became of the candidate that was asked for last: the log of its gain; None: not measured."""
        assert self._open is not None
        self._study.tell(self._open, gain, state=TrialState.FAIL if gain is None else None)

    def again(self, candidate: Candidate) -> None:
        """One more turn for a candidate."""
        self._candidates[candidate.choice.label] = candidate
        self._study.enqueue_trial({CANDIDATE: candidate.choice.label})

    def share_of_time(self, candidate: Candidate) -> float:
        """What one candidate may take of the time that is left for it and all that wait.

        Like its expected gain among theirs, so that what promises most is not left undecided for what
        promises hardly anything; but a prediction that is wrong leaves most of the time to the others.
        """
        gains = [max(self._expected(each), 0.0) for each in (candidate, *self._waiting())]
        by_gain = gains[0] / sum(gains) if any(gains) else 0.0
        return max(1 / len(gains), min(by_gain, MOST_OF_TIME))

    def _waiting(self) -> list[Candidate]:
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        return [self._candidates[each.system_attrs["fixed_params"][CANDIDATE]] for each in waiting]

    def _expected(self, candidate: Candidate) -> float:
        """Log of the predicted gain, less the share of the horizon that applying it takes."""
        price = REGISTRY[candidate.choice.remedy].price_s / self._horizon_s
        return math.log(candidate.predicted or USUAL_GAIN) - price
