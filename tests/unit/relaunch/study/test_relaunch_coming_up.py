"""Two trials come up at one time; while one settles, the other stands still."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from autobrrr.relaunch.study.timed_turns import settle_in_turn


class Trial:
    """Comes up after so many looks; says what was done with it."""

    def __init__(self, name: str, looks: int, said: list[str], *, ends: bool = False) -> None:
        self.name, self.looks, self.said, self.ends = name, looks, said, ends
        self.steps = SimpleNamespace(count=0)
        self.ending: str | None = None
        self.runs = True
        self.warm_up: Callable[[object], bool]

    def look(self) -> None:
        assert self.runs
        self.looks -= 1
        if self.looks <= 0:
            self.steps.count, self.ending = 1, "crash" if self.ends else None

    def pause(self) -> None:
        self.runs = False
        self.said.append(f"{self.name} stands")

    def resume(self) -> None:
        self.runs = True
        self.said.append(f"{self.name} runs")


def come_up(*trials: Trial, settles: bool = True) -> bool:
    for trial in trials:

        def settle(on_look: object, trial: Trial = trial) -> bool:
            assert [each.name for each in trials if each.runs] == [trial.name]
            return settles

        trial.warm_up = settle
    return settle_in_turn(trials, sleep=lambda seconds: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 3), (1, 1)])
def test_whoever_is_up_first_waits_and_none_settles_beside_another(first: int, second: int) -> None:
    said: list[str] = []
    assert come_up(Trial("a", first, said), Trial("b", second, said))
    assert sorted(said[:2]) == ["a stands", "b stands"]
    assert said[2:] == ["a runs", "a stands", "b runs", "b stands"]


def test_one_that_ends_ends_it() -> None:
    said: list[str] = []
    assert not come_up(Trial("a", 1, said), Trial("b", 2, said, ends=True))
    assert said == ["a stands"]
    assert not come_up(Trial("a", 1, said), Trial("b", 1, said), settles=False)
