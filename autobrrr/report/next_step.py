"""What to type now: the last line of a result, decided by what was found.

In: records. Out: a command, sometimes with what it is for; never the only place where a result is said.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from autobrrr.records import Advice, Diagnosis, DoctorCheck, JobLine, Tuning
from autobrrr.records.busy_words import busy_words, decide_words, once_free
from autobrrr.records.gain_words import factor_words
from autobrrr.records.proof_records import Proof

STARTED = "CMD"  # where nobody knows how the job was started
TRIED = ("bitwise", "rounding")  # classes that a tuning tries unasked


def after_diagnosis(found: Diagnosis) -> str:
    """A crowded machine first, then the first of the advice, then what would decide."""
    best, words = first_to_do(found), started(found)
    if found.activity == "job ended":
        again = f"autobrrr run -- {_command(words)}   (process {found.pid} has ended)"
        return at_next_start(best, words) or again
    crowded = found.provisional or (found.regime == "unknown" and busy_words(found))
    if crowded and found.contention:
        return decide_words(found) or f"autobrrr diagnose {found.pid}   ({once_free(found)})"
    if best is not None and best.reach == "live":
        tries = f"tries {best.remedy}; autobrrr detach reverts all"
        return f"autobrrr tune {found.pid}{allowing(best.class_)} --recipe fast.toml   ({tries})"
    word = found.limit if found.regime == "unknown" else found.regime
    return at_next_start(best, words) or decide_words(found) or f"autobrrr explain {word}"


def first_to_do(found: Diagnosis, *, live: bool = True) -> Advice | None:
    """The first of the advice that is tried unasked, or is an edit; no remedy that changes the training.

    Args:
        live: Also what a tuning tries on the running job.
    """
    for each in found.advice:
        asked = each.reach != "edit" and each.class_ == "changes-training"
        if not asked and (each.reach != "live" or (live and not _only_by_name(each.remedy))):
            return each
    return None


def at_next_start(best: Advice | None, words: Sequence[str] = ()) -> str:
    """A trial that starts the script, or an edit of it; empty for nothing."""
    if best is None:
        return ""
    if best.reach == "edit":
        gain = "" if best.expected is None else f", {factor_words(best.expected)} predicted"
        return f"edit {best.place or 'the script'}{gain} (autobrrr explain {best.remedy}); then start again"
    return f"{proving(best, words)}   (starts the script again)"


def started(found: Diagnosis) -> list[str]:
    """How the job was started, as far as it is known."""
    return ["python", *found.job.argv] if found.job is not None and found.job.argv else [STARTED]


def _only_by_name(name: str) -> bool:
    from autobrrr.agent.remedies.families import REGISTRY  # not for --help

    remedy = REGISTRY.get(name)
    return remedy is not None and bool(remedy.unproven or remedy.only_named or remedy.price_s)


def proving(advice: Advice, words: Sequence[str] = ()) -> str:
    """The command that tries it from the start of the script on."""
    return f"autobrrr tune --param {advice.remedy}{allowing(advice.class_)} -- {_command(words)}"


def allowing(class_: str) -> str:
    """The flag that lets a tuning try a class that it does not try unasked."""
    return "" if class_ in TRIED else f" --allow {class_}"


def after_explanation(name: str, reach: str | None, class_: str | None) -> str:
    """Of a remedy how to try it, of any other word where it is shown; `reach` and `class_` are a remedy's."""
    if reach is None or class_ is None or reach == "edit":
        return "autobrrr diagnose PID   (says where a job needs it)"
    if reach == "relaunch" or name == "batch.larger":  # steps that do more work don't tell its gain
        return f"autobrrr tune --param {name}{allowing(class_)} -- {STARTED}"
    tries = "(tries it on a job; autobrrr detach reverts it)"
    return f"autobrrr tune PID --only {name}{allowing(class_)}   {tries}"


def after_run(command: Sequence[str], recipe: str | None, *, timed: bool, has_ranks: bool = False) -> str:
    """After a script has run: what would make it faster, or prove, of one process, that the recipe did."""
    if not timed:
        return "autobrrr doctor   (no step of a training was seen)"
    if recipe is None or has_ranks:
        return f"autobrrr tune -- {_command(command)}   (looks for what makes it faster)"
    proof = f"autobrrr prove --recipe {shlex.quote(recipe)} -- {_command(command)}"
    return f"{proof}   (proves that it is faster, and does the same)"


def after_tuning(tuning: Tuning, pid: int | None, command: Sequence[str], best: Advice | None = None) -> str:
    """How what was kept comes into the next run; else the best that is not tried live, or how to let go."""
    if tuning.kept and tuning.recipe:
        return started_with(tuning.recipe, command)
    if pid is None and tuning.kept:
        return "the same command with --recipe fast.toml   (measures anew, and writes the winner)"
    if pid is None:
        return f"autobrrr run -- {_command(command)}   (then autobrrr diagnose says what limits it)"
    if tuning.proven:
        return f"autobrrr attach {pid}   (e writes what is on as a recipe; autobrrr detach {pid} reverts it)"
    if tuning.kept:
        only = f"--only {','.join(tuning.kept)}"
        return f"autobrrr tune {pid} {only} --recipe fast.toml   (confirms what is on, on a quiet machine)"
    if best is not None:
        return at_next_start(best, command)
    if tuning.enough_s is not None:
        return f"autobrrr tune {pid} --for {tuning.enough_s}s   (some remedies were not tried)"
    return f"autobrrr report {pid}   (shows what was tried)"


def after_proof(proof: Proof) -> str:
    """What would decide an open question; else the word that the verdict stands on."""
    if proof.refusals:
        return f"autobrrr explain {proof.refusals[0].code.value}"
    speed = proof.speed
    if proof.verdict == "not_proven" and speed is not None and speed.interval[0] <= 1 <= speed.interval[1]:
        longer_m = max(1, round(4 * proof.elapsed_ns / 60e9))  # four times as long halves an interval
        return f"the same command with --for {longer_m}m   (a narrower interval)"
    return f"autobrrr explain {proof.verdict}"


def started_with(recipe: str, command: Sequence[str]) -> str:
    """The command that starts the next run."""
    return f"autobrrr run --recipe {shlex.quote(recipe)} -- {_command(command)}"


def after_listing(lines: Sequence[JobLine]) -> str:
    """Of all jobs that can be looked at, the one that uses most CPU: it trains."""
    ready = [each for each in lines if each.attached or each.attachable]
    if ready:
        trains = max(ready, key=lambda each: (each.cpu_ns or 0) / (each.age_ns or 1))
        return f"autobrrr diagnose {trains.pid}"
    if lines:
        return f"autobrrr doctor {lines[0].pid}   (says why it is not ready)"
    return "autobrrr run -- python train.py   (or autobrrr demo)"


def after_checks(checks: Sequence[DoctorCheck], pid: int | None) -> str:
    """The first thing to mend; else the verb that can begin."""
    failed = next((each for each in checks if each.status == "fail" and each.fix), None)
    if failed is not None:
        return failed.fix or ""
    return "autobrrr ls" if pid is None else f"autobrrr diagnose {pid}"


def _command(words: Sequence[str]) -> str:
    return shlex.join(words) if words else STARTED
