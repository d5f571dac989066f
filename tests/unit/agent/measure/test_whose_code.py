"""Whose code stands on sampled stacks: what feeds the training loop, a framework, torch, the user's own."""

from collections import Counter
from collections.abc import Iterator
from types import CodeType

import pytest

from autobrrr.agent.measure.code_sites import CallPaths, feeds_in, sites_of_the_loop
from autobrrr.agent.measure.stack_sampler import in_library


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


FOREIGN = ("/usr/lib/python3/",)


def code_of(file: str) -> CodeType:
    return compile("0", f"/usr/lib/python3/{file}", "exec")


TRAINER = code_of("site-packages/transformers/trainer.py")


def test_one_call_that_does_all_of_the_training_is_the_loops_site() -> None:
    stacks = paths(("other", (LOOP,)), ("forward", (HELPER, LOOP)), ("backward", (LOOP,)))
    assert sites_of_the_loop(stacks, FOREIGN) == {(LOOP, 0)}
    assert in_library(((LOOP, 0),), TRAINER, {(LOOP, 0)}, FOREIGN)


def test_a_loop_of_the_users_own_has_no_one_site() -> None:
    stacks = Counter({("forward", ((LOOP, 2),)): 1, ("other", ((LOOP, 4),)): 1})
    assert not sites_of_the_loop(stacks, FOREIGN)
    assert not in_library(((LOOP, 4),), TRAINER, set(), FOREIGN)


@pytest.mark.parametrize(
    ("file", "gets_there"),
    [
        ("_functorch/vmap.py", True),
        ("nn/functional.py", True),
        ("_tensor.py", True),
        ("_tensor_str.py", False),
        ("utils/data/dataloader.py", False),
        ("nn/parallel/distributed.py", False),
    ],
)
def test_torch_gets_to_its_operators_in_some_of_its_code(file: str, gets_there: bool) -> None:
    assert in_library(((HELPER, 0),), code_of(f"dist-packages/torch/{file}"), set(), FOREIGN) is gets_there
