"""What `autobrrr mcp` offers: one short function a tool, over the Python API and the verbs.

In: arguments of a tool. Out: JSON of at most 2 KB; what did not fit is counted in `left_out`. Times are
seconds in arguments, nanoseconds in answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from autobrrr import api, own_modules, paths
from autobrrr.cli.terminal_screen import logged_session
from autobrrr.cli.verbs import ls
from autobrrr.diagnosis.glossary import explained
from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.records import Diagnosis
from autobrrr.report.past_session import latest_sessions, past_session

MOST_BYTES = 2048
LONGEST = 300  # characters of one text
LONGEST_OF_JOB = 100  # so that one job fits whatever its texts hold
LONGEST_S = 3600.0  # that a tool works: a client that has gone can't end it
Answer = dict[str, Any]
Seconds = TypeVar("Seconds", float, float | None)

STATE = (
    "pid",
    "regime",
    "confidence",
    "reason",
    "limit",
    "limit_confidence",
    "limit_reason",
    "provisional",
    "where",
)
TRIED = ("remedy", "outcome", "why", "achieved", "interval")
TUNED = ("speedup", "interval", "class", "kept", "reverted", "guard_undid", "no_claim", "note")
PROOF = ("verdict", "reason", "refusals", "speed", "sameness", "slower", "packages")


def jobs(after: int = 0) -> str:
    """The training jobs of this machine: pid, script, rank, whether a session is attached or could be.

    after: only those of a higher pid. Where `left_out` says that not all fitted, ask after the last pid.
    """
    names = ("pid", "script", "arguments", "rank", "attached", "attachable", "why", "age_ns")
    lines = [_of(line, names) for line in ls.jobs() if line.pid > after]
    return fitted({"jobs": lines}, LONGEST_OF_JOB)


def report(session: str = "last") -> str:
    """What an earlier session found and kept. session: a name, a pid, `last`, or `list` for the names."""
    if session == "list":
        return fitted({"sessions": list(latest_sessions(paths.state_dir()))})
    read = past_session(logged_session(session))
    found = read.data
    answer: Answer = {"session": found.session, "ended": found.ended, **_of(read.named, STATE)}
    if found.tuned is not None:
        answer |= _of(found.tuned, TUNED)
    trials = found.trials if found.tuned is None else found.tuned.trials
    return fitted({**answer, "trials": [_of(each, TRIED) for each in trials]})


def explain(word: str) -> str:
    """What a regime, limit, remedy, signal or any other word of an answer means."""
    return fitted(_of(explained(word), ("name", "kind", "meaning", "example", "source", "guards")))


def diagnose(pid: int, for_s: float | None = None) -> str:
    """Enter the job, say what limits its step and how sure that is, and leave. It goes on training."""
    found = api.diagnose(pid, for_s=_bounded(for_s))
    evidence = [_of(each, ("signal", "says", "note")) for each in found.evidence]
    return fitted(
        {**_of(found, STATE), "step_ns": _of(found.step_ns, ("median", "count")), "evidence": evidence}
    )


def what_to_try(pid: int, for_s: float | None = None) -> str:
    """Diagnose the job, and name the remedies that fit it, the most promising first; none is applied."""
    found: Diagnosis = api.diagnose(pid, for_s=_bounded(for_s))
    advice = [_of(each, ("remedy", "why", "expected", "reach", "class", "at_best")) for each in found.advice]
    return fitted({**_of(found, ("pid", "limit", "limit_confidence", "decide_with")), "advice": advice})


def tune(pid: int, for_s: float = api.TUNE_S, allow: str | None = None, only: list[str] | None = None) -> str:
    """Try remedies on the running job, A/B, and keep what is proven faster until `detach`.

    allow: widest change of results: bitwise, rounding (default), stream, changes-training. only: of these.
    """
    found = api.tune(pid, for_s=_bounded(for_s), allow=allow, only=only)
    return fitted({**_of(found, TUNED), "trials": [_of(each, TRIED) for each in found.trials]})


def detach(pid: int) -> str:
    """End the job's session: revert all its remedies and remove everything from the job."""
    session = api.attach(pid)
    try:
        return fitted(_of(session.detach(), ("why", "left", "stays", "on")))
    finally:
        session.close()


async def prove(before: str, after: str, for_s: float = 120.0, allow: str | None = None) -> str:
    """Referee a speed-up between two commands: same work, same results, faster by how much.

    Both are started in the working folder of this server, in a sandbox. allow: as in `tune`.
    """
    words = ["--json", "--for", f"{_bounded(for_s):f}s", "--before", before, "--after", after]
    words += [] if allow is None else ["--allow", allow]
    process = await asyncio.create_subprocess_exec(
        *own_modules.command("autobrrr", "prove", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, said = await process.communicate()
    finally:  # the caller has gone: what was started ends
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await process.wait()
    lines = [line for line in (out or said).splitlines() if line.startswith(b"{")]
    if not lines:
        raise AutobrrrError(f"prove ended with {process.returncode}", "run it in a terminal")
    found = json.loads(lines[-1])
    if "error" in found:
        raise AutobrrrError(found["error"], found["hint"])
    return fitted({name: found[name] for name in PROOF if found.get(name) is not None})


READING: tuple[Callable[..., Any], ...] = (jobs, report, explain)
LOOKING: tuple[Callable[..., Any], ...] = (diagnose, what_to_try)  # they enter a job, and leave it as it was
CHANGING: tuple[Callable[..., Any], ...] = (tune, detach, prove)


def _bounded(for_s: Seconds) -> Seconds:
    """A time that ends; `nan` does not.

    Raises:
        UsageError: it is none.
    """
    if for_s is not None and not 0 < for_s <= LONGEST_S:
        raise UsageError(f"for_s {for_s} is no time to work", f"0 to {LONGEST_S:.0f} seconds")
    return for_s


def fitted(answer: Answer, longest: int = LONGEST) -> str:
    """As JSON that fits: long texts are cut, then the last entries of the longest list are left out."""
    shown: Answer = _cut(answer, longest)
    left_out = 0
    while len(text := json.dumps(shown, ensure_ascii=False).encode()) > MOST_BYTES:
        lists = [value for value in shown.values() if isinstance(value, list) and value]
        if not lists:
            names = [name[:40] for name in list(shown)[:8]]  # of six bytes a character at most
            return json.dumps({"left_out": len(shown), "keys": names}, ensure_ascii=False)
        max(lists, key=lambda each: len(json.dumps(each))).pop()
        left_out += 1
        shown["left_out"] = left_out
    return text.decode()


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else value[: longest - 1] + "…"
    if isinstance(value, dict):
        return {name: _cut(each, longest) for name, each in value.items()}
    return [_cut(each, longest) for each in value] if isinstance(value, list) else value


def _of(record: object, names: tuple[str, ...]) -> Answer:
    found = msgspec.to_builtins(record)
    return {name: found[name] for name in names if found.get(name) is not None}
