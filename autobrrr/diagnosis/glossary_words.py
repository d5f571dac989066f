"""The words of screens beside signals, regimes, limits and figures: remedies, classes, columns, states.

Out: an `Explanation` for each; remedies come from their own table.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.registry import Option, Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One entry: `kind` is one of `KINDS`."""

    name: str
    kind: str
    meaning: str
    source: str
    guards: tuple[str, ...] = ()


KINDS = ("signal", "regime", "limit", "figure", "remedy", "class", "reach", "column", "state", "term")
REACHES = {
    "live": "It is applied to the running job at the end of a step, and can be reverted there.",
    "next_epoch": "It is applied to the running job; it takes effect when the next epoch begins.",
    "relaunch": "It takes effect only when the job is started: through `autobrrr run --recipe`.",
    "edit": "Only the author of the script can change it: the advice names the line.",
}
CLASSES = {
    "bitwise": "The training computes the same bits as without the remedy.",
    "rounding": "The same algorithm, but its arithmetic is done in another order, or a value is rounded or "
    "flushed elsewhere: results differ in the last digits.",
    "stream": "Other random numbers are drawn from the same distribution: as good a run, not the same one.",
    "changes_training": "The training itself changes: other precision, other batch size. Only with --allow.",
}
COLUMNS = {
    "predicted": "How many times as fast the job should become with this remedy, computed from measurements.",
    "achieved": "How many times as fast the job became with this remedy, measured in A/B pairs.",
    "interval": "The 98 % confidence interval of what was achieved, valid under repeated looks. A remedy is "
    "kept only where the interval lies above 1.",
    "outcome": "What came of a trial: kept, undone (reverted), refused or skipped.",
    "price": "How long the trial of a remedy took; slower training meanwhile is part of it.",
    "reach": "When a remedy takes effect: live, next_epoch, relaunch or edit.",
    "class": "What a remedy does to the numbers: bitwise, rounding, stream or changes-training.",
    "speed_up": "All kept remedies together against none of them, from a confirmation run at the end.",
    "own_cost": "What being attached costs the job: per step, as a share of it, and once.",
    "p99": "99 of 100 steps take no longer than this.",
    "median": "Half of the steps take no longer than this.",
    "spent": "Which part of the step each regime has; each phase, where no part is known.",
    "traced": "Steps that ran under the timing mode: what kernels do, and what the dispatcher costs.",
    "run_delay": "The part of the time in which the training thread was ready to run but had no CPU.",
    "foreign_load": "CPU that other programs took where the job may run.",
    "rank": "The number of a process among those that train one model together.",
    "baseline": "The job, or the command, without the remedy that is tried.",
    "candidate": "The job, or the command, with the remedy that is tried.",
    "ab_pair": "One block of steps with a remedy and its neighbour without: drift cancels in their ratio.",
    "confirmation_run": "The last measurement of a tuning: all kept remedies against none, in new A/B pairs.",
    "horizon": "The time over which a gain must pay for its trial (--horizon).",
    "data_wait": "Phase: the loop waits for its next batch.",
    "host_to_device": "Phase: tensors are copied to the GPU.",
    "forward": "Phase: the model and the loss are computed.",
    "backward": "Phase: gradients are computed.",
    "optimizer": "Phase: weights are updated, and gradients set to zero.",
    "other": "The rest of the step; of shares: what no measurement separates.",
    "session": "What an attach starts: a background process that watches one job until `autobrrr detach`.",
    "recipe": "A TOML file with proven remedies and flags, for `autobrrr run --recipe`.",
}
STATES = {
    "attached": "The job has a session.",
    "ready": "The job can be attached to.",
    "attaching": "The agent is being put into the job.",
    "watching": "The session waits for steps, and sees how the loop is built.",
    "tracing": "A few real steps run under the timing mode.",
    "timing": "Collectives of a few steps are timed.",
    "profiling": "A few steps run under torch.profiler.",
    "delaying": "The host is held up for a moment in a few steps, to see whether the GPU waits for it.",
    "sampling": "Stacks of the training thread are sampled.",
    "probing": "The batch probe replays a step at other batch sizes.",
    "sweeping": "A step is replayed at other sizes of its data.",
    "judged": "All is measured; the session goes on watching.",
    "tuning": "Remedies are tried.",
    "detaching": "Remedies are reverted, and everything is removed from the job.",
    "ended": "The session is over.",
    "trying": "The remedy is being tried in A/B pairs, with it and without it.",
    "confirming": "The confirmation run: all kept remedies together against none.",
    "watched": "The tuning is over; its gain is compared again now and then, and reverted where it has gone.",
    "on": "The remedy is applied.",
    "restart": "It acts from the start of a process only: `autobrrr tune -- CMD` tries it.",
    "kept": "Proven faster, and still applied.",
    "undone": "Reverted: not proven faster, or slower.",
    "reverted": "Taken off again: not proven faster, slower, or on request.",
    "refused": "It does not fit this job; the reason says why. Nothing was changed.",
    "skipped": "Not tried; the reason says why.",
    "queued": "It will be tried by the next tuning.",
    "manual": "It is tried only by name: `--only`, or `a` on the screen.",
}

