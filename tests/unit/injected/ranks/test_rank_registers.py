"""What ranks put somewhere: the first stands, and who can't be asked is not waited for."""

from __future__ import annotations

import os
import threading
from types import ModuleType, SimpleNamespace

import pytest

from autobrrr.injected.ranks import job_store
from autobrrr.injected.ranks.job_store import JobStore, of_job
from autobrrr.injected.ranks.shared_log import RECORD_BYTES, NotThisMachine, RegisterLost, SharedLog
from autobrrr.injected.ranks.switch_protocol import plan_key
from support.simulated.stores import KeptInMemory


def store_in(kept: KeptInMemory, generation: str = "0") -> JobStore:
    return JobStore(lambda: kept, generation)


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


def test_all_see_more_records_than_are_read_at_once() -> None:
    one = SharedLog.create()
    other = SharedLog.open(one.address)
    for number in range(1000):
        one.put(plan_key(number), f"value {number}")
    assert other.get(plan_key(999)) == "value 999"
    assert other.plans() == 999
    one.leave()
    other.leave()


def test_threads_that_put_at_once_hear_the_same() -> None:
    one = SharedLog.create()
    ends = [one, *(SharedLog.open(one.address) for _ in range(3))]
    heard: list[list[str]] = [[] for _ in ends]

    def put(place: int) -> None:
        heard[place] = [ends[place % 2].put(str(number), str(place)) for number in range(300)]

    threads = [threading.Thread(target=put, args=(place,)) for place in range(len(ends))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert heard[0] == heard[1] == heard[2] == heard[3]
    assert len(heard[0]) == 300
    for end in ends:
        end.leave()


def test_a_log_that_has_gone_is_not_taken_for_another_file() -> None:
    one = SharedLog.create()
    address = one.address
    number = int(address.split("\t")[2])
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
    with pytest.raises(NotThisMachine):
        SharedLog.open("another machine\t1\t2\tabc")


def test_what_is_too_long_is_refused() -> None:
    one = SharedLog.create()
    with pytest.raises(RegisterLost, match="there is room"):
        one.put("1/plan", "x" * RECORD_BYTES)
    assert one.get("1/plan") is None
    one.leave()


def test_our_keys_go_when_we_leave_and_those_of_others_stay() -> None:
    kept = KeptInMemory()
    one, other = store_in(kept), store_in(kept)
    assert one.get("log") is None
    assert one.put("log", "mine") == "mine"
    assert other.put("log", "theirs") == "mine"
    assert other.put("log", "theirs", instead_of="mine") == "theirs"
    assert other.put("here", "yes") == "yes"
    one.leave()
    assert kept.kept == {"autobrrr/ranks/0/here": b"yes", "autobrrr/ranks/0/log": b"theirs"}
    other.leave()
    assert kept.kept == {}
    with pytest.raises(RegisterLost):
        other.get("log")


def test_a_launcher_that_starts_its_ranks_anew_finds_no_old_keys() -> None:
    kept = KeptInMemory()
    store_in(kept, "0").put("log", "before")
    assert store_in(kept, "1").get("log") is None


def test_a_value_that_is_too_large_is_refused() -> None:
    with pytest.raises(RegisterLost, match="larger than 4096 bytes"):
        store_in(KeptInMemory()).put("log", "x" * 5000)


def test_a_store_that_never_answers_is_dialled_some_times(monkeypatch: pytest.MonkeyPatch) -> None:
    over, dialled = threading.Event(), []

    class Stopped(KeptInMemory):
        def check(self, keys: list[str]) -> bool:
            return over.wait(60)

    def dial() -> Stopped:
        dialled.append(Stopped())
        return dialled[-1]

    monkeypatch.setattr(job_store, "ANSWER_S", 0.01)
    one = JobStore(dial)
    for _ in range(9):
        with pytest.raises(RegisterLost, match="answer"):
            one.get("log")
    assert len(dialled) == job_store.MOST_CONNECTIONS
    over.set()


def test_a_connection_that_breaks_is_made_anew() -> None:
    kept = KeptInMemory()

    class Broken(KeptInMemory):
        def check(self, keys: list[str]) -> bool:
            raise ConnectionResetError("broken pipe")

    connections = iter([Broken(), kept])
    one = JobStore(lambda: next(connections))
    with pytest.raises(RegisterLost, match="ConnectionResetError: broken pipe"):
        one.get("log")
    assert one.put("log", "mine") == "mine"


def test_a_job_without_a_group_has_no_store() -> None:
    with pytest.raises(RegisterLost, match="no process group"):
        of_job(ModuleType("torch"))
    torch = ModuleType("torch")
    torch.distributed = SimpleNamespace(  # type: ignore[attr-defined]
        is_available=lambda: True,
        is_initialized=lambda: True,
        distributed_c10d=SimpleNamespace(_get_default_store=object),
    )
    with pytest.raises(RegisterLost, match="no second connection"):
        of_job(torch).get("log")
