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
from pathlib import Path

from autobrrr import paths
from autobrrr.attach import own_place, remote_exec, triage
from autobrrr.attach.bundle import code_bundle
from autobrrr.attach.preload import preloaded_agent
from autobrrr.attach.ptrace import borrowed_thread
from autobrrr.attach.ptrace.injector import inject
from autobrrr.attach.target_folder import TargetFolder
from autobrrr.errors import EXIT_CANNOT_ATTACH, EXIT_DONE, AutobrrrError, install_line
from autobrrr.injected.job_state import cupti_users
from autobrrr.machine import kernel_text, process_maps, procfs
from autobrrr.records import DoctorCheck
from autobrrr.told_to_end import deaf_child, stopped_in_order

# Also where nobody is left to end it.
_BUSY = "import time\nprint(flush=True)\nend_s = time.monotonic() + 60\nwhile time.monotonic() < end_s: pass"
# After one of these has objected the later checks would look at nothing.
_DECISIVE = {
    "proc",
    "process",
    "program",
    "alive",
    "owner",
    "seccomp",
    "permission",
    "architecture",
    "python",
}
_ANSWER_S = 5.0
_DCGM = ("nv-hostengine", "dcgm-exporter")
_REOPEN = {
    remote_exec.Obstacle.BY_VARIABLE: f"start it without {remote_exec.OFF_VARIABLE}",
    remote_exec.Obstacle.BY_OPTION: f"start it without -X {remote_exec.OFF_OPTION}",
    remote_exec.Obstacle.BY_BUILD: "use a Python that is built with remote debugging",
    remote_exec.Obstacle.IN_USE: "end the other tool",
}


def _ok(name: str, detail: str, fix: str = "") -> DoctorCheck:
    return DoctorCheck(name=name, status="ok", detail=detail, fix=fix)


def _warn(name: str, detail: str, fix: str = "") -> DoctorCheck:
    return DoctorCheck(name=name, status="warn", detail=detail, fix=fix)


def _fail(name: str, detail: str, fix: str = "") -> DoctorCheck:
    return DoctorCheck(name=name, status="fail", detail=detail, fix=fix)


def of_process(pid: int, case: triage.TriageCase | None = None) -> tuple[list[DoctorCheck], int]:
    """Every check of one process, and the exit code that attaching would have."""
    case = case or triage.TriageCase(pid=pid)
    checks: list[DoctorCheck] = []
    code = EXIT_DONE
    for check in triage.CHECKS:
        finding = check.examine(case)
        if finding is None:
            checks.append(_ok(check.name, check.fine))
            continue
        checks.append(_fail(check.name, finding.detail, finding.fix))
        code = code or finding.error.exit_code
        if check.name in _DECISIVE:
            return checks, code
    checks.append(_remote_exec(case))
    checks.append(_profiler(case))
    checks.append(_bundle_code(case))
    checks.append(_bundle_place(case))
    if preloaded_agent.listening(pid, case.proc) is not None:
        checks.append(_ok("preload", "its agent came with it"))
        return checks, EXIT_DONE
    return checks, code or (EXIT_CANNOT_ATTACH if checks[-1].status == "fail" else EXIT_DONE)


def of_machine() -> list[DoctorCheck]:
    """Can this machine be attached and measured on?"""
    return [
        _architecture(),
        _scope(),
        _attach_to_a_child(),
        _runtime(),
        _cache(),
        _torch(),
        _run_delay(),
        _gpu(),
    ]


def _remote_exec(case: triage.TriageCase) -> DoctorCheck:
    version = case.python().version
    if version is not None and version < remote_exec.VERSION:
        detail = "its Python is older than 3.14: attach borrows its main thread for a moment"
        return _ok("remote_exec", detail)
    try:
        remote_exec.find(case.pid, case.proc)
    except remote_exec.RemoteExecClosed as closed:
        return _warn(
            "remote_exec",
            f"{closed}; attach borrows its main thread for a moment instead",
            _REOPEN.get(closed.obstacle, ""),
        )
    return _ok("remote_exec", "it takes a script without being stopped")


def _bundle_place(case: triage.TriageCase) -> DoctorCheck:
    try:
        with TargetFolder(case.pid, proc=case.proc) as place:
            detail = f"the agent can be placed in {os.path.dirname(place.path)}"
    except AutobrrrError as error:
        return _fail("folder", error.message, error.hint)
    return _ok("folder", detail)


def _name(pid: int, proc: Path) -> str:
    return (kernel_text.text(proc / str(pid) / "stat", 64) or "").partition("(")[2].partition(")")[0]


