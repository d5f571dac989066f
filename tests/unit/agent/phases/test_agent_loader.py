"""The samples of a step are those of the batch that the loader returns, whatever ran while it was made."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autobrrr.agent.live_torch.job_signals import ANY
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.phases import batch_shapes, loader_watch
from autobrrr.agent.wire import ring_layout


@pytest.mark.parametrize(("before", "after"), [(-1, 64), (32, 32)])
def test_a_transform_that_is_a_module_is_not_taken_for_the_batch(before: int, after: int) -> None:
    phases = SimpleNamespace(
        on=True,
        samples=before,
        hears=True,
        aside_enter=lambda phase, now_ns: None,
        aside_exit=lambda phase, now_ns: None,
        tokens_loaded=lambda count: None,
    )

    def fetch(_: object) -> object:
        if phases.samples < 0:
            phases.samples = 1  # as the hook of a root module does for one image
        return torch.empty(64, 1, 28, 28, device="meta")

    watch = SimpleNamespace(saw=lambda iterator: None, took=lambda iterator: None)
    following = loader_watch.make_next(fetch, phases, watch, ANY)  # type: ignore[arg-type]
    following(object())
    assert phases.samples == after


def test_a_step_in_which_training_begins_an_epoch_is_marked_and_one_with_an_evaluation_is_not(
    loop: TrainLoop,
) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    optimizer.step()
    held_out = DataLoader(TensorDataset(torch.zeros(2)))
    marks = []
    for _ in range(2):
        for number, _ in enumerate(DataLoader(TensorDataset(torch.zeros(4)))):
            if number == 1:
                list(held_out)
            if number == 2:
                with torch.no_grad():
                    list(held_out)
            marks.append(bool(loop.hot.flags & ring_layout.EPOCH))
            optimizer.step()
    assert marks == [True, False, False, False] * 2
    assert loop.job.loaders == [held_out]
    assert loop.job.iterator is None


class Listed(DataLoader[int]):
    """Its iterator takes no weak reference."""

    def _get_iterator(self) -> object:
        return iter([1, 2])


def test_a_loader_with_an_iterator_of_its_own_is_read_as_without_us(loop: TrainLoop) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.0).step()
    assert list(Listed([1, 2])) == [1, 2]
    assert loop.loader.is_unknown()


def test_a_batch_is_as_large_as_what_it_holds() -> None:
    batch = {"x": torch.zeros(2, 8), "y": [torch.zeros(4, dtype=torch.int64), "text"]}
    assert batch_shapes.byte_count(batch) == 64 + 32
    unlike = torch.eye(4).to_sparse(), torch.nested.nested_tensor([torch.ones(2), torch.ones(4)])
    assert batch_shapes.byte_count([*unlike, torch.ones(2)]) == unlike[1].nbytes + 8
