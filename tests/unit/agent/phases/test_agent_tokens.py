"""Tokens of a step: what its model was called with, else what was loaded; by shapes, no tensor is read."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from autobrrr.agent.live_torch.job_signals import Ours
from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.phases.batch_shapes import token_count
from autobrrr.agent.phases.loader_watch import LoaderWatch, make_next
from autobrrr.agent.phases.phase_clock import PhaseClock
from autobrrr.agent.phases.phase_hooks import make_root
from support.agent import fail


def shaped(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ((shaped(8, 64),), 512),
        ({"attention_mask": shaped(8, 64, dtype=torch.bool), "input_ids": shaped(8, 32)}, 256),
        ([[shaped(8, 3, 32, 32, dtype=torch.float32), shaped(8)], {"text": (shaped(8, 7),)}], 56),
        ((shaped(8, 64, dtype=torch.float32), shaped(8)), -1),
        ((shaped(8, 64, dtype=torch.complex64),), -1),
        ((np.zeros((8, 64), dtype=np.int64),), -1),  # whoever computes on it makes a tensor
        ((shaped(8, 0), shaped(8, 4)), 0),
        ("text", -1),
        (None, -1),
    ],
)
def test_tokens_are_the_elements_of_the_first_batch_by_length_of_whole_numbers(
    batch: object, count: int
) -> None:
    assert token_count(batch) == count


@pytest.fixture
def clock() -> PhaseClock:
    made = PhaseClock()
    made.begin(0)
    made.on, made.owner = True, threading.get_ident()
    return made


def root(clock: PhaseClock, *, grad: bool = True) -> Callable[..., None]:
    """Calls a root module as torch does: its hooks, nothing in between."""
    module = object()
    enter, leave = make_root(module, clock, lambda: grad, Ours(Exception, told=fail), lambda: None)

    def call(*args: object, inside: Callable[[], None] = lambda: None, **kwargs: object) -> None:
        enter(module, args, kwargs)
        inside()
        leave(module, args, None)

    call.module = module  # type: ignore[attr-defined]  # its id is its name: it must live
    return call


def loads(clock: PhaseClock, *batches: object) -> None:
    following = make_next(lambda _: next(waiting), clock, LoaderWatch(Job(torch)), Ours(Exception, told=fail))
    waiting = iter(batches)
    iterator = SimpleIterator()
    for _ in batches:
        following(iterator)


class SimpleIterator:
    """Of a loader."""


def test_all_batches_of_an_accumulated_step_count(clock: PhaseClock) -> None:
    model = root(clock)
    for length in (64, 32, 16):
        model(shaped(8, length))
    assert clock.tokens == 8 * (64 + 32 + 16)
    clock.begin(1)
    assert clock.tokens == -1


def test_what_the_model_is_called_with_counts_before_what_was_loaded(clock: PhaseClock) -> None:
    loads(clock, (shaped(8, 100),), (shaped(8, 100),))
    assert clock.tokens == 1600
    root(clock)(shaped(8, 64))  # cut short before the call
    assert clock.tokens == 512


def test_texts_of_a_call_are_kept_where_no_loader_shows_them(clock: PhaseClock) -> None:
    batch, model = torch.arange(8).view(2, 4), root(clock)
    model(batch)
    loads(clock, (shaped(8, 64),))
    model(batch)
    assert list(clock.texts) == [batch]


def test_an_evaluation_and_what_backward_computes_again_do_not_count(clock: PhaseClock) -> None:
    root(clock, grad=False)(shaped(8, 64))
    assert clock.tokens == -1
    model = root(clock)
    model(shaped(8, 64))
    clock.backward_enter(5)
    model(shaped(8, 64))
    clock.backward_exit(6)
    assert clock.tokens == 512
