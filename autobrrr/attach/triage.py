"""May this process be attached to? Every check before any stop, in one table, each with its sentence.

A check looks at a `TriageCase` and returns a `Finding`: None is "no objection". The first failing one is
what attach refuses with; `doctor` shows them all.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import pwd
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from autobrrr.attach import job_limits, job_roles
from autobrrr.attach.job_limits import Finding
from autobrrr.attach.ptrace import kept_tracer, mapped_python, x86_64
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.machine import control_groups, kernel_text, own_place, procfs, same_program
from autobrrr.machine.kernel_text import number
from autobrrr.machine.own_place import OwnPlace
from autobrrr.machine.same_program import Program

MOST_NAMED = 64
OLDEST, NEWEST = (3, 10), (3, 14)
RUN_HINT = "start training with `autobrrr run -- ...`"


@dataclass(kw_only=True)
class TriageCase:
    """One process under examination; the outside world comes in here."""

    pid: int
    proc: Path = procfs.PROC
    groups: Path = control_groups.GROUPS
    uid: int = field(default_factory=os.geteuid)
    here: OwnPlace = field(default_factory=own_place.look)
    machine: str = field(default_factory=platform.machine)
    memory_of: Callable[[int], int] = field(default=kept_tracer.memory)
    ranks_below: Callable[[int, Path], list[int]] = field(default=job_roles.ranks_below)
    found: mapped_python.MappedPython | None = None

    @property
    def status(self) -> dict[str, str]:
        return procfs.status(self.pid, self.proc)

    @property
    def stat(self) -> procfs.Stat | None:
        return procfs.stat(self.pid, self.proc)

    def may_trace(self) -> bool:
        """The kernel's own answer, without a stop: to open its memory takes the permission to trace."""
        try:
            os.close(self.memory_of(self.pid))
        except (OSError, AutobrrrError):
            return False
        return True

    def python(self) -> mapped_python.MappedPython | None:
        """Looked up until there is one."""
        if self.found is None:
            with contextlib.suppress(OSError, AutobrrrError):
                memory = self.memory_of(self.pid)
                try:
                    self.found = mapped_python.read(self.pid, memory, self.proc)
                finally:
                    os.close(memory)
        return self.found

    @functools.cached_property
    def torch(self) -> job_roles.TorchFiles | None:
        return job_roles.torch_of(self.pid, self.proc)


def _is_there(case: TriageCase) -> Finding | None:
    if not case.here.sees_itself:
        return Finding(
            "/proc here is not that of this PID namespace: the pids in it are other processes",
            "mount -t proc proc /proc, or enter the PID namespace that /proc shows",
        )
    if case.stat is not None:
        return None
    if case.here.in_pid_namespace:
        return Finding(
            f"there is no process {case.pid} in this container",
            f"autobrrr ls lists training jobs; for one of another container, {own_place.SHARE_PIDS}",
            TargetGone,
        )
    return Finding(f"there is no process {case.pid}", "autobrrr ls lists training jobs", TargetGone)


def _is_alive(case: TriageCase) -> Finding | None:
    """A process on its way out has no memory any more: it looks like no Python, or like another user's."""
    seen = case.stat
    if seen is not None and seen.state in "ZX":
        return Finding(
            f"process {case.pid} has ended and waits for its parent {seen.ppid} (a zombie)",
            "there is nothing left to attach to",
            TargetGone,
        )
    if seen is not None and seen.ending:
        return Finding(f"process {case.pid} has just ended", "autobrrr ls lists training jobs", TargetGone)
    return None


def _is_not_stopped(case: TriageCase) -> Finding | None:
    seen = case.stat
    if seen is not None and seen.state == "T":
        return Finding(
            f"process {case.pid} is stopped (job control); attach needs it running",
            f"kill -CONT {case.pid}, then try again",
        )
    return None


def _is_not_frozen(case: TriageCase) -> Finding | None:
    if not control_groups.is_frozen(case.pid, case.proc, case.groups):
        return None
    return Finding(
        f"process {case.pid} is frozen by its control group (docker pause, or a freezer)",
        "thaw it (docker unpause, or cgroup.freeze 0), then try again",
    )


def _is_ours(case: TriageCase) -> Finding | None:
    owner = procfs.owner(case.pid, case.proc)
    if owner is None or case.uid == owner[0]:
        return None
    fix = "run autobrrr as that user or as root"
    if case.here.in_pid_namespace:
        fix += f" (docker exec -u {owner[0]}; Kubernetes: securityContext.runAsUser: {owner[0]})"
    return Finding(f"process {case.pid} belongs to {_user(owner[0])}", fix)


