"""Why a side is slower: the phase that grew by most, and the line where steps stand longer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autobrrr.prove.slower_cause import LOOKS, Window, cause
from autobrrr.records import FrameSamples
from autobrrr.records.agent_records import FrameCount
from autobrrr.records.proof_records import SlowerCause

RECORDED = Path(__file__).resolve().parents[2] / "golden" / "slower_facts.jsonl"
# Of `benchmarks/speedups/text_job.py`, made slower in known ways; the windows were recorded on two cores.
# None: the steps of that run were not longer, or waited for a CPU as long as they were longer.
NAMED = {
    "collected": ("other", None),  # nothing is sampled while garbage is collected
    "no_worker": None,
    "read_each_step": ("other", "regressions.py:36 <listcomp>"),
    "slow_collate": ("data_wait", "regressions.py:127 <listcomp>"),
    "logged_each_step": ("other", "regressions.py:56 log"),
    "hook_left": ("forward", "regressions.py:79 seen"),
    "slow_update": ("optimizer", "regressions.py:178 step"),
    "needless_copies": ("other", "regressions.py:143 <listcomp>"),
    "double_numbers": ("backward", "text_job.py:120 update"),
    "slow_loss": None,
    "new_dependency": None,
    "one_thread": None,
}
PHASES = {"data_wait": 1e6, "forward": 2e6, "backward": 3e6, "optimizer": 1e6, "other": 1e6}


def recorded() -> dict[str, list[tuple[Window, Window]]]:
    """Windows of each planted regression: before, after."""

    def window(found: dict[str, Any]) -> Window:
        places = [
            FrameCount(where=where, phase=phase, in_loader=False, samples=samples)
            for where, phase, samples in found["places"]
        ]
        return Window(
            phases_ns={name: us * 1e3 for name, us in found["phases_us"].items()},
            frames=FrameSamples(samples=found["samples"], places=places),
            waited_ns=found["waited_us"] * 1e3,
            asked_samples=found["asked"],
        )

    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return {
        each["name"]: [(window(before), window(after)) for before, after in each["windows"]] for each in lines
    }


@pytest.fixture(scope="module")
def facts() -> dict[str, list[tuple[Window, Window]]]:
    return recorded()


@pytest.mark.parametrize("name", NAMED)
def test_a_planted_regression_is_named_rightly_or_not_at_all(
    facts: dict[str, list[tuple[Window, Window]]], name: str
) -> None:
    found = cause(facts[name])
    assert (None if found is None else (found.phase, found.place)) == NAMED[name]


@pytest.mark.parametrize("name", NAMED)
def test_two_runs_of_one_script_have_no_cause(
    facts: dict[str, list[tuple[Window, Window]]], name: str
) -> None:
    before = [window for window, _ in facts[name]]
    assert cause(list(zip(before[::2], before[1::2], strict=True))) is None
    assert cause(list(zip(before[1::2], before[::2], strict=True))) is None


def frames(**places: int) -> FrameSamples:
    counts = [
        FrameCount(where=f"train.py:{line} {name}", phase="other", in_loader=False, samples=count)
        for line, (name, count) in enumerate(places.items(), 10)
    ]
    return FrameSamples(samples=sum(places.values()), places=counts)


def compared(
    before: FrameSamples | None,
    after: FrameSamples | None,
    noise: float = 0.02,
    waited_ns: float = 0.0,
    **longer: float,
) -> SlowerCause | None:
    """Windows of both, each as slow as the machine is just then; phases of `after` are longer by so much."""
    draw = np.random.default_rng(0)

    def window(phases: dict[str, float], found: FrameSamples | None, waited_ns: float = 0.0) -> Window:
        slow = float(np.exp(draw.normal(0, noise)))
        slowed = {name: value * slow for name, value in phases.items()}
        return Window(phases_ns=slowed, frames=found, waited_ns=waited_ns)

    slower = {name: value + longer.get(name, 0.0) for name, value in PHASES.items()}
    return cause([(window(PHASES, before), window(slower, after, waited_ns)) for _ in range(LOOKS[0])])


def test_the_phase_that_grew_and_the_line_that_takes_longer_are_named() -> None:
    found = compared(frames(forward=100, log=0), frames(init=0, forward=100, log=100), other=8e6)
    assert (found.phase, found.place) == ("other", "train.py:12 log")
    assert found.phases_ns["other"] == pytest.approx([1e6, 9e6], rel=0.1)
    assert found.place_ns == pytest.approx(8e6, rel=0.1)


def test_a_line_that_explains_little_is_not_named() -> None:
    many = frames(**dict.fromkeys("abcdefghij", 20))
    found = compared(many, many, backward=2e6)
    assert (found.phase, found.place) == ("backward", None)


def test_a_line_that_stands_in_another_phase_is_not_named() -> None:
    found = compared(frames(update=100), frames(update=100, log=100), forward=8e6)
    assert (found.phase, found.place) == ("forward", None)


def test_a_line_where_late_looks_fall_is_not_named() -> None:
    seen = Window(phases_ns=PHASES, frames=frames(update=120), asked_samples=125)
    after = Window(
        phases_ns={**PHASES, "other": 11e6}, frames=frames(update=50, released=32), asked_samples=125
    )
    found = cause([(seen, after)] * LOOKS[0])
    assert (found.phase, found.place) == ("other", None)


def test_windows_that_do_not_agree_say_nothing() -> None:
    assert compared(frames(a=100), frames(a=50, b=50), noise=1.0, forward=1e6) is None


def test_a_phase_that_grew_by_less_than_others_took_of_the_cpu_is_not_blamed() -> None:
    grown = {"forward": 2e6, "backward": 3e6}
    assert compared(None, None, waited_ns=4e6, **grown) is None
    assert compared(None, None, waited_ns=4e6, backward=5e6) is None  # what is left is not clear
    found = compared(None, None, waited_ns=1e6, **grown)
    assert found.phase == "backward"


def test_a_side_that_is_not_slower_has_no_cause() -> None:
    assert compared(frames(a=100), frames(a=100)) is None
    assert compared(frames(a=100), frames(a=100), forward=-1e6) is None


def test_without_phases_nothing_is_said() -> None:
    assert cause([(Window(phases_ns={}, frames=None), Window(phases_ns=PHASES, frames=None))] * 6) is None


def test_a_window_whose_stacks_could_not_be_taken_names_no_place() -> None:
    longer = {**PHASES, "other": 9e6}
    pairs = [
        (
            Window(phases_ns=PHASES, frames=frames(forward=100), asked_samples=125),
            Window(phases_ns=longer, frames=frames(forward=2, after_collection=samples), asked_samples=125),
        )
        for samples in (18, 19, 18, 19, 18, 19)
    ]
    found = cause(pairs)
    assert (found.phase, found.place) == ("other", None)


@pytest.mark.parametrize("after", [None, frames(a=4, b=5)])
def test_without_enough_stacks_the_phase_is_still_said(after: FrameSamples | None) -> None:
    found = compared(frames(a=100), after, forward=2e6)
    assert (found.phase, found.place) == ("forward", None)
