"""One snapshot as one line, for a terminal or a pipe that is followed."""

from __future__ import annotations

from autobrrr.quantities import duration, share
from autobrrr.records import Diagnosis, verdict_head
from autobrrr.report.step_shares import phase_shares

MEASURING = ("attaching", "watching", "tracing", "timing", "profiling", "delaying", "sampling", "probing")
SHORT = {
    "data wait": "data",
    "host to device": "h2d",
    "forward": "fwd",
    "backward": "bwd",
    "optimizer": "opt",
}


def verdict_words(snapshot: Diagnosis) -> str:
    """Who limits the step, or `measuring` while nothing can be said yet."""
    if snapshot.limit == "unknown":
        return "measuring" if snapshot.state in MEASURING else "no verdict"
    return verdict_head(snapshot)


def live_line(snapshot: Diagnosis) -> str:
    """The state of a session in one line; what is not measured is left out."""
    words = [f"{(snapshot.t_ns or 0) / 1e9:6.1f} s", verdict_words(snapshot)]
    if snapshot.step_ns.median is not None:
        words.append(f"{duration(snapshot.step_ns.median)}/step, p99 {duration(snapshot.step_ns.p99)}")
    phases = [f"{SHORT.get(name, name)} {share(part)}" for name, part in phase_shares(snapshot.phases_ns)]
    if phases:
        words.append(" ".join(phases))
    elif snapshot.host is not None and snapshot.host.cpu_share is not None:
        words.append(f"CPU {share(snapshot.host.cpu_share)}")
    if snapshot.straggler is not None and snapshot.straggler.rank is not None:
        words.append(f"slowest: rank {snapshot.straggler.rank}")
    if snapshot.active:
        words.append("on: " + ", ".join(snapshot.active))
    if snapshot.cost.session_share is not None:
        words.append(f"own cost {share(snapshot.cost.session_share)}")
    if snapshot.activity:
        words.append(snapshot.activity)
    return "  ".join(words)
