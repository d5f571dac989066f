"""Every objection against attaching has its own sentence, hint and exit code; nothing is touched."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autobrrr.attach import job_limits, job_roles, triage
from autobrrr.attach.ptrace import mapped_python
from autobrrr.errors import EXIT_CANNOT_ATTACH, EXIT_GONE, CannotAttach, TargetGone
from autobrrr.machine import own_place
from autobrrr.machine.same_program import Program
from support.machines.fake_proc import FakeProc

PID = 4242
US = os.geteuid()
CPYTHON = mapped_python.MappedPython(version=(3, 11), free_threaded=False)


def case(proc: FakeProc, **changes: object) -> triage.TriageCase:
    outside: dict[str, object] = {
        "pid": PID,
        "proc": proc.root,
        "uid": US,
        "here": own_place.OwnPlace(),
        "machine": "x86_64",
        "memory_of": lambda pid: os.open("/dev/null", os.O_RDONLY),
        "ranks_below": lambda pid, root: [],
        "found": CPYTHON,
    }
    return triage.TriageCase(**{**outside, **changes})  # type: ignore[arg-type]


def refused(pid: int) -> int:
    raise PermissionError


def test_a_training_process_of_ours_is_let_through(proc: FakeProc) -> None:
    proc.add(PID, torch=True, uid=US)
    assert triage.require(case(proc)) == (Program(777, 4, US, 0), (3, 11))


def test_the_version_of_the_torch_that_is_mapped_is_read(proc: FakeProc) -> None:
    proc.add(PID, torch=True)
    folder = proc.root / str(PID) / "root" / "site" / "torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("from typing import Optional\n__version__ = '2.8.1+cu129'\n")
    found = case(proc).torch
    assert found is not None
    assert str(found.version) == "2.8.1+cu129"


def test_a_pid_that_is_not_there_exits_with_four(proc: FakeProc) -> None:
    with pytest.raises(TargetGone, match="there is no process 4242") as caught:
        triage.require(case(proc))
    assert caught.value.exit_code == EXIT_GONE
    with pytest.raises(TargetGone, match="in this container") as inside:
        triage.require(case(proc, here=CONTAINED))
    assert "kubectl debug --target" in inside.value.hint


CONTAINED = own_place.OwnPlace(in_pid_namespace=True)
Setup = Callable[[FakeProc], triage.TriageCase]


def of(words: dict[str, object], changes: dict[str, object] | None = None) -> Setup:
    def make(proc: FakeProc) -> triage.TriageCase:
        proc.add(PID, **{"uid": US, "torch": True, **words})  # type: ignore[arg-type]
        return case(proc, **(changes or {}))

    return make


CAPABLE = own_place.OwnPlace(capabilities=own_place.CAP_SYS_PTRACE)


def untraceable(here: own_place.OwnPlace) -> Setup:
    return of({}, {"memory_of": refused, "here": here})


def refused_by_yama(scope: int, here: own_place.OwnPlace = CONTAINED) -> Setup:
    def make(proc: FakeProc) -> triage.TriageCase:
        proc.scope(scope)
        proc.add(PID, uid=US, torch=True)
        return case(proc, memory_of=refused, here=here)

    return make


def traced_by_gdb(proc: FakeProc) -> triage.TriageCase:
    proc.add(99, comm="gdb")
    proc.add(PID, uid=US, torch=True, TracerPid="99")
    return case(proc)


def worker(**words: object) -> Setup:
    def make(proc: FakeProc) -> triage.TriageCase:
        proc.add(4000, torch=True)
        return of({"ppid": 4000, **words})(proc)

    return make


def shell_over_training(proc: FakeProc) -> triage.TriageCase:
    proc.add(PID, comm="bash", words=("bash", "go.sh"), uid=US)
    proc.add(4300, ppid=PID, torch=True)
    return case(proc, found=None, ranks_below=job_roles.ranks_below)


def frozen(proc: FakeProc) -> triage.TriageCase:
    group = proc.root / "groups" / "unified" / "job"
    group.mkdir(parents=True)
    (group / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    proc.add(PID, uid=US, torch=True)
    (proc.root / str(PID) / "cgroup").write_text("0::/job\n")
    return case(proc, groups=proc.root / "groups")


def full(
    limits: str, *, open_files: int = 0, mapped_kb: int = 0, group: dict[str, str] | None = None
) -> Setup:
    """A process that can take no more of something."""

    def make(proc: FakeProc) -> triage.TriageCase:
        folder = proc.add(PID, uid=US, torch=True, VmPeak=f"{mapped_kb} kB")
        (folder / "limits").write_text(limits)
        (folder / "fd").mkdir()
        for fd in range(open_files):
            (folder / "fd" / str(fd)).touch()
        (folder / "cgroup").write_text("0::/job\n")
        place = proc.root / "groups" / "job"
        place.mkdir(parents=True)
        (place.parent / "cgroup.controllers").touch()
        for name, text in (group or {}).items():
            (place / name).write_text(text)
        return case(proc, groups=proc.root / "groups")

    return make


REFUSALS: dict[str, tuple[Setup, str, str]] = {
    "zombie": (of({"state": "Z"}), "a zombie", "nothing left"),
    "stopped": (of({"state": "T"}), "is stopped", "kill -CONT 4242"),
    "owner": (of({"uid": 2**31 - 9}, {"uid": 1000}), "belongs to uid 2147483639", "as that user or as root"),
    "tracer": (traced_by_gdb, "already being traced by gdb .pid 99.; nothing was changed", "end gdb"),
    "yama 1": (refused_by_yama(1), "ptrace_scope=1", "sysctl kernel.yama.ptrace_scope=0"),
    "yama 2": (refused_by_yama(2), "ptrace_scope=2", "root"),
    "yama 3": (refused_by_yama(3, CAPABLE), "until reboot", "autobrrr run"),
    "capability": (untraceable(own_place.OwnPlace()), "CAP_SYS_PTRACE", "run autobrrr as root"),
    "container": (untraceable(CONTAINED), "CAP_SYS_PTRACE", "--cap-add SYS_PTRACE"),
    "filter": (
        of({}, {"here": own_place.OwnPlace(ptrace_filtered=True)}),
        "seccomp filter refuses ptrace",
        "--security-opt seccomp=unconfined",
    ),
    "proc": (of({}, {"here": own_place.OwnPlace(sees_itself=False)}), "/proc here", "mount -t proc"),
    "rootless": (
        untraceable(dataclasses.replace(CAPABLE, in_user_namespace=True)),
        "root in its user namespace only",
        "podman unshare",
    ),
    "owner inside": (
        of({"uid": 2**31 - 9}, {"uid": 1000, "here": CONTAINED}),
        "belongs to uid 2147483639",
        "runAsUser: 2147483639",
    ),
    "policy": (untraceable(CAPABLE), "security policy", "autobrrr run"),
    "arm": (of({}, {"machine": "aarch64"}), "this machine is aarch64", "autobrrr run"),
    "frozen": (of({}, {"found": None}), "not CPython, or exports no C API", "autobrrr ls"),
    "shell": (shell_over_training, "launches training in pids 4300", "attach to one of them"),
    "old": (of({}, {"found": dataclasses.replace(CPYTHON, version=(3, 9))}), "Python 3.9", "newer"),
    "new": (of({}, {"found": dataclasses.replace(CPYTHON, version=(3, 15))}), "3.10 to 3.14", "autobrrr run"),
    "unnamed": (
        of({}, {"found": dataclasses.replace(CPYTHON, version=None)}),
        "can't be determined",
        "autobrrr run",
    ),
    "free": (
        of({}, {"found": dataclasses.replace(CPYTHON, free_threaded=True)}),
        "free-threaded build",
        "ordinary build",
    ),
    "shadow": (of({"x86_Thread_features": "shstk"}), "shadow stack", "autobrrr run"),
    "new worker": (worker(comm="pt_data_worker"), "DataLoader worker of process 4000", "attach to 4000"),
    "old worker": (worker(SigCgt="00000000000044c0"), "DataLoader worker of process 4000", "attach to 4000"),
    "launcher": (of({}, {"ranks_below": lambda pid, root: [7, 8]}), "training in pids 7, 8", "example 7"),
    "early launcher": (
        of({"words": ("/usr/bin/python3", "/usr/bin/torchrun", "train.py")}),
        "is a launcher, and none of its ranks has loaded PyTorch so far",
        "when they train",
    ),
    "frozen group": (frozen, "frozen by its control group", "thaw"),
    "descriptors": (
        full("Max open files            64                   4096                 files\n", open_files=63),
        "has 1 file descriptor left of the 64",
        "prlimit --pid 4242 --nofile=128:",
    ),
    "threads": (
        full("", group={"pids.max": "20", "pids.current": "19"}),
        "has 1 thread left of the 20",
        "pids.max",
    ),
    "addresses": (
        full(
            f"Max address space         {1 << 30}           unlimited            bytes\n",
            mapped_kb=(1 << 20) - 10240,
        ),
        "may map 10 MiB more",
        "prlimit --pid 4242 --as=",
    ),
    "memory": (
        full(
            "",
            group={
                "memory.max": str(1 << 30),
                "memory.current": str((1 << 30) - (1 << 20)),
                "memory.stat": "inactive_file 1048576\nactive_file 0\n",
            },
        ),
        "has 2.0 MiB of memory left",
        "--outside",
    ),
    "no torch": (of({"torch": False}), "no PyTorch in process 4242", "autobrrr ls"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_each_objection_says_what_and_what_to_do(name: str, proc: FakeProc) -> None:
    make, sentence, hint = REFUSALS[name]
    with pytest.raises((CannotAttach, TargetGone), match=sentence) as caught:
        triage.require(make(proc))
    assert hint in caught.value.hint
    assert caught.value.exit_code == (EXIT_GONE if name == "zombie" else EXIT_CANNOT_ATTACH)


def test_every_check_has_an_objection_that_is_tested(tmp_path: Path) -> None:
    met = {"process"}
    for number, (make, _, _) in enumerate(REFUSALS.values()):
        found = triage.refusal(make(FakeProc(tmp_path / str(number))))
        met.add(found[0].name)
    assert met == {check.name for check in triage.CHECKS}


def test_a_process_that_ends_during_the_checks_is_gone(proc: FakeProc) -> None:
    folder = proc.add(PID, torch=True, uid=US)

    def end(pid: int) -> int:
        (folder / "stat").unlink()
        raise PermissionError

    with pytest.raises(TargetGone):
        triage.require(case(proc, memory_of=end))


@pytest.mark.parametrize("state", ["R", "Z"])
def test_a_process_that_is_ending_is_no_python_of_another_kind(state: str, proc: FakeProc) -> None:
    folder = proc.add(PID, torch=True, uid=US)

    def end(pid: int) -> int:
        head, _, tail = (folder / "stat").read_text().rpartition(")")
        words = tail.split()
        words[0], words[6] = state, str(0x4)  # PF_EXITING, and no memory any more
        (folder / "stat").write_text(f"{head}) {' '.join(words)}")
        raise PermissionError

    with pytest.raises(TargetGone, match=r"has (just )?ended"):
        triage.require(case(proc, memory_of=end))


def test_a_rank_that_catches_all_signals_is_no_worker(proc: FakeProc) -> None:
    proc.add(4000, torch=True)
    with_abort = f"{0x44C0 | 1 << 5:016x}"  # faulthandler, and a SIGTERM handler that checkpoints
    assert triage.refusal(of({"ppid": 4000, "SigCgt": with_abort})(proc)) is None


def test_what_a_step_gives_back_is_not_free(tmp_path: Path) -> None:
    now = 512 << 10  # KiB
    folder = tmp_path / "42"
    folder.mkdir()
    (folder / "limits").write_text(f"Max address space  {1 << 30}  unlimited  bytes\n")
    for peak, is_short in ((now, False), (now + (500 << 10), True)):
        (folder / "status").write_text(f"VmPeak:\t{peak} kB\nVmSize:\t{now} kB\n")
        assert (job_limits.addresses(42, tmp_path) is not None) is is_short


def test_files_opened_before_the_limit_was_lowered_take_no_descriptor(tmp_path: Path) -> None:
    folder = tmp_path / "42"
    (folder / "fd").mkdir(parents=True)
    (folder / "limits").write_text("Max open files  64  4096  files\n")
    for fd in (*range(10), *range(100, 200)):
        (folder / "fd" / str(fd)).touch()
    assert job_limits.descriptors(42, tmp_path) is None