def _profiler(case: triage.TriageCase) -> DoctorCheck:
    names = procfs.environ(case.pid, cupti_users.VARIABLES, case.proc)
    try:
        maps = " ".join(each.name for each in process_maps.read(case.pid, case.proc))
    except OSError:
        maps = ""
    user = cupti_users.cupti_user(dict.fromkeys(names, "set"), maps)
    if user is None:
        engine = next((pid for pid in procfs.pids(case.proc) if _name(pid, case.proc) in _DCGM), None)
        if engine is None:
            return _ok("profiler", "no other one is in the process")
        detail = f"DCGM (pid {engine}) may hold the GPU's profiling counters"
        return _warn("profiler", detail, "dcgmi profiling --pause")
    detail = f"{user}: a GPU job gets no profiler window beside it"
    return _warn("profiler", detail, "start the job without it")


def _bundle_code(case: triage.TriageCase) -> DoctorCheck:
    interpreter = code_bundle.interpreter_of(case.pid, case.python().version, case.proc)
    if code_bundle.code(code_bundle.entries(), interpreter, paths.cache_dir()) is not None:
        return _ok("compile", "the agent is compiled beforehand")
    return _warn(
        "compile", "no Python of its version may be run from here: the agent is compiled on its own thread"
    )


def _architecture() -> DoctorCheck:
    machine = platform.machine()
    if machine in borrowed_thread.ARCHITECTURES:
        return _ok("architecture", machine)
    return _fail("architecture", f"{machine}: attach works on x86_64", triage.RUN_HINT)


def _scope() -> DoctorCheck:
    scope = own_place.yama_scope(procfs.PROC)
    if scope in (None, 0) or own_place.look().may_trace_others:
        shown = "not set" if scope is None else str(scope)
        return _ok("ptrace_scope", f"{shown}; you may trace your own processes")
    return _fail(
        "ptrace_scope",
        f"{scope}: only children, or nobody, may be traced without CAP_SYS_PTRACE",
        f"run as root, or `sysctl kernel.yama.ptrace_scope=0`, or {triage.RUN_HINT}",
    )


def _attach_to_a_child() -> DoctorCheck:
    with stopped_in_order(), deaf_child([sys.executable, "-I", "-S", "-c", _BUSY], subprocess.PIPE) as child:
        return _attached_to(child)


def _attached_to(child: subprocess.Popen[bytes]) -> DoctorCheck:
    assert child.stdout is not None
    child.stdout.readline()
    try:
        with tempfile.TemporaryDirectory(prefix="autobrrr-doctor-", dir=paths.temporary_dir()) as folder:
            answer = Path(folder) / "answer"
            taken = inject(child.pid, f"open({str(answer)!r}, 'w').close()", folder=folder)
            end_s = time.monotonic() + _ANSWER_S
            while not answer.exists() and time.monotonic() < end_s:
                time.sleep(0.01)
            if not answer.exists():
                return _fail("attach", "test attach: the child process did not run the call")
    except AutobrrrError as error:
        return _fail("attach", error.message, error.hint)
    shown = f"test attach paused a child process for {taken.pause_ns / 1e6:.2f} ms"
    return _ok("attach", shown)


def _runtime() -> DoctorCheck:
    folder = paths.runtime_dir()
    try:
        paths.make_private(folder)
    except AutobrrrError as error:
        return _fail("runtime", error.message, error.hint)
    passed_over = paths.objection_to(paths.runtime_dirs()[0])
    if passed_over is not None:
        return _warn("runtime", f"{passed_over}; {folder} is used", "remove it")
    return _ok("runtime", str(folder))


def _cache() -> DoctorCheck:
    folder = paths.cache_dir()
    why = paths.why_unwritable(folder)
    if why is not None:
        return _warn("cache", why, "set XDG_CACHE_HOME, or free space there")
    return _ok("cache", str(folder))


def _torch() -> DoctorCheck:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        detail = "not installed here; only roofline and demo need it, a job brings its own"
        return _ok("torch", detail, install_line("torch"))
    return _ok("torch", version)


def _run_delay() -> DoctorCheck:
    if os.path.exists(f"/proc/self/task/{os.getpid()}/schedstat"):
        return _ok("run delay", "the kernel reports who waited for a CPU")
    return _warn(
        "run delay",
        "no schedstat: a busy machine can't be told from a slow job",
        "a kernel with CONFIG_SCHED_INFO",
    )


def _gpu() -> DoctorCheck:
    if os.path.exists("/proc/driver/nvidia/version"):
        return _ok("gpu", "an NVIDIA driver is loaded")
    return _warn("gpu", "no NVIDIA driver: CPU jobs only")
