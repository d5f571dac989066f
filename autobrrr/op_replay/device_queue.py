"""How long a step takes on a device whose calls take other times: host and device as two queues.

The host issues calls one after the other. The device runs them in order, each once it is issued and the call
before it has ended. A call that waits for the device holds the host. So a step takes as long as the slower
of the two, plus what cannot overlap. Host times come from timed steps in the job. The profiler makes them
longer: one factor for all is chosen so that the model's step at B is as long as the measured one. Only
loading grows with the batch; other host times stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from .player import NoAnswer
from .step_record import RecordedStep, TimedStep, tensors_in

STEADY = 4  # steps, after which one begins as the last did
MODEL_ERROR = 0.05  # of the step at B
HOST = (0.2, 1.1)  # of the timed steps' host times; the profiler takes some of them
CLOSE = 0.02  # a device this close to the whole step limits it, however fast the host is
BISECTIONS = 24
UNSURE = 0.05  # of the answer, by what of the host's work may grow with the batch, or not


class StepQueue:
    """One timed step in the job, on a device.

    Args:
        waits: Calls that wait for the device, by index, and what the host does in them.
        base: Device times at B.
        step_ns: As measured, without a profiler.

    Attributes:
        loading_ns: Of the host's time, what grows with the batch.
        unknown_ns: What may: Python at length, and operators on the CPU.

    Raises:
        NoAnswer: the model's step is not as long as the measured one.
    """

    def __init__(
        self,
        program: RecordedStep,
        step: TimedStep,
        waits: Mapping[int, float],
        base: Sequence[float],
        step_ns: int,
    ) -> None:
        calls = [(spent, began) for _, spent, _, _, began in step.calls]
        ends = [began + spent for spent, began in calls]
        gaps = [max(0.0, step.step_ns - (max(ends) - calls[0][1]))]  # before each call
        gaps += [max(0, began - end) for end, (_, began) in zip(ends, calls[1:], strict=False)]
        issued = [min(spent, waits.get(index, spent)) for index, (spent, _) in enumerate(calls)]
        self._host, self._waits, self._base = list(zip(gaps, issued, strict=True)), waits, base
        self.loading_ns = step.loading_ns
        self.unknown_ns = step.held_ns + sum(
            spent
            for call, spent in zip(program.calls, issued, strict=True)
            if not any(value.on_device for value in tensors_in([*call.args, *call.outputs]))
        )
        low, high = HOST
        for _ in range(BISECTIONS):
            self._factor = (low + high) / 2
            low, high = (
                (low, self._factor) if self._step_ns(base) > (1 - CLOSE) * step_ns else (self._factor, high)
            )
        model_ns = self._step_ns(base)
        if abs(model_ns / step_ns - 1) > MODEL_ERROR:
            told = f"{step_ns / 1e6:.2f} ms; by the replay of its operators {model_ns / 1e6:.2f} ms"
            raise NoAnswer(f"a step takes {told}")

    def ratio(self, device: Sequence[float], more_ns: float) -> float:
        """A step with these device times and so much more for the host to do, over the step at B."""
        return self._step_ns(device, more_ns) / self._step_ns(self._base)

    def _step_ns(self, device: Sequence[float], more_ns: float = 0.0) -> float:
        """A step in a long row of them."""
        host = end = before = 0.0
        for _ in range(STEADY):
            before = max(host, end)
            host += self._factor * more_ns
            for index, ((gap_ns, issue_ns), device_ns) in enumerate(zip(self._host, device, strict=True)):
                begun = host + self._factor * gap_ns
                host = begun + self._factor * issue_ns
                if device_ns:
                    end = max(max(end, begun) + device_ns, host)
                if index in self._waits:
                    host = max(host, end)
        return max(host, end) - before


def device_ratio(steps: Sequence[StepQueue], device: Sequence[float], factor: float) -> float:
    """A step at `factor` times the batch over the one at B.

    Raises:
        NoAnswer: it depends on whether the host has more to do then.
    """
    least, most = (
        median(
            step.ratio(device, (factor - 1) * (step.loading_ns + also * step.unknown_ns)) for step in steps
        )
        for also in (0, 1)
    )
    if most > least * (1 + UNSURE):
        raise NoAnswer("the device waits for Python or operators on the CPU, and a replay can't scale those")
    return least
