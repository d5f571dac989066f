"""A step's time, told apart by what happens in it. Times are small whole numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.phases.phase_clock import BACKWARD, FORWARD, NAMES, OTHER, PhaseClock

ROOT, SECOND = 1, 2
DATA_WAIT, OPTIMIZER = map(NAMES.index, ("data_wait", "optimizer"))


def spent(clock: PhaseClock, now: int) -> dict[str, int]:
    return {name: ns for name, ns in zip(NAMES, clock.finish(now), strict=True) if ns}


def forward(clock: PhaseClock, start: int, end: int, root: int = ROOT) -> None:
    clock.root_enter(root, start, grad=True)
    clock.root_exit(end, grad=True)


def backward(clock: PhaseClock, start: int, end: int) -> None:
    clock.backward_enter(start)
    clock.backward_exit(end)


def load(clock: PhaseClock, start: int, end: int) -> None:
    clock.aside_enter(DATA_WAIT, start)
    clock.aside_exit(DATA_WAIT, end)


def zero(clock: PhaseClock, start: int, end: int) -> None:
    clock.aside_enter(OPTIMIZER, start)
    clock.aside_exit(OPTIMIZER, end)


@pytest.fixture
def clock() -> PhaseClock:
    made = PhaseClock()
    made.begin(0)
    return made


def test_a_plain_step(clock: PhaseClock) -> None:
    load(clock, 1, 11)
    zero(clock, 12, 14)
    forward(clock, 20, 50)
    backward(clock, 60, 90)  # the loss, from 50 to 60, is forward
    clock.update_enter(93)
    assert spent(clock, 100) == {
        "other": 1 + 1 + 6 + 3,
        "data_wait": 10,
        "forward": 40,
        "backward": 30,
        "optimizer": 2 + 7,
    }
    assert clock.backwards == 1


def test_modules_called_while_a_batch_is_loaded_are_loading(clock: PhaseClock) -> None:
    forward(clock, 0, 5, SECOND)
    clock.aside_enter(DATA_WAIT, 5)
    for at in (6, 8):  # transforms of two samples
        assert not clock.wants_tokens(ROOT, grad=True)
        forward(clock, at, at + 1)
    assert clock.loading
    clock.aside_exit(DATA_WAIT, 20)
    forward(clock, 20, 30, SECOND)
    backward(clock, 30, 40)
    assert spent(clock, 40) == {"data_wait": 15, "forward": 15, "backward": 10}
    assert not clock.quiet_calls


def test_what_lies_between_calls_of_the_same_root_is_the_users_own(clock: PhaseClock) -> None:
    for at in (0, 10, 20):  # a rollout: policy, environment, policy, environment …
        forward(clock, at, at + 2)
    backward(clock, 24, 30)
    assert spent(clock, 30) == {"other": 16, "forward": 2 + 2 + 4, "backward": 6}


def test_a_traced_step_keeps_when_its_phases_began_and_what_lay_between_two_networks_calls(
    clock: PhaseClock,
) -> None:
    clock.traced = True
    forward(clock, 1, 2)
    forward(clock, 8, 9, SECOND)
    backward(clock, 10, 12)
    assert clock.moves == [
        *((1, FORWARD), (2, FORWARD), (8, FORWARD), (9, FORWARD), (10, BACKWARD), (12, OTHER))
    ]
    assert clock.pauses == [(2, 8), (9, 10)]
    assert spent(clock, 12) == {"other": 1, "forward": 9, "backward": 2}


def test_what_comes_before_the_same_network_is_called_again_is_other_and_no_pause(clock: PhaseClock) -> None:
    clock.traced = True
    for at in (0, 5):
        forward(clock, at, at + 1)
    clock.backward_enter(6)
    assert clock.pauses == [(6, 6)]


def test_a_closure_that_runs_inside_the_update(clock: PhaseClock) -> None:
    clock.update_enter(0)  # a trainer calls forward and backward inside step
    zero(clock, 2, 4)
    forward(clock, 6, 10)
    backward(clock, 12, 20)
    assert spent(clock, 25) == {"other": 4, "forward": 6, "backward": 8, "optimizer": 2 + 5}


def test_forward_computed_again_by_checkpointing_is_backward(clock: PhaseClock) -> None:
    clock.backward_enter(0)
    clock.root_enter(ROOT, 2, grad=True)
    clock.backward_enter(3)  # reentrant
    clock.backward_exit(6)
    clock.root_exit(7, grad=True)
    clock.backward_exit(10)
    assert spent(clock, 10) == {"backward": 10}
    assert clock.backwards == 1


EVENTS = (
    "root",
    "root_quiet",
    "leave",
    "backward",
    "backward_end",
    "load",
    "loaded",
    "update",
    "updated",
    "zero",
    "zeroed",
)


@given(
    st.lists(
        st.tuples(st.sampled_from(EVENTS), st.integers(1, 50), st.sampled_from((ROOT, SECOND))), max_size=40
    )
)
def test_whatever_happens_the_parts_sum_to_the_step(events: list[tuple[str, int, int]]) -> None:
    clock = PhaseClock()
    clock.begin(0)
    now = 0
    for event, after, root in events:
        now += after
        {
            "root": lambda: clock.root_enter(root, now, grad=True),  # noqa: B023
            "root_quiet": lambda: clock.root_enter(root, now, grad=False),  # noqa: B023
            "leave": lambda: clock.root_exit(now, grad=True),  # noqa: B023
            "backward": lambda: clock.backward_enter(now),  # noqa: B023
            "backward_end": lambda: clock.backward_exit(now),  # noqa: B023
            "load": lambda: clock.aside_enter(DATA_WAIT, now),  # noqa: B023
            "loaded": lambda: clock.aside_exit(DATA_WAIT, now),  # noqa: B023
            "update": lambda: clock.update_enter(now),  # noqa: B023
            "updated": lambda: clock.update_exit(now),  # noqa: B023
            "zero": lambda: clock.aside_enter(OPTIMIZER, now),  # noqa: B023
            "zeroed": lambda: clock.aside_exit(OPTIMIZER, now),  # noqa: B023
        }[event]()
    parts = clock.finish(now + 3)
    assert sum(parts) == now + 3
    assert all(part >= 0 for part in parts)
