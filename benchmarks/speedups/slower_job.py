"""`slower_job.py JOB PERCENT`: a variant of `text_job.py` in which every step takes that share longer."""

from __future__ import annotations

import sys
import time

import honest_speedups
from text_job import Training
from torch import Tensor

JOBS = {
    "text": Training,
    "slow_samples": honest_speedups.SlowSamples,
    "recomputed": honest_speedups.Recomputed,
    "logging": honest_speedups.CountedBadly,
    "heads": honest_speedups.OneOfTwoHeads,
}


def slower(training: type[Training], share: float) -> Training:
    """Each step ends with a wait, on the processor, for so much of what it took."""

    class Slower(training):
        ended_ns = 0

        def update(self, batch: Tensor) -> float:
            loss = super().update(batch)
            now_ns = time.perf_counter_ns()
            until_ns = now_ns + int(share * (now_ns - (self.ended_ns or now_ns)))
            while time.perf_counter_ns() < until_ns:
                pass
            self.ended_ns = time.perf_counter_ns()
            return loss

    return Slower()


if __name__ == "__main__":
    slower(JOBS[sys.argv[1]], float(sys.argv[2]) / 100).run()
