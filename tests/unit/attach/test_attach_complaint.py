"""What injected code leaves behind when it fails, and the error that is made of it."""

from __future__ import annotations

import _thread
import errno
import re
import time
from pathlib import Path

import pytest

from autobrrr.attach import load_failure
from autobrrr.attach.load_failure import Complaint, Part
from autobrrr.attach.ptrace.injector import FAILED, TAKEN, compose
from autobrrr.attach.ptrace.pending_call import PAGE_BYTES_WORD, PAGE_WORD
from support.attach import eventually
from support.machines.fake_proc import FakeProc

PID = 4242


def fire(source: str, folder: Path) -> None:
    """Run what the main thread would run."""
    code = compose(source, str(folder))
    exec(code.replace(PAGE_WORD.decode(), "0").replace(PAGE_BYTES_WORD.decode(), "0"), {})


def left(folder: Path) -> Complaint:
    return load_failure.parse((folder / FAILED).readlink().as_posix())


def test_source_that_raises_says_what(tmp_path: Path) -> None:
    fire(
        "import errno\nerror = OSError(errno.EMFILE, 'too many')\nerror.part = 'ring'\nraise error", tmp_path
    )
    eventually((tmp_path / FAILED).is_symlink)
    assert (tmp_path / TAKEN).is_symlink()
    said = left(tmp_path)
    assert (said.part, said.kind, said.number) == (Part.RING, "OSError", errno.EMFILE)
    assert said.text.endswith("too many")


def test_a_thread_that_can_not_be_started_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*words: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", none_left)
    fire("pass", tmp_path)
    assert left(tmp_path) == Complaint(
        part=Part.THREAD, kind="RuntimeError", number=None, text="can't start new thread"
    )


def test_a_call_that_is_entered_twice_runs_once_and_complains_of_nothing(tmp_path: Path) -> None:
    source = f"import os; os.mkdir({str(tmp_path / 'ran')!r})"
    fire(source, tmp_path)
    eventually((tmp_path / "ran").is_dir)
    fire(source, tmp_path)
    time.sleep(0.05)
    assert not (tmp_path / FAILED).is_symlink()


SAID = {
    "descriptors": (Part.LOADING, "OSError", errno.EMFILE, "too many", r"OSError: too many", "which limit"),
    "thread": (Part.THREAD, "RuntimeError", None, "can't", r".thread.: RuntimeError: can't", "which limit"),
    "greenlets": (Part.GREENLETS, "NoneType", None, "None", r"gevent or eventlet has replaced", "patching"),
    "memory": (Part.RING, "OSError", errno.ENOMEM, "", r"can't come up .* .ring.: OSError", "which limit"),
    "seccomp": (
        Part.LINK,
        "NotUp",
        errno.EPERM,
        "",
        r"its seccomp filter refuses it socket.*EPERM",
        "profile",
    ),
    "families": (Part.LINK, "NotUp", errno.EAFNOSUPPORT, "", r"refuses it socket.*EAFNOSUPPORT", "profile"),
    "ring": (Part.RING, "NotUp", errno.EACCES, "", r"refuses it memfd_create.*EACCES", "memfd_create"),
    "page": (Part.PAGE, "OSError", errno.EPERM, "", r"refuses it mmap", "mmap"),
    "other": (Part.LOADING, "ImportError", None, "no torch", r"ImportError: no torch", "doctor 4242"),
}


@pytest.mark.parametrize("name", SAID)
def test_each_failure_has_a_cause_and_a_remedy(name: str, tmp_path: Path) -> None:
    part, kind, number, text, sentence, hint = SAID[name]
    FakeProc(tmp_path).add(PID, Seccomp="2")
    found = load_failure.error_of(Complaint(part=part, kind=kind, number=number, text=text), PID, tmp_path)
    assert re.search(sentence, found.message)
    assert hint in found.hint
    assert f"autobrrr attach --outside {PID}" in found.hint


def test_a_filter_is_only_blamed_where_there_is_one(tmp_path: Path) -> None:
    FakeProc(tmp_path).add(PID, Seccomp="0")
    said = Complaint(part=Part.LINK, kind="NotUp", number=errno.EACCES, text="")
    found = load_failure.error_of(said, PID, tmp_path)
    assert "seccomp" not in found.message + found.hint
    assert "security policy" in found.hint


@pytest.mark.parametrize("folder", ["/run/a b/autobrrr", ""])
def test_a_session_that_is_not_found_is_said_with_the_command_that_ends_it(folder: str) -> None:
    said = load_failure.error_of(Complaint(part=Part.SESSION, kind="NotUp", number=None, text=folder), PID)
    lies = f" (its socket lies in {folder})" if folder else ""
    assert f"can't be found from here{lies}: it was started" in said.message
    assert said.hint.startswith(f"autobrrr detach {PID} ends it")
