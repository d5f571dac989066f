"""Messages between the job and a process of ours: whole, never waited for, no signal where nobody listens."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from autobrrr.injected.wire import framing
from autobrrr.injected.wire.agent_socket import AgentSocket, LinkLost
from autobrrr.injected.wire.process_link import pair


def test_what_there_is_no_room_for_is_not_sent_and_nobody_waits() -> None:
    job, process = pair()
    sent = 0
    while job.offer(b"%d" % sent):
        sent += 1
    assert not job.offer(b"more")
    assert [process.receive(5) for _ in range(sent)] == [b"%d" % number for number in range(sent)]
    assert job.offer(b"again")
    assert process.receive(5) == b"again"
    assert not process.is_ready(0)
    for end in (job, process):
        end.close()


def test_what_fits_only_in_part_ends_the_link() -> None:
    job, process = pair()
    with pytest.raises(OSError, match="bytes are sent"):
        job.offer(bytes(1 << 24))
    for end in (job, process):
        end.close()


def test_a_message_that_comes_in_parts_is_whole_and_one_that_stops_is_not_waited_for() -> None:
    job, process = pair()
    sender = threading.Thread(target=lambda: process.send(bytes(range(256)) * (1 << 14)))
    sender.start()
    assert job.receive(30) == bytes(range(256)) * (1 << 14)
    sender.join()
    os.write(process.fileno(), struct.pack("@Q", 8) + b"half")
    with pytest.raises(TimeoutError, match="4 of 8 bytes"):
        job.receive(0.01)
    process.close()
    with pytest.raises(EOFError):
        job.receive(5)
    job.close()


def offers() -> None:
    job, process = pair()
    process.close()
    with pytest.raises(OSError, match="Broken pipe"):
        job.offer(b"index")
    with pytest.raises(OSError, match="Broken pipe"):
        job.send(b"index")


def speaks() -> None:
    agent, sidecar = socket.socketpair()
    link = AgentSocket(agent)
    sidecar.close()
    with pytest.raises(LinkLost):
        link.send({"event": "hello"}, 0)
    with pytest.raises(LinkLost):
        link.send({"event": "facts"})
    link._bell_out.close()
    link.ring_bell()


def answers() -> None:
    one, other = socket.socketpair()
    other.close()
    with pytest.raises(BrokenPipeError):
        framing.send(one, {"do": "detach"})


@pytest.mark.parametrize("write", [offers, speaks, answers])
def test_a_write_that_nobody_hears_ends_no_process_that_has_sigpipe_at_its_default(
    write: Callable[[], None],
) -> None:
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            write()
        except BaseException:  # noqa: BLE001 - the status says so
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_sockets_of_a_job_that_has_set_a_timeout_for_all_wait_as_long_as_is_said() -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.001)
    try:
        job, process = pair()
    finally:
        socket.setdefaulttimeout(before)
    large = bytes(1 << 22)
    sender = threading.Thread(target=lambda: process.send(large))
    sender.start()
    assert job.receive(30) == large
    sender.join()
    for end in (job, process):
        end.close()
