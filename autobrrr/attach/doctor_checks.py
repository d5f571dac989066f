"""The checks of `doctor`: of one process (the triage table, and the ways in), or of the machine.

The machine's main check is a real one: a small Python process of our own is attached to.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

from autobrrr import paths
from autobrrr.agent.measure import profiler_window
from autobrrr.attach import triage
from autobrrr.attach.preload import preloaded_agent
from autobrrr.attach.ptrace import x86_64
from autobrrr.attach.ptrace.injector import inject
from autobrrr.attach.target_folder import TargetFolder
from autobrrr.errors import EXIT_CANNOT_ATTACH, EXIT_DONE, AutobrrrError, install_line
from autobrrr.machine import own_place, process_maps, procfs
from autobrrr.records import DoctorCheck
from autobrrr.told_to_end import deaf_child, stopped_in_order

Told = tuple[Literal["ok", "warn", "fail"], str, str]  # how it stands, in detail, and what mends it
# Also where nobody is left to end it.
_BUSY = "import time\nprint(flush=True)\nend_s = time.monotonic() + 60\nwhile time.monotonic() < end_s: pass"
# After one of these has objected the later checks would look at nothing.
_DECISIVE = {"process", "alive", "owner", "seccomp", "permission", "architecture", "python"}
_ANSWER_S = 5.0
_DCGM = ("nv-hostengine", "dcgm-exporter")


def of_process(pid: int, case: triage.TriageCase | None = None) -> tuple[list[DoctorCheck], int]:
    """Every check of one process, and the exit code that attaching would have."""
    case = case or triage.TriageCase(pid=pid)
    checks: list[DoctorCheck] = []
    code = EXIT_DONE
    for check in triage.CHECKS:
        finding = check.examine(case)
        if finding is None:
            checks.append(DoctorCheck(name=check.name, status="ok", detail=check.fine, fix=""))
            continue
        checks.append(DoctorCheck(name=check.name, status="fail", detail=finding.detail, fix=finding.fix))
        code = code or finding.error.exit_code
        if check.name in _DECISIVE:
            return checks, code
    checks += [_told("profiler", lambda: _profiler(case)), _told("folder", lambda: _bundle_place(case))]
    if preloaded_agent.listening(pid, case.proc):
        checks.append(_told("preload", lambda: ("ok", "its agent came with it", "")))
        return checks, EXIT_DONE
    return checks, code or (EXIT_CANNOT_ATTACH if checks[-1].status == "fail" else EXIT_DONE)


def of_machine() -> list[DoctorCheck]:
    """Can this machine be attached and measured on?"""
    looks = {
        "architecture": _architecture,
        "ptrace_scope": _scope,
        "attach": _attach_to_a_child,
        "runtime": _runtime,
        "cache": _cache,
        "torch": _torch,
        "run delay": _run_delay,
        "gpu": _gpu,
    }
    return [_told(name, look) for name, look in looks.items()]


def _told(name: str, look: Callable[[], Told]) -> DoctorCheck:
    """What a look says; what it raises is a failure, and says what helps."""
    try:
        status, detail, fix = look()
    except AutobrrrError as error:
        status, detail, fix = "fail", error.message, error.hint
    return DoctorCheck(name=name, status=status, detail=detail, fix=fix)


def _bundle_place(case: triage.TriageCase) -> Told:
    with closing(TargetFolder(case.pid, proc=case.proc)) as place:
        return "ok", f"the agent can be placed in {os.path.dirname(place.path)}", ""


def _name(pid: int, proc: Path) -> str:
    seen = procfs.stat(pid, proc)
    return "" if seen is None else seen.comm.raw


def _profiler(case: triage.TriageCase) -> Told:
    names = procfs.environ(case.pid, profiler_window.VARIABLES, case.proc)
    try:
        maps = " ".join(each.name for each in process_maps.read(case.pid, case.proc))
    except OSError:
        maps = ""
    user = profiler_window.cupti_user(dict.fromkeys(names, "set"), maps)
    if user is not None:
        return "warn", f"{user}: a GPU job gets no profiler window beside it", "start the job without it"
    engine = next((pid for pid in procfs.pids(case.proc) if _name(pid, case.proc) in _DCGM), None)
    if engine is None:
        return "ok", "no other one is in the process", ""
    return "warn", f"DCGM (pid {engine}) may hold the GPU's profiling counters", "dcgmi profiling --pause"


def _architecture() -> Told:
    machine = platform.machine()
    if machine == x86_64.MACHINE:
        return "ok", machine, ""
    return "fail", f"{machine}: attach works on x86_64", triage.RUN_HINT


def _scope() -> Told:
    scope = own_place.yama_scope(procfs.PROC)
    if scope in (None, 0) or own_place.look().may_trace_others:
        shown = "not set" if scope is None else str(scope)
        return "ok", f"{shown}; you may trace your own processes", ""
    detail = f"{scope}: only children, or nobody, may be traced without CAP_SYS_PTRACE"
    return "fail", detail, f"run as root, or `sysctl kernel.yama.ptrace_scope=0`, or {triage.RUN_HINT}"


def _attach_to_a_child() -> Told:
    words = [sys.executable, "-I", "-S", "-c", _BUSY]
    with (
        stopped_in_order(),
        deaf_child(words, subprocess.PIPE) as child,
        tempfile.TemporaryDirectory(prefix="autobrrr-doctor-", dir=paths.temporary_dir()) as folder,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        answer = Path(folder) / "answer"
        taken = inject(child.pid, f"open({str(answer)!r}, 'w').close()", folder=folder)
        end_s = time.monotonic() + _ANSWER_S
        while not answer.exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        if not answer.exists():
            return "fail", "test attach: the child process did not run the call", ""
    return "ok", f"test attach paused a child process for {taken.pause_ns / 1e6:.2f} ms", ""


def _runtime() -> Told:
    folder = paths.runtime_dir()
    passed_over = paths.objection_to(paths.runtime_dirs()[0])
    if passed_over is not None:
        return "warn", f"{passed_over}; {folder} is used", "remove it"
    return "ok", str(folder), ""


def _cache() -> Told:
    folder = paths.cache_dir()
    why = paths.why_unwritable(folder)
    if why is None:
        return "ok", str(folder), ""
    return "warn", why, "set XDG_CACHE_HOME, or free space there"


def _torch() -> Told:
    try:
        return "ok", importlib.metadata.version("torch"), ""
    except importlib.metadata.PackageNotFoundError:
        detail = "not installed here; only roofline and demo need it, a job brings its own"
        return "ok", detail, install_line("torch")


def _run_delay() -> Told:
    if os.path.exists(f"/proc/self/task/{os.getpid()}/schedstat"):
        return "ok", "the kernel reports who waited for a CPU", ""
    return (
        "warn",
        "no schedstat: a busy machine can't be told from a slow job",
        "a kernel with CONFIG_SCHED_INFO",
    )


def _gpu() -> Told:
    if os.path.exists("/proc/driver/nvidia/version"):
        return "ok", "an NVIDIA driver is loaded", ""
    return "warn", "no NVIDIA driver: CPU jobs only", ""
