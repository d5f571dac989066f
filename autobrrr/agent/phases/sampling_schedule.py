"""When phases are sampled: bursts of steps, so far apart that their mean cost stays within budget.

In: the cadence wanted, what sampling costs, how long a step is. Out: whether the step that begins
is sampled, and the first step whose end has to be looked at. Pure.
"""

from __future__ import annotations

BUDGET = 0.0015  # of the step's time, on average, unless more is asked for
DEFAULT_EVERY = 64
DEFAULT_STEPS = 4
CLOSEST = 2  # at least every second step stays plain: the difference shows what sampling costs
# Fields of a command for who must know what each step holds; at up to 1 % of the time.
EVERY_STEP = {"bursts_every": 1, "burst_steps": 1, "cost_ppm": 10_000}
COST_NS = 12_000  # before it is measured
BOUNDARY_NS = 50_000  # before it is measured


class Bursts:
    """The cadence."""

    def __init__(self) -> None:
        self.every = DEFAULT_EVERY
        self.steps = DEFAULT_STEPS
        self.asked = False  # the cadence was commanded: it is only ever made sparser
        self.budget = BUDGET
        self.cost_ns = COST_NS  # of the hooks in one sampled step
        self.boundary_ns = BOUNDARY_NS  # before each of them
        self._from = 0

    def ask(self, every: int, steps: int, seq: int, budget: float = BUDGET) -> None:
        """Use this cadence from here on; where it is the one in use, it goes on as it was."""
        wanted = max(every, 1), max(1, min(steps, every)), budget
        if self.asked and wanted == (self.every, self.steps, self.budget):
            return
        self.every, self.steps, self.budget = wanted
        self.asked = True
        self._from = seq

    def as_usual(self, seq: int) -> None:
        """The cadence that nobody has asked for, from here on."""
        self.every, self.steps, self.budget = DEFAULT_EVERY, DEFAULT_STEPS, BUDGET
        self.asked = False
        self._from = seq

    def rest(self, seq: int, steps: int, step_ns: int) -> None:
        """Pause for so many steps from this one on; not where each step might be sampled within budget.

        What the agent has just done disturbs a short step. Of long ones there are few, and none to lose.
        """
        free = self.cost_ns + self.boundary_ns <= self.budget * step_ns
        self._from = seq if free else seq + steps

    def spacing(self, step_ns: int) -> int:
        """Steps from the beginning of one burst to that of the next."""
        spent = self.steps * self.cost_ns + (self.steps + 1) * self.boundary_ns
        within = -(-spent // max(1, int(self.budget * max(step_ns, 1))))
        if self.asked:
            return max(self.every, within)
        return max(CLOSEST * self.steps, within)

    def took(self, boundary_ns: int) -> None:
        """What the agent's work before a sampled step took; one that was interrupted says little."""
        self.boundary_ns += (min(boundary_ns, 4 * self.boundary_ns) - self.boundary_ns) // 8

    def wants(self, seq: int, step_ns: int) -> bool:
        """Whether the step that begins now is sampled."""
        if seq < self._from:
            return False
        if seq < self._from + self.steps:
            return True
        self._from = max(seq, self._from + self.spacing(step_ns))
        return seq == self._from

    def look_at(self, seq: int) -> int:
        """The first step, from this one on, whose end needs a look: before a burst, and in it."""
        return max(seq, self._from - 1)
