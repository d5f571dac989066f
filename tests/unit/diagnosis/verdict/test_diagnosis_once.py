"""What is derived of the measurements is derived once a judgement."""

from __future__ import annotations

import pytest

from autobrrr.diagnosis.measurements import Measurements, once
from autobrrr.diagnosis.models import shares, traced_kernels
from autobrrr.diagnosis.verdict.judge import judge
from support.judged import diagnosis


def test_it_is_derived_once_of_one_thing_and_anew_of_another() -> None:
    seen: list[Measurements] = []

    @once
    def derive(measured: Measurements) -> int:
        seen.append(measured)
        return len(seen)

    one, other = diagnosis.tiny_mlp(), diagnosis.tiny_mlp()
    assert [derive(one), derive(one), derive(other), derive(one)] == [1, 1, 2, 3]


def test_what_fails_is_not_kept() -> None:
    @once
    def derive(measured: Measurements) -> int:
        raise ValueError("odd")

    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            derive(diagnosis.tiny_mlp())


def test_a_judgement_divides_the_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"shares": 0, "traced": 0}

    def counting(module: object, name: str, key: str) -> None:
        real = getattr(module, name)

        def counted(*args: object) -> object:
            asked[key] += 1
            return real(*args)

        monkeypatch.setattr(module, name, counted)

    counting(shares, "_phase_times", "shares")
    counting(traced_kernels, "untrusted", "traced")
    judge(diagnosis.big_matmul())
    assert asked == {"shares": 1, "traced": 1}
