"""An agent claims the process for its session; another waits for a moment, then gives up."""

import os
import threading

import pytest

from autobrrr.agent.entry import Occupied, claimed


def test_a_second_session_is_refused_and_a_later_one_is_not() -> None:
    with claimed({"token": "a"}):
        with pytest.raises(Occupied), claimed({"token": "a"}, patience_s=0):
            pytest.fail("two sessions at once")
        with pytest.raises(Occupied), claimed({"token": "b"}, patience_s=0):
            pytest.fail("the refused one has ended the claim of the first")
    with claimed({"token": "c"}, patience_s=0):
        pass


def test_a_claim_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), claimed({}):
        raise ZeroDivisionError
    with claimed({}, patience_s=0):
        pass


def test_one_that_is_leaving_is_waited_for() -> None:
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with claimed({}):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.05, leave.set).start()
    with claimed({}, patience_s=10):
        pass
    thread.join()


def test_a_child_that_was_forked_with_a_claim_is_free() -> None:
    with claimed({}):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with claimed({}, patience_s=0):
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
