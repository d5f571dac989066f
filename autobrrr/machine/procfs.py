"""Processes as `/proc` shows them. Every function takes the root of proc, so that tests bring their own.

What a process chose itself (its name, its command line, its environment) comes out as `Foreign`. A process
that is gone, or whose files are not for us, gives None or an empty value, never an error,
except where a docstring says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from autobrrr.machine import kernel_text
from autobrrr.machine.kernel_text import number
from autobrrr.readable import Foreign

PROC = Path("/proc")
MOST_COMMAND_BYTES = 1 << 17
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_EXITING = 0x4  # PF_EXITING of linux/sched.h
_OPTION = re.compile(r"-([A-Za-z]*?)(?:([mcWX])(.*))?", re.DOTALL)  # those that take a value end the word
_PYTHON = re.compile(r"python([0-9](\.[0-9]{1,3})?)?t?d?")  # t: free-threaded, d: a debug build


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """The fields of `/proc/PID/stat` that are used here."""

    comm: Foreign
    state: str  # one letter: R, S, D, T, t, Z, X
    ppid: int
    cpu_ns: int  # user and system time of the process, or of the thread
    threads: int
    start_ticks: int  # since boot: with the pid it names a process for good
    rss_bytes: int
    stack_start: int  # where its program's first stack begins, for whoever may trace it: an exec moves it
    ending: bool = False  # it gives back what it has, and shows no memory any more


def stat(pid: int, proc: Path = PROC, tid: int | None = None) -> Stat | None:
    """State, parent, CPU time and start time of a process or of one of its threads."""
    found = kernel_text.text(_folder(pid, proc, tid) / "stat", 4096)
    # The name stands in parentheses and may hold anything, also parentheses and blanks.
    head, _, tail = (found or "").rpartition(")")
    state, *words = tail.strip(" \n").split(" ")[:26]
    figures = [figure for word in words if (figure := number(word)) is not None]
    if len(figures) < 21:
        return None
    of = dict(enumerate(figures, 4))  # by their place in the line, as proc(5) counts
    return Stat(
        comm=Foreign(head.partition("(")[2]),
        state=state,
        ppid=of[4],
        cpu_ns=(of[14] + of[15]) * TICK_NS,
        threads=of[20],
        start_ticks=of[22],
        rss_bytes=of[24] * _PAGE_BYTES,
        stack_start=of.get(28, 0),
        ending=bool(of[9] & _EXITING),
    )


def status(pid: int, proc: Path = PROC, tid: int | None = None) -> dict[str, str]:
    """`/proc/PID/status` as a mapping; empty where it can't be read.

    Of two lines of one name the later counts: a process's own name, which may look like a line, comes first.
    """
    parted = (line.partition(":") for line in kernel_text.lines(_folder(pid, proc, tid) / "status"))
    return {name: value.strip(" \t") for name, colon, value in parted if colon}


def _folder(pid: int, proc: Path, tid: int | None) -> Path:
    return proc / str(pid) if tid is None else proc / str(pid) / "task" / str(tid)


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When the process started; None where there is none."""
    found = stat(pid, proc)
    return None if found is None else found.start_ticks


def is_alive(pid: int, ticks: int, proc: Path = PROC) -> bool:
    """Whether the process that started then still runs; what has ended but was not waited for does not."""
    found = stat(pid, proc)
    return found is not None and found.start_ticks == ticks and found.state not in "ZX"


def cmdline(pid: int, proc: Path = PROC) -> list[Foreign]:
    """The command, word by word, as far as its first hundred thousand bytes reach."""
    raw = kernel_text.data(proc / str(pid) / "cmdline", MOST_COMMAND_BYTES)
    return [Foreign(os.fsdecode(word)) for word in raw.rstrip(b"\0").split(b"\0")] if raw else []


def environ(pid: int, names: Sequence[str], proc: Path = PROC) -> dict[str, Foreign]:
    """Those of the variables that the process was started with; empty where they are not for us."""
    raw = kernel_text.data(proc / str(pid) / "environ") or b""
    wanted = rb"(?:\A|\0)(" + b"|".join(re.escape(name.encode()) for name in names) + rb")=([^\0]*)"
    found: dict[str, Foreign] = {}
    for name, value in re.findall(wanted, raw):
        found.setdefault(name.decode(), Foreign(os.fsdecode(value)))  # the first counts, as for the process
    return found


