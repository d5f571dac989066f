"""Advice `batch.accumulation`: larger micro-batches, fewer of them, the same global batch.

Recognised by several backwards in a step, and by a flag or a loop that says so: two losses of one
batch are two backwards too. The counter is the script's own: a larger batch from the
DataLoader alone would change the global batch, so that this is never switched on live. Where the script
was started with flags for both, the reason names their new values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.batch_fit import BatchFit, fit_batch
from autobrrr.diagnosis.models.sampled_frames import sites
from autobrrr.machine.kernel_text import number

BATCH_FLAG = re.compile(
    r"-+(?:(?:per[-_]device[-_])?(?:train[-_])?(?:micro[-_]?)?(?:batch[-_]?size|batch|bs|b))$"
)
ACCUMULATION_FLAG = re.compile(r"-+(?:gradient|grad)?[-_]?accum\w*(?:-\w+)*$")


def accumulation(measured: Measurements) -> str | None:
    """Why and how; None for a job with one backward a step."""
    anatomy = measured.anatomy
    count = measured.phases.backwards if measured.phases is not None else None
    if anatomy is None or count is None or count < 2 or count % 2:
        return None
    if len(anatomy.optimizers) > 1 or "LBFGS" in anatomy.optimizers:  # which asks for one batch again
        return None
    fit = fit_batch(measured.probe)
    gain = ""
    if isinstance(fit, BatchFit) and fit.probe.ratio_2x is not None:
        if fit.probe.ratio_2x >= 1.95:
            return None  # twice the samples take twice the time: nothing is shared
        gain = f" (twice the samples take {fit.probe.ratio_2x:.2f} times as long)"
    argv = measured.facts.argv if measured.facts is not None else []
    said = any(ACCUMULATION_FLAG.match(flag) and value == count for flag, value in _flags(argv))
    if not said and not sites(measured, "accumulates"):
        return None
    flags = new_flags(argv, count)
    own = "twice the micro-batch and half the count, in the script: it is not possible on the running job"
    how = own if flags is None else f"start it with {flags}"
    same = f"{count // 2} over twice the samples give the same sum with fewer launches{gain}"
    return f"{count} backwards make one step: {same}; {how}"


def new_flags(argv: Sequence[str], count: int) -> str | None:
    """`--batch-size 16 --grad-accum 2` for a script started with half and twice that; None where unclear."""
    given = dict(_flags(argv))
    counts = [flag for flag, value in given.items() if ACCUMULATION_FLAG.match(flag) and value == count]
    batches = [flag for flag in given if BATCH_FLAG.match(flag)]
    if len(counts) != 1 or len(batches) != 1:
        return None
    return f"{batches[0]} {2 * given[batches[0]]} {counts[0]} {count // 2}"


def _flags(argv: Sequence[str]) -> list[tuple[str, int]]:
    """Flags with a whole number, written with a space or an equals sign."""
    found = []
    for at, word in enumerate(argv):
        flag, sign, value = word.partition("=")
        if not flag.startswith("-"):
            continue
        value = value if sign else (argv[at + 1] if at + 1 < len(argv) else "")
        known = number(value)
        if known is not None and known >= 0:
            found.append((flag, known))
    return found
