"""`slower_job.py JOB PERCENT`: a variant of `text_job.py` in which every step takes that share longer."""

import sys
import time

import torch
from text_job import Text, Training
from torch import Tensor


class SlowText(Text):
    """Takes every word apart, and checks it."""

    def __getitem__(self, index: int) -> Tensor:
        spelt = [bin(int(word)).replace("0b", "").zfill(8) for word in self.words[index]]
        return torch.tensor([int("".join(digit for digit in word), 2) for word in spelt])


class SlowSamples(Training):
    """A slow data set, in the process that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.text = SlowText(len(self.text), 1)


class CountedBadly(Training):
    """Logs norms and histograms of weights and gradients in every step, and shows them to nobody."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.seen = [
            (weight.norm().item(), torch.histc(weight.detach(), 64).tolist(), weight.grad.norm().item())
            for weight in self.model.parameters()
            if weight.grad is not None
        ]
        return found


JOBS = {"text": Training, "slow_samples": SlowSamples, "logging": CountedBadly}


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