def _is_not_traced(case: TriageCase) -> Finding | None:
    tracer = number(case.status.get("TracerPid")) or 0
    if tracer == 0:
        return None
    seen = procfs.stat(tracer, case.proc)
    name = str(seen.comm) if seen is not None else "another process"
    return Finding(
        f"process {case.pid} is already being traced by {name} (pid {tracer}); nothing was changed",
        f"end {name} first",
    )


def _is_not_filtered(case: TriageCase) -> Finding | None:
    if not case.here.ptrace_filtered:
        return None
    return Finding(
        "a seccomp filter refuses ptrace to autobrrr itself", f"{own_place.LET_PTRACE_THROUGH}, or {RUN_HINT}"
    )


def _may_be_traced(case: TriageCase) -> Finding | None:
    shown = not kept_tracer.is_kept() or kernel_text.data(case.proc / str(case.pid) / "maps", 1) is not None
    if case.may_trace() and shown:
        return None
    scope = own_place.yama_scope(case.proc)
    here = case.here
    if scope == 3:
        return Finding("attaching is switched off until reboot (ptrace_scope=3)", RUN_HINT)
    if kept_tracer.is_kept():
        return Finding(
            f"process {case.pid} shows its memory to root alone: it has changed its user since it "
            "started, or is of another user namespace",
            f"run autobrrr where the job runs (docker exec), or {RUN_HINT}",
        )
    if scope in (1, 2) and not here.may_trace_others:
        return Finding(
            f"attaching is blocked by ptrace_scope={scope}",
            f"run as root, or `sysctl kernel.yama.ptrace_scope=0`, or {RUN_HINT}",
        )
    if here.in_user_namespace and here.may_trace_others:
        return Finding(
            f"autobrrr is root in its user namespace only, and process {case.pid} is of another",
            f"run autobrrr outside it, or where the job was started (podman unshare), or {RUN_HINT}",
        )
    if not here.may_trace_others and here.in_pid_namespace:
        return Finding(
            f"attaching to process {case.pid} needs CAP_SYS_PTRACE, which this container lacks",
            f"{own_place.ADD_SYS_PTRACE}, or {RUN_HINT}",
        )
    if not here.may_trace_others:
        return Finding(
            f"only root may attach to process {case.pid} (CAP_SYS_PTRACE)",
            f"run autobrrr as root, or {RUN_HINT}",
        )
    return Finding(f"the kernel forbids tracing process {case.pid} (a security policy)", RUN_HINT)


def _is_this_machine(case: TriageCase) -> Finding | None:
    if case.machine == x86_64.MACHINE:
        return None
    return Finding(f"this machine is {case.machine}; attach works only on x86_64", RUN_HINT)


def _is_python(case: TriageCase) -> Finding | None:
    program = next(map(str, procfs.cmdline(case.pid, case.proc)), "") or "its program"
    if case.python() is not None:
        return None
    if ranks := case.ranks_below(case.pid, case.proc):
        return _launches(case, ranks)
    return Finding(
        f"process {case.pid} ({program}) is not CPython, or exports no C API (a frozen binary)",
        "autobrrr ls lists training jobs",
    )


def _is_known_version(case: TriageCase) -> Finding | None:
    python = case.python()
    version = None if python is None else python.version
    if version is None:
        return Finding(f"the Python version of process {case.pid} can't be determined", RUN_HINT)
    shown = ".".join(map(str, version))
    if version > NEWEST:
        return Finding(f"process {case.pid} runs Python {shown}; 3.10 to 3.14 are supported", RUN_HINT)
    if version < OLDEST:
        return Finding(
            f"process {case.pid} runs Python {shown}; 3.10 to 3.14 are supported", "use a newer Python"
        )
    return None


def _has_the_lock(case: TriageCase) -> Finding | None:
    python = case.python()
    if python is None or not python.free_threaded:
        return None
    return Finding(
        f"process {case.pid} runs a free-threaded build of Python, which attach does not support",
        "use the ordinary build of the same version",
    )


def _has_no_shadow_stack(case: TriageCase) -> Finding | None:
    if "shstk" not in case.status.get("x86_Thread_features", ""):
        return None
    return Finding(
        f"process {case.pid} runs with a hardware shadow stack, which refuses a borrowed call", RUN_HINT
    )


