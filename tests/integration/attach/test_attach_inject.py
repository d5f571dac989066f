"""The injector on real processes: every Python, busy in every way; and they never notice."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autobrrr.attach.ptrace import borrowed_thread, kept_tracer, mapped_python, ptrace_calls, thread_start
from autobrrr.attach.ptrace import x86_64 as cpu
from autobrrr.attach.ptrace.injector import InjectionWay, inject
from autobrrr.attach.ptrace.pending_call import PendingCall
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.machine import process_maps, procfs
from support.attach import RELEASES, SLEEPS, TRAINS, VERSIONS, Child, child, eventually, interpreters, leaves
from support.day_cases import by_day

pytestmark = pytest.mark.integration

OWN = by_day(RELEASES, lambda release: sys.version.startswith(f"{release}."))
AWAKE = ("spin", "malloc", "gil_held", "compiling", "short_sleeps", "with_sleeper")
DISTRO = Path("/usr/bin/python3")


def python(version: str) -> str:
    found = interpreters().get(version)
    if found is None:
        pytest.skip(f"no Python {version} here")
    return found


def runs_what_is_injected(target: Child, folder: Path) -> None:
    for turn in range(3):
        answer = folder / f"answer-{turn}"
        taken = inject(target.pid, leaves(answer))
        eventually(answer.exists)
        assert taken.pause_ns > 0
    eventually(lambda: target.alive() and not has_mapped(target.pid, taken.page))


def has_mapped(pid: int, page: int) -> bool:
    return any(mapping.start <= page < mapping.end for mapping in process_maps.read(pid))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", AWAKE)
def test_injected_code_runs_and_the_target_works_on(kind: str, version: str, tmp_path: Path) -> None:
    with child(kind, python(version)) as target:
        threads = 2 if kind == "with_sleeper" else 1
        eventually(lambda: target.threads() == threads)
        runs_what_is_injected(target, tmp_path)
        eventually(lambda: target.threads() == threads)


def imports_nothing_more(pid: int) -> bool:
    """Whether the main thread of a target that has just started sleeps on: it has mapped what it will.

    One that waits for the interpreter's lock sleeps too, and wakes up every few milliseconds.
    """

    def look() -> tuple[int, str, str]:
        status = procfs.status(pid)
        return len(process_maps.read(pid)), status["State"][:1], status["voluntary_ctxt_switches"]

    before = look()
    time.sleep(0.5)
    return before == look() and before[1] == "S"


@pytest.mark.parametrize("version", OWN)
@pytest.mark.parametrize("state", by_day(SLEEPS, {"join", "read", "select"}.__contains__))
def test_beside_a_main_thread_that_sleeps_a_thread_runs_the_code_and_is_gone(
    state: str, version: str, tmp_path: Path
) -> None:
    with child(state, python(version), source=TRAINS + SLEEPS[state]) as target:
        threads = 2
        eventually(lambda: target.threads() == threads)
        eventually(lambda: imports_nothing_more(target.pid))
        pages = []
        for turn in range(4):
            answer = tmp_path / f"answer-{turn}"
            taken = inject(
                target.pid, f"open({str(answer)!r}, 'w').write(repr(mapped))", way=InjectionWay.NEW_THREAD
            )
            eventually(lambda answer=answer: answer.exists() and answer.read_text() != "")
            assert answer.read_text() == "None"
            eventually(lambda: target.threads() == threads)
            eventually(lambda taken=taken: not has_mapped(target.pid, taken.page))
            pages.append(len(process_maps.read(target.pid)))
        assert target.alive()
        assert pages[3] - pages[0] <= 2  # glibc keeps the stack of one thread that has ended, with its guard


WAITS = {
    "sleep": "import time; time.sleep(1.5)",
    "lock": "import threading; held = threading.Lock(); held.acquire(); assert not held.acquire(timeout=1.5)",
    "child": "import subprocess; assert subprocess.run(['sleep', '1.5']).returncode == 0",
}


@pytest.mark.parametrize(
    ("wait", "way"),
    [
        ("sleep", InjectionWay.PENDING_CALL),
        ("child", InjectionWay.PENDING_CALL),
        ("lock", InjectionWay.NEW_THREAD),
    ],
)
def test_an_interrupted_wait_is_waited_to_its_end(wait: str, way: InjectionWay) -> None:
    source = (
        f"import time; began = time.monotonic()\n{WAITS[wait]}\nprint(time.monotonic() - began, flush=True)"
    )
    with child("waits", source=f"{source}\nimport signal; signal.pause()") as target:
        for _ in range(4):
            inject(target.pid, "pass", way=way)
        assert float(target.process.stdout.readline()) >= 1.5


def test_no_thread_is_started_from_one_that_does_not_wait(tmp_path: Path) -> None:
    with child("spin") as target:
        with pytest.raises(CannotAttach, match="none of its threads waits"):
            inject(target.pid, leaves(tmp_path / "never"), way=InjectionWay.NEW_THREAD)
        runs_what_is_injected(target, tmp_path)
        assert not (tmp_path / "never").exists()


def test_a_thread_waits_for_the_gil_and_the_borrowed_one_does_not(tmp_path: Path) -> None:
    source = (
        "import ctypes, threading, time\n"
        "held = ctypes.PyDLL(None).usleep\n"  # with the GIL held
        "def hold():\n    time.sleep(0.2); print('holds', flush=True); held(3_000_000); time.sleep(1000)\n"
        "threading.Thread(target=hold, daemon=True).start()\n"
        "threading.Event().wait(0.4); print('woken', flush=True); time.sleep(1000)"
    )
    answer = tmp_path / "answer"
    with child("held", source=source) as target:
        assert target.process.stdout.readline() == "holds\n"
        inject(target.pid, leaves(answer), way=InjectionWay.NEW_THREAD)
        assert not answer.exists()
        eventually(answer.exists)
        assert target.process.stdout.readline() == "woken\n"


def test_the_code_has_no_name_in_main_and_all_signals_blocked(tmp_path: Path) -> None:
    said = tmp_path / "said"
    source = (
        "import _signal, sys\n"
        "free = _signal.valid_signals() - _signal.pthread_sigmask(_signal.SIG_BLOCK, [])\n"
        "names = [n for n in vars(sys.modules['__main__']) if not n.startswith('__')]\n"
        f"open({str(said) + '.part'!r}, 'w').write(repr((sorted(map(int, free)), sorted(names))))\n"
        f"import os; os.rename({str(said) + '.part'!r}, {str(said)!r})\n"
    )
    with child("spin") as target:
        inject(target.pid, source)
        eventually(said.exists)
    free, names = eval(said.read_text())
    assert set(free) <= {signal.SIGKILL, signal.SIGSTOP}
    assert names == ["beats", "i"]


def test_code_that_fails_is_not_noticed(tmp_path: Path) -> None:
    with child("spin") as target:
        for source in ("raise SystemExit", "1/0", "import nothing_of_that_name", "def"):
            inject(target.pid, source)
        runs_what_is_injected(target, tmp_path)
        assert target.alive()
        target.process.kill()
        assert target.process.stderr.read() == ""


def test_signals_of_the_target_reach_it_while_it_is_attached_to(tmp_path: Path) -> None:
    source = (
        "import signal\ncount = 0\n"
        "def more(*_):\n    global count\n    count += 1\n    print(count, flush=True)\n"
        "signal.signal(signal.SIGUSR1, more)\nprint('armed', flush=True)\nwhile True: beats += 1"
    )
    with child("handler", source=source) as target:
        assert target.process.stdout.readline() == "armed\n"
        for turn in range(6):
            os.kill(target.pid, signal.SIGUSR1)
            inject(target.pid, "pass")
            assert target.process.stdout.readline() == f"{turn + 1}\n"


@pytest.mark.parametrize("what", ["call", "system call"])
def test_a_thread_that_was_given_up_on_is_put_back_and_gets_no_signal_of_ours(what: str) -> None:
    with child("with_sleeper") as target:
        site = borrowed_thread.aim(target.pid)
        thread = ptrace_calls.Tracee(target.pid, cpu.registers_bytes())
        thread.interrupt()
        assert thread.wait_interrupted(10)
        registers, mask = thread.registers(), thread.signal_mask()
        extended = [(note, thread.extended(note)) for note in cpu.EXTENDED_NOTES]
        thread.set_signal_mask()
        if what == "call":
            nowhere, _, _ = cpu.for_call(registers, thread_start.RETURN_TO, (), 0)
            thread.set_registers(nowhere)
            in_time = thread.run_until_fault(0)
        else:
            pause = 34  # what ends it is that we want the thread back: its trap comes after that stop
            thread.set_registers(cpu.for_syscall(registers, site.gadget, pause, ()))
            in_time = thread.step(0.2)
        if in_time:
            pytest.skip("it was in time")
        time.sleep(0.2)
        borrowed_thread._restore(thread, registers, extended, mask)
        assert thread.registers() == registers
        assert thread.held_back == []
        thread.detach()
        time.sleep(0.2)
        assert target.alive()


_MAPS_MUCH = """
import ctypes, threading
libc = ctypes.CDLL(None)
libc.prctl(41, 1, 0, 0, 0)  # no large pages
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
print("maps", flush=True)
threading.Thread(target=libc.mmap, args=(None, 6 << 30, 1, 0x8022, -1, 0), daemon=True).start()
beats = 0
while True: beats += 1
"""  # read only and at once: page tables of 12 MiB, and no other call that maps for some seconds


def test_a_thread_that_waits_to_map_memory_is_waited_for(tmp_path: Path) -> None:
    with child("maps_much", source=_MAPS_MUCH) as target:
        assert target.process.stdout.readline() == "maps\n"
        time.sleep(0.05)
        with contextlib.suppress(CannotAttach):  # where it takes longer than is tried
            inject(target.pid, "pass")
        inject(target.pid, leaves(tmp_path / "answer"))
        eventually((tmp_path / "answer").exists)
        assert target.alive()


@pytest.mark.skipif(not DISTRO.exists(), reason="no distribution Python")
def test_a_static_stripped_interpreter(tmp_path: Path) -> None:
    with child("spin", str(DISTRO)) as target:
        runs_what_is_injected(target, tmp_path)


def copied_library(python_path: str, folder: Path) -> tuple[Path, Path] | None:
    """The library of an interpreter, copied and stripped; None where it has none."""
    with child("spin", python_path) as target:
        for mapping in process_maps.read(target.pid):
            if mapping.name.startswith("libpython") and mapping.offset == 0:
                copy = folder / mapping.name
                shutil.copy(mapping.path, copy)
                subprocess.run(["strip", "-s", str(copy)], check=True)
                return copy, Path(mapping.path)
    return None


@pytest.mark.skipif(shutil.which("strip") is None, reason="no strip")
def test_a_stripped_library_that_was_deleted_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = copied_library(sys.executable, tmp_path)
    if copied is None:
        pytest.skip("this Python has no shared library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with child("spin") as target:
        assert any(mapping.path == str(copied[0]) for mapping in process_maps.read(target.pid))
        copied[0].unlink()
        runs_what_is_injected(target, tmp_path)
        with open(f"/proc/{target.pid}/mem", "rb", buffering=0) as memory:
            found = mapped_python.read(target.pid, memory.fileno())
        assert found is not None
        assert found.version == sys.version_info[:2]


def test_a_process_that_is_no_python_is_not_stopped() -> None:
    with subprocess.Popen(["sleep", "30"]) as sleeper:
        try:
            with pytest.raises(CannotAttach, match="not CPython"):
                inject(sleeper.pid, "pass")
            assert sleeper.poll() is None
        finally:
            sleeper.kill()


def test_an_attacher_that_is_told_to_end_in_the_middle_leaves_the_target_whole(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(kept_tracer._ROOT)!r})\n"
        "from autobrrr.attach.ptrace.injector import inject\n"
        "print('go', flush=True)\n"
        "while True: inject(int(sys.argv[1]), 'pass')"
    )
    with child("spin") as target:
        for turn in range(10):
            attacher = subprocess.Popen(
                [sys.executable, "-c", program, str(target.pid)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            attacher.stdout.readline()
            time.sleep(0.05 + 0.007 * turn)
            os.killpg(attacher.pid, signal.SIGINT if turn % 2 else signal.SIGTERM)
            attacher.communicate()
            assert target.alive()
        runs_what_is_injected(target, tmp_path)


def test_a_process_that_may_execute_no_new_memory_is_left_as_it_was() -> None:
    source = "import ctypes, time\nprint(ctypes.CDLL(None).prctl(65, 1, 0, 0, 0))\ntime.sleep(1000)"
    with child("no new code", source=source) as target:  # PR_SET_MDWE
        if target.process.stdout.readline() != "0\n":
            pytest.skip("this kernel has no PR_SET_MDWE")
        eventually(lambda: procfs.status(target.pid)["State"].startswith("S"))
        size = procfs.status(target.pid)["VmSize"]
        for _ in range(3):
            with pytest.raises(CannotAttach, match="memory that can be executed"):
                inject(target.pid, "pass", way=InjectionWay.NEW_THREAD)
        assert procfs.status(target.pid)["VmSize"] == size


def test_what_has_become_another_program_since_it_was_looked_at_is_not_borrowed(tmp_path: Path) -> None:
    """It may be a program of root's, and the addresses are those that the job has shown."""
    source = (
        "import os, signal, sys\n"
        "def become(*_): os.execv('/bin/sleep', ['sleep', '60'])\n"
        "signal.signal(signal.SIGUSR1, become)\nwhile True: beats += 1"
    )
    with child("becomes", source=source) as target:
        site = borrowed_thread.aim(target.pid)
        os.kill(target.pid, signal.SIGUSR1)
        comm = Path(f"/proc/{target.pid}/comm")
        eventually(lambda: comm.read_text() == "sleep\n")
        with pytest.raises(TargetGone, match="another program"):
            borrowed_thread.strike(PendingCall(target=site, code=b"pass"))
        assert target.alive()


def test_a_thread_whose_number_another_process_has_by_now_is_not_borrowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with child("asleep") as target, child("asleep") as other:
        way = thread_start.way_to(borrowed_thread.aim(target.pid), b"pass")
        given = (other.pid, target.pid)
        monkeypatch.setattr(
            thread_start.NewThread, "choose_thread", lambda self, tries, proc: given[tries > 1]
        )
        assert borrowed_thread.strike(way).tid == target.pid
        assert target.alive()
        assert other.alive()
