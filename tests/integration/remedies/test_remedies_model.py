"""Precision, layout, attention and recomputation on live modules: bits, strides, copies, and refusals."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.live_torch.module_call_slot import SLOT, watch
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.model import precision
from autobrrr.injected.remedies.model_calls.repeated_blocks import repeated_blocks
from autobrrr.injected.remedies.registry import Refused, Undo, WatchedUndo
from support.injected.remedies import Training, loop_of, picture, training
from support.injected.remedy_models import Attention, Residual

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untimed")]


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


@pytest.mark.parametrize("fused", [False, True])
def test_weights_and_what_the_optimizer_keeps_for_them_change_their_layout_together(fused: bool) -> None:
    plain, cured = training(model="images"), training(model="images")
    before = strides(cured)
    more = switched_on("optimizer.fused", cured) if fused else None
    undo = switched_on("layout.channels_last", cured)
    assert cured.model[1].weight.is_contiguous(memory_format=torch.channels_last)
    state = cured.optimizer.state[cured.model[1].weight]
    assert state["exp_avg"].stride() == cured.model[1].weight.stride()
    for mine, theirs in zip(weights(cured, 8), weights(plain, 8), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    undo()
    if more is not None:
        more()
    assert strides(cured) == before


def test_state_made_while_the_layout_was_on_comes_back_too() -> None:
    loop = training(model="images")
    before = strides(loop)
    undo = switched_on("layout.channels_last", loop)
    loop.optimizer.state.clear()
    loop.train(2)
    undo()
    assert strides(loop) == before
    assert all(each.grad is None or each.grad.stride() == each.stride() for each in loop.model.parameters())


def test_layouts_that_can_not_be_changed_alone_are_refused() -> None:
    with pytest.raises(Refused, match="no 2-D convolution"):
        switched_on("layout.channels_last", plain := training())
    assert plain.model is not None
    flat = training(model="images")
    weight = flat.model[1].weight
    buffer = torch.zeros(weight.numel() + 8)
    weight.data = buffer[: weight.numel()].view(weight.shape).copy_(weight.data)
    with pytest.raises(Refused, match="shares its memory"):
        switched_on("layout.channels_last", flat)
    done = training(model="images")
    done.model.to(memory_format=torch.channels_last)
    with pytest.raises(Refused, match="channels_last already"):
        switched_on("layout.channels_last", done)


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
    assert undo.trouble() is None
    assert torch.equal(loop.model(x), exact)
    assert torch.equal(twin(x), exact)
    assert SLOT not in vars(loop.model)


class TakesAll(nn.Module):
    """Is pickled with every attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x)

    def __getstate__(self) -> dict[str, object]:
        return dict(vars(self))


class CopiesAll(TakesAll):
    """Is copied attribute by attribute, as many a recipe has it."""

    def __deepcopy__(self, memo: dict[int, object]) -> CopiesAll:
        memo[id(self)] = new = type(self).__new__(type(self))
        for name, value in vars(self).items():
            vars(new)[name] = copy.deepcopy(value, memo)
        return new


@pytest.mark.parametrize("make", [TakesAll, CopiesAll])
def test_a_model_that_hands_on_its_attributes_itself_is_saved_and_copied_as_a_plain_one(
    make: type[TakesAll],
) -> None:
    loop = loop_of(make)
    undo = switched_on("precision.autocast_bf16", loop)
    loop.train(1)
    file = io.BytesIO()
    torch.save(loop.model, file)
    file.seek(0)
    for other in (copy.deepcopy(loop.model), torch.load(file, weights_only=False)):
        nn.init.zeros_(other.last.weight)
        nn.init.ones_(other.last.bias)
        assert torch.equal(other(torch.ones(2, 16)), torch.ones(2, 4))
    undo()


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


@pytest.mark.parametrize(
    ("name", "model"), [("precision.autocast_bf16", "plain"), ("layout.channels_last", "images")]
)
def test_a_hook_that_the_job_sets_before_a_call_was_rehearsed_runs_once_for_each_call(
    name: str, model: str
) -> None:
    loop = training(model=model)
    undo = switched_on(name, loop)
    called: list[object] = []
    loop.model[0].register_forward_hook(lambda module, *_: called.append(module))  # type: ignore[index]
    loop.train(3)
    undo()
    assert len(called) == 3


def test_a_hook_that_the_job_sets_while_autocast_is_on_sees_full_precision() -> None:
    loop = training()
    undo = switched_on("precision.autocast_bf16", loop)
    loop.train(2)
    seen: list[torch.dtype] = []
    hook = loop.model[0].register_forward_hook(lambda _module, _args, out: seen.append(out.dtype))  # type: ignore[index]
    plain = loop.model.eval()(x := torch.randn(4, 16))
    loop.model.train()
    loop.model[2].p = 0.0  # type: ignore[index]
    assert torch.equal(loop.model(x), plain)
    assert seen == [torch.float32] * 2
    hook.remove()
    assert not torch.equal(loop.model(x), plain)
    undo()


