"""Precision, layout, attention and recomputation on live modules: bits, strides, copies, and refusals."""

import copy
import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from autobrrr.agent.live_torch.module_call_slot import SLOT
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.model_calls.call_layers import repeated_blocks
from autobrrr.agent.remedies.registry import Refused, Undo
from support.agent.remedies import UNDONE, Training, loop_of, picture, training
from support.agent.remedy_models import Residual

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def precision_as_before(one_thread: None) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def switched_on(name: str, loop: Training, **options: object) -> Undo:
    remedy = REGISTRY[name]
    return remedy.apply(loop.job, remedy.option_values(options))


def weights(loop: Training, steps: int) -> list[torch.Tensor]:
    torch.manual_seed(5)
    loop.train(steps)
    return [each.detach().clone() for each in loop.model.parameters()]


def strides(loop: Training) -> list[object]:
    kept = [value for state in loop.optimizer.state.values() for value in state.values()]
    return [each.stride() for each in (*loop.model.parameters(), *kept)]


def test_convolution_weights_are_laid_out_and_back_with_their_values() -> None:
    loop = training(model="images")
    weight = loop.model[1].weight
    before = weight.detach().clone()
    undo = switched_on("layout.channels_last", loop)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    loop.train(2)
    undo()
    assert weight.is_contiguous()
    fresh = training(model="images")
    switched_on("layout.channels_last", fresh)()
    assert torch.equal(fresh.model[1].weight, before)
    with pytest.raises(Refused, match="no 2-D convolution"):
        switched_on("layout.channels_last", training())
    fresh.model.share_memory()
    with pytest.raises(Refused, match="memory that other processes write"):
        switched_on("layout.channels_last", fresh)
    assert all(each.is_shared() for each in fresh.model.parameters())


class DoublesHalf(nn.Linear):
    """Shows in its result which type it was computed in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return 2 * out if out.dtype == torch.bfloat16 else out


def test_autocast_computes_in_bfloat16_and_hands_out_float32() -> None:
    loop = loop_of(lambda: nn.Sequential(nn.Linear(16, 16), nn.ReLU(), DoublesHalf(16, 4)))
    x = torch.randn(4, 16)
    exact = loop.model(x)
    undo = switched_on("precision.autocast_bf16", loop)
    loop.model(x)
    rough = loop.model(x)
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, 2 * exact)
    torch.testing.assert_close(rough, 2 * exact, rtol=0.05, atol=0.05)
    twin = copy.deepcopy(loop.model)
    assert torch.equal(loop.model.eval()(x), exact)
    undo()
    assert torch.equal(loop.model(x), exact)
    assert torch.equal(twin(x), exact)
    assert SLOT not in vars(loop.model)


def test_autocast_leaves_a_job_alone_that_has_its_own() -> None:
    loop = training()
    undo = switched_on("precision.autocast_bf16", loop)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loop.model(torch.randn(4, 16)).dtype == torch.bfloat16
    undo()
    half = training(dtype=torch.bfloat16)
    with pytest.raises(Refused, match="half precision already"):
        switched_on("precision.autocast_bf16", half)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("precision.autocast_bf16", "plain"),
        ("layout.channels_last", "images"),
        ("recompute.checkpoint", "blocks"),
    ],
)
def test_a_model_that_the_job_gives_up_goes_while_the_remedy_is_on(name: str, model: str) -> None:
    loop = training(model=model)
    undo = switched_on(name, loop)
    loop.train(2)
    gone = weakref.ref(loop.model)
    del loop
    gc.collect()
    assert gone() is None
    undo()


def test_recomputed_blocks_train_to_the_same_bits_with_dropout_and_keep_less() -> None:
    plain, cured = training(model="blocks"), training(model="blocks")
    undo = switched_on("recompute.checkpoint", cured)
    kept = {}
    for name, loop in (("plain", plain), ("cured", cured)):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            result = loop.model(torch.randn(512, 16)).sum()
        kept[name] = sum(each.self_cpu_memory_usage for each in seen.events())
        result.backward()
    assert kept["cured"] < kept["plain"] / 2
    assert all(map(torch.equal, weights(cured, 6), weights(plain, 6)))
    assert picture(cured)["random"] == picture(plain)["random"]
    undo()
    assert picture(cured)["modules"] == picture(plain)["modules"]


def test_what_the_job_compiles_while_a_remedy_is_on_stays_the_jobs() -> None:
    loop = training(model="blocks")
    undo = switched_on("recompute.checkpoint", loop)
    block = loop.model[0]  # type: ignore[index]
    block.compile(backend="eager")
    theirs = vars(block)[SLOT]
    loop.train(1)
    undo()
    assert vars(block)[SLOT] is theirs
    assert SLOT not in vars(loop.model[1])  # type: ignore[index]
    with pytest.raises(Refused, match="compiled already"):
        switched_on("recompute.checkpoint", loop)
    assert vars(block)[SLOT] is theirs


def test_blocks_whose_second_forward_would_count_are_refused() -> None:
    norms = loop_of(
        lambda: nn.Sequential(
            *(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)) for _ in range(2)), nn.Linear(16, 4)
        )
    )
    with pytest.raises(Refused, match="BatchNorm1d would count every batch twice"):
        switched_on("recompute.checkpoint", norms)


def test_repeated_blocks_are_the_outermost_ones_of_one_shape() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.ModuleList(nn.Sequential(Residual(16), Residual(16)) for _ in range(3))
            self.tail = nn.ModuleList([Residual(16), Residual(8)])
            self.heads = nn.ModuleList(nn.Linear(16, 2) for _ in range(4))

    net = Net()
    assert repeated_blocks([net]) == list(net.encoder)  # type: ignore[list-item]


def test_the_kernel_of_attention_is_switched() -> None:
    loop = training(model="attention")
    before = picture(loop)["modes"]
    undo = switched_on("attention.sdpa", loop, kernel="math")
    assert not torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.math_sdp_enabled()
    loop.train(1)
    undo()
    assert picture(loop)["modes"] == before
    with pytest.raises(Refused, match="can't prefer the kernel cudnn on a CPU"):
        switched_on("attention.sdpa", loop, kernel="cudnn")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", [name for name, each in UNDONE.items() if each.unproven])
def test_what_needs_a_gpu_is_refused_without_one(name: str) -> None:
    loop = training()
    before = picture(loop)
    with pytest.raises(Refused, match="CUDA"):
        switched_on(name, loop)
    assert picture(loop) == before
