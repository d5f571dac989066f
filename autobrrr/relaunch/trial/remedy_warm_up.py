"""The remedies that a trial is started with, until all are on and their first steps are over.

In: their names, what agents say of them, steps so far. Out: whether one is awaited, whether one is being
paid for, and how long a step may take meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Remedy
from autobrrr.attach.preload.preload_outcome import PreloadOutcome

PATIENCE = 10.0  # times what it usually takes


@dataclass(slots=True)
class ComingOn:
    """Remedies of one trial, and from which step on they were."""

    told: PreloadOutcome
    names: tuple[str, ...]
    _since: int | None = field(default=None, init=False)

    def look(self, steps: int) -> None:
        """Note the step after which the last of them was heard of."""
        if self._since is None and not self.is_awaited():
            self._since = steps

    def is_awaited(self) -> bool:
        """One has neither gone on nor been refused: what is measured now would be without it."""
        self.told.news()
        return not {line.get("remedy") for line in self.told.remedies}.issuperset(self.names)

    def is_paid_for(self, steps: int) -> bool:
        """All are on, but steps still hold what one takes once, compilation say."""
        return self._since is not None and self._goes_on(steps)

    def patience_s(self, steps: int) -> float:
        """How long a step may take, because one comes on or is about to; 0: no longer than usual."""
        return PATIENCE * sum(each.price_s for each in self._slow()) if self._goes_on(steps) else 0.0

    def _goes_on(self, steps: int) -> bool:
        longest = max((each.warm_up_steps for each in self._slow()), default=0)
        return longest > 0 and (self._since is None or steps - self._since < longest)

    def _slow(self) -> list[Remedy]:
        return [REGISTRY[name] for name in self.names if name in REGISTRY and REGISTRY[name].price_s]
