"""Which generators on sampled stacks are what the training loop reads its batches from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import CodeType

from autobrrr.injected.measure.code_sites import CallPaths, feeds_in


def batches() -> Iterator[int]:
    yield 1


def trains_inside() -> Iterator[int]:
    yield 2


def loop() -> None:
    """The training loop."""


def helper() -> None:
    """Some work of the loop's."""


def paths(*stacks: tuple[str, tuple[CodeType, ...]]) -> CallPaths:
    return Counter({(phase, tuple((code, 0) for code in codes)): 1 for phase, codes in stacks})


LOOP, HELPER = loop.__code__, helper.__code__
BATCHES, TRAINS = batches.__code__, trains_inside.__code__


def test_a_generator_that_the_loop_reads_from_feeds_it() -> None:
    assert feeds_in(paths(("other", (BATCHES, LOOP)), ("forward", (LOOP,)))) == {BATCHES}


def test_a_generator_that_a_helper_reads_from_is_the_helpers_work() -> None:
    assert not feeds_in(paths(("other", (BATCHES, HELPER, LOOP)), ("forward", (LOOP,))))


def test_a_generator_in_which_the_job_trains_feeds_nothing() -> None:
    stacks = (("other", (TRAINS, LOOP)), ("backward", (TRAINS, LOOP)))
    assert not feeds_in(paths(*stacks))


def test_a_generator_expression_is_the_loops_own_work() -> None:
    expression = (each for each in ()).gi_code
    assert not feeds_in(paths(("other", (expression, LOOP)), ("forward", (LOOP,))))


def test_without_a_stack_of_training_nothing_is_known() -> None:
    assert not feeds_in(paths(("other", (BATCHES, LOOP))))