def _is_no_loader_worker(case: TriageCase) -> Finding | None:
    if case.torch is None or not job_roles.is_loader_worker(case.pid, case.proc):
        return None
    parent = job_roles.asker_through(case.stat.ppid, case.proc) if case.stat is not None else 0
    return Finding(
        f"process {case.pid} is a DataLoader worker of process {parent}", f"attach to {parent} instead"
    )


def _is_no_launcher(case: TriageCase) -> Finding | None:
    ranks = case.ranks_below(case.pid, case.proc)
    if ranks:
        return _launches(case, ranks)
    if not job_roles.is_launcher_command(procfs.cmdline(case.pid, case.proc)):
        return None
    return Finding(
        f"process {case.pid} is a launcher, and none of its ranks has loaded PyTorch so far",
        "try again when they train",
    )


def _has_torch(case: TriageCase) -> Finding | None:
    if case.torch is not None:
        return None
    return Finding(
        f"no PyTorch in process {case.pid}",
        "autobrrr ls lists training jobs; a job that has just begun may not have imported torch yet",
    )


def _launches(case: TriageCase, ranks: list[int]) -> Finding:
    listed = ", ".join(map(str, ranks[:MOST_NAMED])) + (" ..." if len(ranks) > MOST_NAMED else "")
    no_torch = case.torch is None
    who = f"no PyTorch in process {case.pid}: it" if no_torch else f"process {case.pid}"
    return Finding(
        f"{who} launches training in pids {listed}", f"attach to one of them, for example {ranks[0]}"
    )


def _short_of(look: Callable[[int, Path, Path], Finding | None]) -> Callable[[TriageCase], Finding | None]:
    return lambda case: look(case.pid, case.proc, case.groups)


class TriageCheck(NamedTuple):
    """One row of the table: a name, what it means when all is well, and the check itself."""

    name: str
    fine: str
    examine: Callable[[TriageCase], Finding | None]


CHECKS = (
    TriageCheck("process", "it exists", _is_there),
    TriageCheck("alive", "it is not a zombie", _is_alive),
    TriageCheck("running", "it is not stopped", _is_not_stopped),
    TriageCheck("frozen", "no control group freezes it", _is_not_frozen),
    TriageCheck("owner", "you may attach to it", _is_ours),
    TriageCheck("tracer", "nobody traces it", _is_not_traced),
    TriageCheck("seccomp", "no filter refuses ptrace to us", _is_not_filtered),
    TriageCheck("permission", "the kernel lets us trace it", _may_be_traced),
    TriageCheck("architecture", "attach works on it", _is_this_machine),
    TriageCheck("python", "it runs CPython with a C API", _is_python),
    TriageCheck("version", "its Python is 3.10 to 3.14", _is_known_version),
    TriageCheck("build", "its Python is not free-threaded", _has_the_lock),
    TriageCheck("shadow stack", "it has none", _has_no_shadow_stack),
    TriageCheck("worker", "it is not a DataLoader worker", _is_no_loader_worker),
    TriageCheck("launcher", "it trains by itself", _is_no_launcher),
    TriageCheck("torch", "PyTorch is loaded", _has_torch),
    TriageCheck("descriptors", "it may open more files", _short_of(job_limits.descriptors)),
    TriageCheck("threads", "it may start more threads", _short_of(job_limits.threads)),
    TriageCheck("addresses", "it may map more memory", _short_of(job_limits.addresses)),
    TriageCheck("memory", "its control group has room", _short_of(job_limits.memory)),
)


def refusal(case: TriageCase) -> tuple[TriageCheck, Finding] | None:
    """The first check that objects, and its objection."""
    for check in CHECKS:
        finding = check.examine(case)
        if finding is not None:
            # What looks odd in a process that has just ended is no objection of its own.
            ended = ((first, gone) for first in CHECKS[:2] if (gone := first.examine(case)) is not None)
            return next(ended, (check, finding))
    return None


def require(case: TriageCase) -> tuple[Program, tuple[int, int]]:
    """Run all checks: the program that was looked at, nothing else may be entered; its Python's version.

    Raises:
        CannotAttach, TargetGone: the first objection.
    """
    found = refusal(case)
    if found is not None:
        raise found[1].error(found[1].detail, found[1].fix)
    python = case.python()
    if python is None or python.version is None:
        raise TargetGone(f"process {case.pid} ended")
    return same_program.seen(case.pid, case.proc), python.version


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