TERMS = {
    "signal": "One independent measurement that may speak for a regime, or against one.",
    "regime": "What takes most of the step: the second level of a verdict.",
    "limit": "Who limits the step (host, kernels, input, ...): the first level of a verdict.",
    "verdict": "Limit and regime with their confidence, the signals that carry them, and advice.",
    "confidence": "high: independent signals agree, on enough steps and a quiet machine; low: less.",
    "provisional": "Named while other programs take the CPUs: it may change once the machine is quiet.",
    "evidence": "What each signal found, with its figures.",
    "abstained": "A signal has no figure; its note says why.",
    "advice": "Remedies in the order of their predicted gain.",
    "to_decide": "The command that would decide an open verdict.",
    "remedy": "A change that may make the job faster, and can be reverted.",
    "cure": "Another word for remedy.",
    "unproven": "A remedy that has never run on a GPU: it is tried only by name.",
    "agent": "What runs inside the training process: one thread, one hook at the end of a step.",
    "sidecar": "The background process of one session: it judges, tunes and writes the log.",
    "session": "A job that is attached to, from attach to detach.",
    "ring": "Shared memory in which the job leaves one record for each step; training never waits for it.",
    "step": "One update of the weights, as the loop means it: accumulation and skipped steps belong to it.",
    "step_boundary": "The moment at which a step has ended; remedies are applied and reverted there only.",
    "safe_point": "A moment at which the interpreter runs queued calls: the agent starts there.",
    "anatomy": "How the training loop is built: its modules, optimizers, loader and phases.",
    "phase": "A part of the step on the host's clock: data, copy, forward, backward, optimizer, other.",
    "window": "A few steps under torch.profiler.",
    "batch_probe": "A step replayed at several batch sizes, between real steps.",
    "sweep": "A step replayed at several sizes of its data.",
    "step_replay": "A recorded step run again on copies; everything that it touches is put back.",
    "kernel": "The code that computes one operator, on the device or the CPU.",
    "dispatch": "What Python and torch do to start a kernel.",
    "eager": "Operators run one by one as Python calls them; not compiled.",
    "peak": "The highest rate that was measured on this machine: of products, or of moving memory.",
    "roof": "The highest rate that a kernel could reach, by its arithmetic and its bytes.",
    "ridge": "The arithmetic for each byte at which the roof changes from memory to arithmetic.",
    "block": "A few steps in a row with a remedy applied, or without it.",
    "arm": "One side of a comparison: with the remedy, or without it.",
    "token": "The number by which an applied remedy is reverted; also a unit of text that a model reads.",
    "trial": "One remedy, or one set of flags, that is compared with the baseline.",
    "ablation": "Kept remedies are left out one at a time, to see which of them pay.",
    "guard": "Watches a job that was tuned: it reverts what no longer pays.",
    "budget": "The time that a tuning may take (--for).",
    "study": "All trials of one tuning, in a journal that a later session can continue.",
    "point": "One set of values of a study.",
    "worker": "A process that loads data, or one of several processes that run a study.",
    "sandbox": "Where a script is started for a trial: what it writes goes to a copy.",
    "link_lost": "The sidecar and the agent no longer reach each other: the agent removes itself.",
    "removed": "An error in the agent took it out of the job; training continues.",
    "time_split": "Of a trace: where the time between its first and last event went.",
    "run_ahead": "Of a trace: how long before its kernel a launch was made.",
}


def words() -> tuple[Explanation, ...]:
    """Every word, remedies included."""
    tables = (
        ("class", CLASSES, "the remedy's entry; the job may widen it, by dropout or randomness in a dataset"),
        ("reach", REACHES, "the remedy's entry"),
        ("column", COLUMNS, "tables and screens"),
        ("state", STATES, "tables and screens"),
        ("term", TERMS, "documentation and messages"),
    )
    plain = [
        Explanation(name=name, kind=kind, meaning=meaning, source=source)
        for kind, table, source in tables
        for name, meaning in table.items()
    ]
    return (*plain, *map(_of_remedy, REGISTRY.values()))


def _of_remedy(remedy: Remedy) -> Explanation:
    guards = [f"reach {remedy.reach}, class {remedy.cls} at best", *map(_option, remedy.options)]
    if remedy.unproven:
        guards.append("never run on a GPU yet: tried only by name (--only)")
    elif remedy.only_named or remedy.leaves is not None:
        guards.append("tried only by name (--only)")
    if remedy.leaves is not None:
        guards.append(f"after it is reverted this stays: {remedy.leaves}")
    return Explanation(
        name=remedy.name,
        kind="remedy",
        meaning=remedy.doc,
        source=f"tried where the regime is {' or '.join(remedy.treats)}",
        guards=tuple(guards),
    )


def _option(option: Option) -> str:
    if option.choices:
        values = ", ".join(map(str, option.choices))
    elif option.kind == "bool":
        values = "true or false"
    else:
        values = f"{option.low:g} to {option.high:g}" if option.high is not None else option.kind
    default = "" if option.default is None else f"; {str(option.default).lower()} unless given"
    return f"option {option.name}: {values}{default}"
