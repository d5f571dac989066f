"""What `ls` and `doctor` show, from a made-up /proc."""

from __future__ import annotations

import os

from autobrrr.attach import doctor_checks, job_listing, triage
from autobrrr.attach.ptrace import mapped_python
from autobrrr.cli.verbs import doctor, ls
from autobrrr.errors import EXIT_CANNOT_ATTACH
from autobrrr.records import DoctorCheck, JobLine
from support.machines.fake_proc import FakeProc


def test_jobs_are_listed_without_their_helpers(proc: FakeProc) -> None:
    proc.add(10, torch=True, words=("python", "train.py"), environ={"RANK": "0"}, state="T")
    proc.add(11, ppid=10, torch=True, comm="pt_data_worker")
    proc.add(12, ppid=10, torch=True, words=("python", "-m", "torch._inductor.compile_worker"))
    proc.add(13, words=("python", "other.py"))
    proc.add(14, torch=True, words=("python", "-m", "autobrrr.sidecar", "10"))
    proc.add(15, ppid=14, torch=True, words=("python", "-I", "-S", "-B", "-c", "pass", "/site-packages"))
    (found,) = job_listing.find(proc.root, own_pid=99)
    assert (found.pid, found.script, found.rank) == (10, "train.py", 0)
    assert "is stopped" in found.why


def test_ranks_are_listed_and_their_launcher_is_not(proc: FakeProc) -> None:
    proc.add(10, torch=True, words=("python", "/bin/torchrun", "train.py"))
    proc.add(11, ppid=10, torch=True, environ={"RANK": "0"}, state="T")
    proc.add(12, ppid=10, torch=True, environ={"RANK": "1"}, state="T")
    assert [(found.pid, found.rank) for found in job_listing.find(proc.root, own_pid=99)] == [
        (11, 0),
        (12, 1),
    ]


def case(proc: FakeProc) -> triage.TriageCase:
    found = mapped_python.MappedPython(version=(3, 15), free_threaded=False)
    return triage.TriageCase(
        pid=10,
        proc=proc.root,
        machine="x86_64",
        memory_of=lambda pid: os.open("/dev/null", os.O_RDONLY),
        ranks_below=lambda pid, root: [],
        found=found,
    )


def test_the_doctor_shows_every_objection_not_only_the_first(proc: FakeProc) -> None:
    proc.add(10, state="T")
    checks, code = doctor_checks.of_process(10, case(proc))
    failed = [check.name for check in checks if check.status == "fail"]
    assert failed[:3] == ["running", "version", "torch"]
    assert code == EXIT_CANNOT_ATTACH
    assert all(check.fix for check in checks if check.status == "fail")


def test_the_doctor_names_a_profiler_that_is_in_the_process(proc: FakeProc) -> None:
    proc.add(10, environ={"CUDA_INJECTION64_PATH": "/opt/nsys/libToolsInjection64.so"})
    checks, _ = doctor_checks.of_process(10, case(proc))
    (found,) = [check for check in checks if check.name == "profiler"]
    assert (found.status, "CUDA_INJECTION64_PATH" in found.detail) == ("warn", True)


def test_the_doctor_says_how_it_stands_and_has_the_mending_under_the_check() -> None:
    checks = [
        DoctorCheck(name="a", status="ok", detail="fine", fix=""),
        DoctorCheck(name="long name", status="fail", detail="broken", fix="mend it"),
    ]
    assert doctor.table(checks, "process 7", whole=True).splitlines() == [
        "process 7 is not ready: 1 of 2 checks passed",
        "ok    a          fine",
        "FAIL  long name  broken",
        "                 -> mend it",
    ]
    assert doctor.table(checks, "process 7", whole=False).splitlines() == [
        "process 7 is not ready: 1 of 2 checks passed (-v lists them)",
        "FAIL  long name  broken",
        "                 -> mend it",
    ]
    well = [checks[0], DoctorCheck(name="b", status="ok", detail="fine", fix="")]
    said = "this machine is ready: 2 of 2 checks passed (-v lists them)"
    assert doctor.table(well, "this machine", whole=False) == said
    limited = [*well, DoctorCheck(name="gpu", status="warn", detail="no driver", fix="")]
    said = "this machine is ready, with limits: 2 of 3 checks passed"
    assert doctor.table(limited, "this machine", whole=False).startswith(said)


def test_the_list_names_what_says_why_a_job_can_not_be_attached_to() -> None:
    lines = [
        JobLine(pid=1, script="a.py", rank=None, torch="2.1", attached=True, attachable=True, why=None),
        JobLine(pid=22, script="b.py", rank=3, torch=None, attached=False, attachable=False, why="it sleeps"),
    ]
    rows = [row.split() for row in ls.table(lines).splitlines()]
    assert rows[0] == ["PID", "RANK", "TORCH", "STATE", "SCRIPT"]
    assert rows[1] == ["1", "2.1", "attached", "a.py"]
    assert rows[2] == ["22", "3", "?", "not", "ready", "b.py"]
    assert len(rows) == 3
    assert "no training job" in ls.table([])
