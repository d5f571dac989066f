"""Which candidate's turn it is on the running job, and what share of the time it may take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.tuner.candidate_space import USUAL_GAIN, Candidate

MOST_OF_TIME = 0.3  # of what is left for trials, for one of them, where others wait


class CandidateQueue:
    """Candidates that wait for their trial.

    Args:
        candidates: To be tried; of equals the earlier one comes first.
        horizon_s: Time over which a gain counts against the pause of applying it.
    """

    def __init__(self, candidates: Sequence[Candidate], horizon_s: float) -> None:
        self._waiting, self._horizon_s = list(candidates), horizon_s

    def ask(self) -> Candidate | None:
        """The candidate that promises most; None after the last."""
        if not self._waiting:
            return None
        candidate = max(self._waiting, key=self._expected)
        self._waiting.remove(candidate)
        return candidate

    def again(self, candidate: Candidate) -> None:
        """One more turn for a candidate."""
        self._waiting.append(candidate)

    def share_of_time(self, candidate: Candidate) -> float:
        """What one candidate may take of the time that is left for it and all that wait.

        Like its expected gain among theirs, so that what promises most is not left undecided for what
        promises hardly anything; but a prediction that is wrong leaves most of the time to the others.
        """
        gains = [max(self._expected(each), 0.0) for each in (candidate, *self._waiting)]
        by_gain = gains[0] / sum(gains) if any(gains) else 0.0
        return max(1 / len(gains), min(by_gain, MOST_OF_TIME))

    def _expected(self, candidate: Candidate) -> float:
        """Log of the predicted gain, less the share of the horizon that applying it takes."""
        price = REGISTRY[candidate.choice.remedy].price_s / self._horizon_s
        return math.log(candidate.predicted or USUAL_GAIN) - price
