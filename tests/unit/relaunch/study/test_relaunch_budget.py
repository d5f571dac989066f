"""A study keeps back the time that its end will take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Space
from autobrrr.relaunch.study import study
from autobrrr.relaunch.study.study import CLOSING_STARTS, KEPT_BACK, Study
from support.relaunch import parameter

SPACE = Space(parameters=(parameter("--workers", 2),))


def has_time(
    monkeypatch: pytest.MonkeyPatch, trials: int, whole_s: float, *took_s: float, more_s: float = 0.0
) -> bool:
    """Whether a study that has made trials, one after the other, has time for so many more."""
    monkeypatch.setattr(study, "time", SimpleNamespace(perf_counter_ns=lambda: 0))
    found = Study(stable=None, space=SPACE, search=Search(SPACE), budget_ns=int(whole_s * 1e9))  # type: ignore[arg-type]
    found._began_ns = -int((sum(took_s) + more_s) * 1e9)
    found._took_ns = [int(each * 1e9) for each in took_s]
    return found.has_time_for(trials)


def test_what_ablation_and_fresh_starts_will_take_is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_time(monkeypatch, 1 + KEPT_BACK, 105, 15)  # 15 + 15 + 5 x 15
    assert not has_time(monkeypatch, 1 + KEPT_BACK, 105, 15, more_s=1)
    assert has_time(monkeypatch, 1 + CLOSING_STARTS, 60, 10, 10)
    assert not has_time(monkeypatch, 1 + CLOSING_STARTS, 60, 10, 10, 10)


def test_a_trial_that_took_long_once_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_time(monkeypatch, 1 + KEPT_BACK, 150, 5, 100, 5)
