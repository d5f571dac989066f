"""What injected code says when it fails in the job, and what that means for the user.

The word comes as the text of a symbolic link in the private folder: making one takes no descriptor, no
thread, no socket and no memory to speak of, so it works where the agent could not. `Place.said` reads it.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from autobrrr.errors import CannotAttach
from autobrrr.machine import kernel_text, procfs
from autobrrr.machine.procfs import PROC
from autobrrr.readable import spoken

MOST_CHARACTERS = 900  # of a link's text: 4095 bytes


class Part(Enum):
    """What could not come up; the words that the agent's own `Part` uses too."""

    PAGE = "page"  # the memory that the injected call comes in
    THREAD = "thread"
    GREENLETS = "greenlets"  # gevent's or eventlet's, in place of threads and waits
    LOADING = "loading"  # the bundle: files are read, modules run
    LINK = "link"  # the socket to the sidecar, and the bell
    RING = "ring"  # the memory of step records
    HELLO = "hello"  # the first frame, with the ring's descriptor
    SESSION = "session"  # the process, which has another agent


# What a part asks of the kernel, for a sentence about who refuses it.
_CALLS = {
    Part.PAGE: "mmap, or memory that can be executed",
    Part.THREAD: "clone",
    Part.GREENLETS: "clone",
    Part.LOADING: "openat",
    Part.LINK: "socket, connect and socketpair",
    Part.RING: "memfd_create, ftruncate and mmap",
    Part.HELLO: "sendmsg",
}
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT)  # the last: RestrictAddressFamilies=


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One failure in the job."""

    part: Part
    kind: str  # the exception's class
    number: int | None  # its errno
    text: str


def parse(said: str) -> Complaint:
    """Four lines: part, class, errno, text; what is none of that is a failure to load."""
    part, kind, number, text = [*said.split("\n", 3), "", "", "", ""][:4]
    known = {each.value for each in Part}
    return Complaint(
        part=Part(part) if part in known else Part.LOADING,
        kind=spoken(kind),
        number=kernel_text.number(number),
        text=spoken(text),
    )


def error_of(complaint: Complaint, pid: int, proc: Path = PROC) -> CannotAttach:
    """The error for the user: the cause as far as it can be known, and the remedy."""
    outside = f"or watch from outside: autobrrr attach --outside {pid}"
    if complaint.part is Part.GREENLETS:
        return CannotAttach(
            f"the agent can't come up in process {pid}: gevent or eventlet has replaced Python's threads "
            "or waits there (monkey patching)",
            f"start it without monkey patching, {outside}",
        )
    if complaint.part is Part.SESSION:
        lies = f" (its socket lies in {complaint.text})" if complaint.text else ""
        return CannotAttach(
            f"process {pid} has a session already that can't be found from here{lies}: it was started with "
            "another XDG_RUNTIME_DIR, or from another container",
            f"autobrrr detach {pid} ends it, if run as it was attached; then try again, {outside}",
        )
    if complaint.number in _REFUSED:
        filtered = procfs.status(pid, proc).get("Seccomp") == "2"
        who = "its seccomp filter" if filtered else "the system"
        calls = _CALLS[complaint.part]
        where = "its seccomp profile" if filtered else "the security policy of the machine"
        return CannotAttach(
            f"the agent can't come up in process {pid}: {who} refuses it {calls} "
            f"({errno.errorcode[complaint.number]})",
            f"allow {calls} in {where}, {outside}",
        )
    why = complaint.text or complaint.kind
    return CannotAttach(
        f"the agent can't come up in process {pid} ({complaint.part.value}): {complaint.kind}: {why}",
        f"autobrrr doctor {pid} says which limit of it is short, if one is, {outside}",
    )
