"""What ranks put somewhere: the first stands, and who can't be asked is not waited for."""

import os

import pytest

from autobrrr.agent.ranks.shared_log import RegisterLost, SharedLog


def test_what_is_put_first_stands_for_all() -> None:
    one = SharedLog.create()
    other = SharedLog.open(one.address)
    assert other.get("1/outcome") is None
    assert one.put("1/outcome", "go") == "go"
    assert other.put("1/outcome", "drop") == "go"
    assert other.put("2/outcome", "drop") == "drop"
    assert one.put("2/outcome", "go") == "drop"
    one.leave()
    assert other.get("1/outcome") == "go"
    other.leave()


def test_a_log_that_has_gone_is_not_taken_for_another_file() -> None:
    one = SharedLog.create()
    address = one.address
    number = int(address.split("|")[1])
    one.leave()
    with pytest.raises(RegisterLost, match="gone"):
        SharedLog.open(address)
    reader, writer = os.pipe()
    os.dup2(reader, number)
    with pytest.raises(RegisterLost):
        SharedLog.open(address)
    for fd in {reader, writer, number}:
        os.close(fd)
    with pytest.raises(RegisterLost):
        one.get("anything")
    with pytest.raises(RegisterLost, match="no address"):
        SharedLog.open("nonsense")


def test_ranks_meet_at_the_log_of_whichever_rank_is_asked_first() -> None:
    one = SharedLog.create()
    other = SharedLog.open(one.address)
    one.leave()
    third = SharedLog.open(other.address)
    assert third.put("1/plan", "x") == other.get("1/plan") == "x"
    assert third.is_at(other.address)
    assert not third.is_at(SharedLog.create().address)
    other.leave()
    third.leave()


def test_what_a_killed_rank_has_put_there_in_part_is_passed_over() -> None:
    log = SharedLog.create()
    os.write(log._fd, b'\n["1/outcome", "dr')
    assert log.put("1/outcome", "go") == "go"
    assert SharedLog.open(log.address).get("1/outcome") == "go"
    log.leave()
