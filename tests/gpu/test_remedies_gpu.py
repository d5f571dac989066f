"""What the remedies for a GPU promise, on one: their class, results that stay, an undo to the last flag.

The contract suite runs them there as well. Until this has run on a device they count as unproven.
"""

import pytest
import torch

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused, Undo, WatchedUndo
from support.agent.remedies import Training, picture, training

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.usefixtures("first_order")]

COMPILED = ("compile.default", "compile.reduce_overhead", "compile.max_autotune")


def switched_on(name: str, loop: Training, **options: object) -> Undo:
    remedy = REGISTRY[name]
    return remedy.apply(loop.job, remedy.option_values(options))


def accumulated(loop: Training, steps: int) -> list[torch.Tensor]:
    """Train with two backwards a step, and hold on to every result until the end."""
    torch.manual_seed(5)
    results = []
    for _ in range(steps):
        loop.optimizer.zero_grad()
        for _ in range(2):
            out = loop.model(torch.randn(8, 16, device="cuda"))
            out.square().mean().backward()
            results.append(out.detach())
        loop.optimizer.step()
    return [*results, *(each.detach() for each in loop.model.parameters())]


@pytest.mark.parametrize("model", ["attention", "blocks"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_gradients_accumulate_and_results_outlive_the_next_replay(name: str, model: str) -> None:
    plain, cured = training(device="cuda", model=model), training(device="cuda", model=model)
    if model == "blocks":  # dropout draws from another stream on a GPU, whatever the option says
        for loop in (plain, cured):
            for part in loop.model.modules():
                if isinstance(part, torch.nn.Dropout):
                    part.p = 0.0
    before = picture(cured)["modules"]
    undo = switched_on(name, cured)
    assert isinstance(undo, WatchedUndo)
    for mine, theirs in zip(accumulated(cured, 12), accumulated(plain, 12), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    assert undo.trouble() is None
    undo()
    assert picture(cured)["modules"] == before


def test_tf32_changes_products_and_convolutions_and_goes_without_a_trace() -> None:
    loop = training(device="cuda", model="images")
    before = picture(loop), torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    a = torch.randn(512, 512, device="cuda")
    exact = a @ a
    try:
        undo = switched_on("precision.tf32", loop)
        assert torch.backends.cudnn.allow_tf32
        assert not torch.equal(a @ a, exact)
        undo()
        assert not torch.backends.cudnn.allow_tf32
        assert torch.equal(a @ a, exact)
    finally:
        torch.backends.cudnn.allow_tf32 = before[1]
    assert picture(loop) == before[0]


@pytest.mark.parametrize("kernel", ["flash", "mem_efficient", "cudnn", "math"])
def test_attention_goes_on_with_every_kernel_asked_for(kernel: str) -> None:
    plain, cured = (training(device="cuda", model="attention") for _ in range(2))
    before = picture(cured)["modes"]
    try:
        undo = switched_on("attention.sdpa", cured, kernel=kernel)
    except Refused as refused:
        pytest.skip(str(refused))
    for mine, theirs in zip(accumulated(cured, 6), accumulated(plain, 6), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    undo()
    assert picture(cured)["modes"] == before


def test_channels_last_and_a_fused_optimizer_agree_on_the_layout() -> None:
    plain, cured = training(device="cuda", model="images"), training(device="cuda", model="images")
    undos = [switched_on("optimizer.fused", cured), switched_on("layout.channels_last", cured)]
    for mine, theirs in zip(accumulated(cured, 8), accumulated(plain, 8), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)
    for undo in reversed(undos):
        undo()
    assert [each.stride() for each in cured.model.parameters()] == [
        each.stride() for each in plain.model.parameters()
    ]


def test_float16_with_our_loss_scale_trains_like_full_precision() -> None:
    plain, cured = (training(device="cuda", model="attention") for _ in range(2))
    before = picture(cured)["modules"]
    undo = switched_on("precision.autocast_fp16", cured)
    assert isinstance(undo, WatchedUndo)
    for mine, theirs in zip(accumulated(cured, 12), accumulated(plain, 12), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=5e-2, atol=5e-2)
    assert undo.trouble() is None
    undo()
    assert picture(cured)["modules"] == before
