"""Another process compiles for a candidate while others are tried; training pauses for what is left then."""

from __future__ import annotations

from autobrrr.tuner.candidate_space import Candidate
from autobrrr.tuner.job_under_test import JobUnderTest


class Preparation:
    """It ends early where training loses more by it than it may, or too little time would be left.

    Args:
        step_ns: What a step takes without that process.
        most_ns: What training may lose.
        end_ns: On the bench's clock.

    Raises:
        NotApplied, RemedyLost: as `JobUnderTest.prepare` does.
    """

    def __init__(
        self, bench: JobUnderTest, candidate: Candidate, *, step_ns: float, most_ns: float, end_ns: int
    ) -> None:
        self.candidate = candidate
        self._bench, self._step_ns, self._most_ns, self._end_ns = bench, step_ns, most_ns, end_ns
        self._began_ns, self._first = bench.now_ns(), bench.next_seq()
        self._compiling = bench.prepare(candidate.choice.remedy, candidate.choice.settings)

    def ended(self) -> bool:
        """Whether it has ended; it is made to end where it must."""
        over = self._bench.now_ns() > self._end_ns or self.lost_ns > self._most_ns
        if (over or self._bench.cancelled()) and not self._compiling.done():
            self._compiling.stop()
        return self._compiling.done()

    @property
    def why(self) -> str | None:
        """Why nothing was compiled; None where it was."""
        return self._compiling.why

    @property
    def lost_ns(self) -> float:
        """What training has lost so far, with all that was tried meanwhile."""
        steps = self._bench.next_seq() - self._first
        return max(0.0, self._bench.now_ns() - self._began_ns - steps * self._step_ns)

    def end(self) -> None:
        """Nothing compiles any more."""
        self._compiling.stop()
