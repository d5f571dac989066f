"""Filters of system calls, run as the kernel runs them."""

from __future__ import annotations

import pytest

from autobrrr.attach.ptrace.deadly_calls import CALLS, is_deadly

ALLOW, KILL, TRAP, REFUSE = 0x7FFF0000, 0x80000000, 0x00030000, 0x00050001
LOAD, SAME, AND, AND_ANY, ABOVE, JUMP, RETURN = 0x20, 0x15, 0x54, 0x45, 0x25, 0x05, 0x06
NUMBER, FIRST = 0, 16  # places in what a filter is given

Code = list[tuple[int, ...]]


def only(number: int, action: int) -> Code:
    return [(LOAD, 0, 0, NUMBER), (SAME, 0, 1, number), (RETURN, 0, 0, action), (RETURN, 0, 0, ALLOW)]


@pytest.mark.parametrize(("action", "deadly"), [(KILL, True), (0, True), (TRAP, True), (REFUSE, False)])
def test_a_filter_that_kills_is_told_from_one_that_refuses(action: int, deadly: bool) -> None:
    assert is_deadly(only(41, action), CALLS["socket"]) is deadly
    assert not is_deadly(only(41, action), CALLS["connect"])


def test_arguments_count() -> None:
    unix: Code = [
        (LOAD, 0, 0, FIRST),
        (AND, 0, 0, 0xFF),
        (ABOVE, 1, 0, 1),  # any family but AF_UNIX
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL),
    ]
    assert not is_deadly(unix, CALLS["socket"])
    assert is_deadly(unix, (41, 2, 1))
    flags: Code = [(LOAD, 0, 0, FIRST), (AND_ANY, 0, 1, 0x80), (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)]
    assert is_deadly(flags, (56, 0x180))
    assert not is_deadly(flags, (56, 0x100))


def test_a_filter_that_leads_nowhere_is_not_followed_for_ever() -> None:
    assert is_deadly([(JUMP, 0, 0, 0xFFFFFFFF)], CALLS["socket"])
    assert is_deadly([], CALLS["socket"])


@pytest.mark.parametrize("name", ["clone3", "socketpair", "sendto", "mprotect", "setpriority"])
def test_what_the_agent_calls_besides_sockets_is_looked_at(name: str) -> None:
    code = only(CALLS[name][0], KILL)
    assert [each for each in CALLS if is_deadly(code, CALLS[each])] == [name]