@pytest.mark.parametrize("name", ["precision.autocast_bf16", "compile.default"])
def test_a_model_inside_a_checkpoint_of_the_jobs_own_is_computed_twice_alike(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autobrrr.injected.remedies.compile.compile_models.says", lambda pattern: None)
    plain, cured = training(), training()
    undo = switched_on(name, cured)
    for loop in (plain, cured):
        torch.manual_seed(5)
        for _ in range(4):
            loop.optimizer.zero_grad()
            result = checkpoint(loop.model, torch.randn(8, 16), use_reentrant=False)
            result.square().mean().backward()
            loop.optimizer.step()
    undo()
    release = REGISTRY[name].release
    if release is not None:
        release(torch)
    assert all(map(torch.equal, plain.model.parameters(), cured.model.parameters()))


@pytest.mark.parametrize("name", ["precision.autocast_bf16", "recompute.checkpoint"])
def test_gradients_of_single_samples_are_taken_as_without_a_remedy(name: str) -> None:
    loop = training(model="blocks")
    undo = switched_on(name, loop)
    loop.train(2)
    weights = {name: each.detach() for name, each in loop.model.eval().named_parameters()}
    loop.model.train()
    for part in loop.model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0

    def loss(given: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(loop.model, given, (x[None],)).square().mean()

    x = torch.randn(4, 16)
    each = torch.func.vmap(torch.func.grad(loss), (None, 0), randomness="same")
    found = each(weights, x)
    undo()
    expected = each(weights, x)
    assert all(torch.equal(found[name], expected[name]) for name in weights)


@pytest.mark.parametrize("name", ["recompute.checkpoint", "a watch"])
def test_a_model_can_be_scripted_while_something_of_ours_stands_in_its_calls(name: str) -> None:
    loop = training(model="blocks")
    if name == "a watch":
        for part in loop.model.modules():
            watch(part, None, None)
    else:
        switched_on(name, loop)
    loop.model.eval()
    x = torch.randn(2, 16)
    assert torch.equal(torch.jit.script(loop.model)(x), loop.model(x))


class Experts(nn.Module):
    """Adds what each expert makes of its rows to a result in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(16, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(x), 4)
        for number, expert in enumerate(self.experts):
            rows = torch.arange(number, len(x), 2)
            out.index_add_(0, rows, expert(x[rows]))
        return out


def test_a_model_that_can_not_do_with_bfloat16_trains_on_as_if_nothing_had_been() -> None:
    plain, cured = loop_of(Experts, "SGD"), loop_of(Experts, "SGD")
    undo = switched_on("precision.autocast_bf16", cured)
    for loop in (plain, cured):
        torch.manual_seed(5)
        loop.train(3)
    assert all(map(torch.equal, plain.model.parameters(), cured.model.parameters()))
    assert isinstance(undo, WatchedUndo)
    assert "bfloat16 does not fit this model: it fails: RuntimeError" in str(undo.trouble())
    undo()


class Padded(nn.Module):
    """Leaves rows of zeros out, whose result it makes in float32; refuses rows that are no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, padding = self.drop(self.first(x)), (x == 0).all(-1)
        if x.isnan().any():
            raise ArithmeticError("a row is no number")
        if padding.any():
            out = torch.zeros(len(x), 4)
            out[~padding] = self.last(hidden[~padding])
            return out
        return self.last(hidden)


def half_padded() -> torch.Tensor:
    return torch.cat([torch.ones(4, 16), torch.zeros(4, 16)])


def test_a_branch_that_fails_in_bfloat16_and_was_not_rehearsed_is_answered_by_the_plain_call() -> None:
    loop = loop_of(Padded)
    undo = switched_on("precision.autocast_bf16", loop)
    assert isinstance(undo, WatchedUndo)
    loop.train(2)
    assert undo.trouble() is None
    torch.manual_seed(5)
    found, drawn = loop.model(half_padded()), torch.get_rng_state()
    assert "failed so: RuntimeError: Index put requires" in str(undo.trouble())
    torch.manual_seed(5)
    assert torch.equal(loop.model._call_impl(half_padded()), found)
    assert torch.equal(torch.get_rng_state(), drawn)
    undo()


def test_an_error_of_the_jobs_own_goes_to_the_job_and_ends_no_autocast() -> None:
    loop = loop_of(Padded)
    undo = switched_on("precision.autocast_bf16", loop)
    assert isinstance(undo, WatchedUndo)
    loop.train(2)
    torch.manual_seed(5)
    with pytest.raises(ArithmeticError, match="a row is no number") as raised:
        loop.model(torch.full((8, 16), float("nan")))
    assert raised.value.__context__ is None
    drawn = torch.get_rng_state()
    torch.manual_seed(5)
    nn.functional.dropout(torch.ones(8, 16), 0.5)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert undo.trouble() is None
    undo()


class Holder:
    """What a forward hands on to the next one, in an object of the job's own."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.hidden = hidden


class Carries(nn.Module):
    """Returns such an object, always or for some batches."""

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self.always = always
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, Holder]:
        hidden = torch.tanh(self.first(x))
        if self.always or bool((x == 0).any()):
            return self.last(hidden), Holder(self.first(hidden))
        return self.last(hidden)


@pytest.mark.parametrize("always", [True, False])
def test_results_that_can_not_be_looked_into_come_from_the_plain_call(always: bool) -> None:
    torch.manual_seed(3)
    model = Carries(always=always)
    job = Job(torch)
    job.saw_root(model)
    undo = REGISTRY["precision.autocast_bf16"].apply(job, {})
    assert isinstance(undo, WatchedUndo)
    model(torch.ones(8, 16))
    _, held = model(torch.zeros(8, 16))
    assert held.hidden.dtype == torch.float32
    assert "can't be looked into (Holder)" in str(undo.trouble())
    undo()


def test_autocast_leaves_a_job_alone_that_has_its_own() -> None:
    loop = training()
    undo = switched_on("precision.autocast_bf16", loop)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loop.model(torch.randn(4, 16)).dtype == torch.bfloat16
    undo()
    half = training(dtype=torch.bfloat16)
    with pytest.raises(Refused, match="half precision already"):
        switched_on("precision.autocast_bf16", half)


def test_matmul_precision_is_refused_where_it_changes_no_bit() -> None:
    loop = training()
    before = picture(loop)
    with pytest.raises(Refused, match="high changes no float32 product on this cpu"):
        switched_on("precision.float32_matmul_precision", loop, precision="high")
    assert picture(loop) == before
    a = torch.randn(256, 256)
    exact = a @ a
    before = picture(loop)
    torch.set_float32_matmul_precision("medium")
    has_effect = not torch.equal(a @ a, exact)
    torch.set_float32_matmul_precision("highest")
    if not has_effect:
        with pytest.raises(Refused, match="medium changes no float32 product"):
            switched_on("precision.float32_matmul_precision", loop)
        return
    undo = switched_on("precision.float32_matmul_precision", loop)
    assert not torch.equal(a @ a, exact)
    undo()
    assert torch.equal(a @ a, exact)
    assert picture(loop) == before


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_product_that_fails_leaves_the_precision_as_it_was(
    monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    calls: list[str] = []

    def product(_torch: object, device: str) -> torch.Tensor:
        calls.append(device)
        if len(calls) == fails_at:
            raise RuntimeError("out of memory")
        return torch.zeros(1)

    monkeypatch.setattr(precision, "_product", product)
    loop = training()
    torch.set_float32_matmul_precision("high")
    with pytest.raises(RuntimeError, match="out of memory"):
        switched_on("precision.float32_matmul_precision", loop, precision="medium")
    assert torch.get_float32_matmul_precision() == "high"


def test_recomputed_blocks_train_to_the_same_bits_with_dropout_and_keep_less() -> None:
    plain, cured = training(model="blocks"), training(model="blocks")
    undo = switched_on("recompute.checkpoint", cured)
    kept = {}
    for name, loop in (("plain", plain), ("cured", cured)):
        loop.model(torch.randn(8, 16)).sum().backward()  # tried out
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


def test_the_kernel_of_attention_is_switched_where_it_is_used_and_only_there() -> None:
    loop = training(model="attention")
    before = picture(loop)["modes"]
    undo = switched_on("attention.sdpa", loop, kernel="math")
    assert not torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.math_sdp_enabled()
    loop.train(1)
    undo()
    assert picture(loop)["modes"] == before
    with pytest.raises(Refused, match="there is no cudnn kernel on a CPU"):
        switched_on("attention.sdpa", loop, kernel="cudnn")
    without = training()
    with pytest.raises(Refused, match="calls scaled_dot_product_attention"):
        switched_on("attention.sdpa", without, kernel="math")


def test_attention_with_dropout_is_another_stream() -> None:
    class Dropping(Attention):
        def __init__(self, width: int) -> None:
            super().__init__(width)
            self.dropout = 0.1

    sdpa = REGISTRY["attention.sdpa"]
    steady, dropping = (
        training(model="attention"),
        loop_of(lambda: nn.Sequential(Dropping(16), nn.Linear(16, 4))),
    )
    assert sdpa.class_on(steady.job) == "rounding"
    assert sdpa.class_on(dropping.job) == "stream"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", [name for name, remedy in REGISTRY.items() if remedy.unproven])
def test_what_needs_a_gpu_is_refused_without_one(name: str) -> None:
    loop = training()
    before = picture(loop)
    with pytest.raises(Refused, match="CUDA"):
        switched_on(name, loop)
    assert picture(loop) == before
