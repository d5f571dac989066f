"""A tuning that is told to end leaves nobody waiting for it."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import pytest

from autobrrr.cli.verbs.tune import _stopped_in_order


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_tuning_that_is_told_to_end_does_so_as_by_ctrl_c(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), _stopped_in_order():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_closed_terminal_that_is_to_be_ignored_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _stopped_in_order():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_closes_says_so_twice_and_ends_it_once() -> None:
    before, heard = signal.signal(signal.SIGHUP, signal.SIG_DFL), []

    def end() -> None:
        signal.raise_signal(signal.SIGHUP)
        heard.append("other machines")

    def stopped() -> None:
        with _stopped_in_order(), ExitStack() as sessions:
            sessions.callback(end)
            signal.raise_signal(signal.SIGHUP)

    try:
        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert heard
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
