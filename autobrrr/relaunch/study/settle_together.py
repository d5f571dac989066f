"""Trials that come up at one time, and settle one by one.

In: trials that were just started. Out: all of them settled and standing still, unless one has ended.
Starting is waiting for the most part and overlaps; steps that train beside another trial's would not settle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from autobrrr.relaunch.trial.live_trial import LOOK_S, LiveTrial


def settle_in_turn(
    trials: Sequence[LiveTrial],
    settle: Callable[[LiveTrial], bool],
    on_look: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Stop each as soon as it trains; then let each settle while the others stand still.

    Args:
        settle: Waits until the step times of one have settled; false where it ended before.

    Returns:
        Whether all of them stand there, fit to be measured.
    """
    waiting = list(trials)
    while waiting:
        for trial in trials:
            if trial not in waiting:
                continue
            trial.look()
            if trial.ending is not None:
                return False
            if trial.steps.count:
                trial.pause()
                waiting.remove(trial)
        on_look()
        if waiting:
            sleep(LOOK_S)
    for trial in trials:
        trial.resume()
        if not settle(trial):
            return False
        trial.pause()
    return True