def pids(proc: Path = PROC) -> list[int]:
    """All processes, ascending."""
    return sorted(pid for entry in os.listdir(proc) if (pid := number(entry)) is not None)


def threads(pid: int, proc: Path = PROC) -> list[int]:
    """The threads of a process, ascending."""
    entries = kernel_text.names(proc / str(pid) / "task")
    return sorted(tid for entry in entries if (tid := number(entry)) is not None)


def children(proc: Path = PROC) -> dict[int, list[int]]:
    """Of every process that has some, its children."""
    found: dict[int, list[int]] = {}
    for pid in pids(proc):
        seen = stat(pid, proc)
        if seen is not None:
            found.setdefault(seen.ppid, []).append(pid)
    return found


def descendants(pid: int, proc: Path = PROC, known: Mapping[int, list[int]] | None = None) -> list[int]:
    """Children, grandchildren and so on, parents before their children.

    Args:
        known: What `children` said a moment ago. Without it the kernel's lists are asked where it keeps some.
    """
    if known is None and not (proc / str(pid) / "task" / str(pid) / "children").exists():
        known = children(proc)
    order = [pid]
    for each in order:
        order.extend(_born_of(each, proc) if known is None else known.get(each, []))
    return order[1:]


def _born_of(pid: int, proc: Path) -> list[int]:
    """Children of all threads of a process."""
    lists = (kernel_text.text(_folder(pid, proc, tid) / "children") for tid in threads(pid, proc))
    return [child for words in lists for word in (words or "").split() if (child := number(word)) is not None]


def run_delay_ns(pid: int, tid: int, proc: Path = PROC) -> int | None:
    """How long a thread has been ready to run but had no CPU, since it began."""
    fields = (kernel_text.text(_folder(pid, proc, tid) / "schedstat") or "").split()
    return number(fields[1]) if len(fields) >= 2 else None


def tid_outside(pid: int, tid_inside: int, proc: Path = PROC) -> int | None:
    """The thread that calls itself `tid_inside` in its own pid namespace, as it is known here."""
    for tid in threads(pid, proc):
        known = status(pid, proc, tid).get("NSpid", "").split()
        if known and number(known[-1]) == tid_inside:
            return tid
    return None


def owner(pid: int, proc: Path = PROC) -> tuple[int, int] | None:
    """Effective uid and gid; None where the process is gone."""
    found = status(pid, proc)
    uid, gid = (number([*found.get(name, "").split(), "", ""][1]) for name in ("Uid", "Gid"))
    return None if uid is None or gid is None else (uid, gid)


def is_python(program: str) -> bool:
    """Whether a program, by its name alone, is a Python interpreter; `python_train.sh` is none."""
    return _PYTHON.fullmatch(os.path.basename(program)) is not None


class PythonRun(NamedTuple):
    """What a Python command line runs."""

    how: str  # "" a script, "-m" a module, "-c" code
    target: str
    ends: int  # the place of the word behind it
    is_isolated: bool  # by -E or -I: nothing comes from the environment


def python_run(words: Sequence[str]) -> PythonRun | None:
    """What a Python command line runs: script, module or code; None if it is interactive."""
    at, is_isolated = 1, False
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            return PythonRun("", word, at + 1, is_isolated)
        found = _OPTION.fullmatch(word)
        letters, option, joined = found.groups() if found else ("", None, None)
        is_isolated = is_isolated or not {"E", "I"}.isdisjoint(letters)
        apart = (option is not None and not joined) or word == "--check-hash-based-pycs"
        if option in ("m", "c"):
            ends = min(at + (2 if apart else 1), len(words))
            return PythonRun(f"-{option}", joined or "".join(words[at + 1 : ends]), ends, is_isolated)
        at += 2 if apart else 1
    return None


def script(words: Sequence[Foreign]) -> Foreign | None:
    """What a Python command line runs: the script, or "-m module", or "-c"."""
    ran = python_run([word.raw for word in words])
    if ran is None:
        return None
    return Foreign({"": ran.target, "-m": f"-m {ran.target}", "-c": "-c"}[ran.how])


def arguments(words: Sequence[Foreign]) -> Sequence[Foreign]:
    """What stands behind the script, the module or the program of a Python command line."""
    ran = python_run([word.raw for word in words])
    return () if ran is None else words[ran.ends :]
