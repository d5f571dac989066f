"""Two scripts of this folder as `prove` times them. In: their words. Out: their turns."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEEDUPS = ROOT / "benchmarks" / "speedups"
sys.path.insert(0, str(ROOT))

from autobrrr.relaunch.study.timed_turns import TimedTurns, with_twin  # noqa: E402
from autobrrr.relaunch.trial.live_trial import Limits, TrialLaunch  # noqa: E402
from autobrrr.relaunch.trial.trial_factory import TrialFactory  # noqa: E402

STEPS = "4000"


@contextmanager
def timed_sides(before: Sequence[str], after: Sequence[str]) -> Iterator[TimedTurns]:
    """Until the end of the context they can be started."""
    with tempfile.TemporaryDirectory(prefix="tmp") as place:
        factory = TrialFactory(
            command=(),
            folder=SPEEDUPS,
            environment={**os.environ, "TEXT_JOB_STEPS": STEPS},
            runtime=Path(place) / "r",
            limits=Limits(settle_s=8.0),
        )
        with factory:
            launches = [
                TrialLaunch(
                    command=(sys.executable, *words), environment=factory.variables(), folder=SPEEDUPS
                )
                for words in (before, after)
            ]
            yield TimedTurns(with_twin(factory, *launches))
