"""Remedies on odd optimizers: each is refused with a reason, or cured and put back, and training goes on."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from autobrrr.agent.live_torch.dispatch_modes import dispatch_mode
from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.live_torch.torch_log import loaded
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.optimizer.optimizer_kernels import SAME_BITS
from autobrrr.agent.remedies.process.thread_counts import physical_cores
from autobrrr.agent.remedies.registry import Refused
from support.agent.remedies import OPTIMIZERS, training

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

LIBRARY: Any = loaded(torch, "libtorch_cpu.so")
FUSED, FOREACH = REGISTRY["optimizer.fused"], REGISTRY["optimizer.foreach"]


class OwnStep(torch.optim.AdamW):
    """Does something of its own in a step."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        self.param_groups[0]["lr"] *= 0.999
        return super().step(closure)


def job_of(optimizer: torch.optim.Optimizer, *roots: nn.Module) -> Job:
    job = Job(torch)
    job.saw_optimizer(optimizer)
    for root in roots:
        job.saw_root(root)
    return job


def parameter(**kind: object) -> nn.Parameter:
    made = nn.Parameter(torch.ones(4, **kind))  # type: ignore[call-overload]
    made.grad = torch.ones_like(made)
    return made


def in_other_order(what: str) -> torch.optim.Optimizer:
    """An optimizer of a channels_last weight, where one thing lies in memory row by row."""
    weight = nn.Parameter(torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last))
    weight.grad = torch.ones_like(weight)
    made = torch.optim.AdamW([weight])
    made.step()
    if what == "state":
        made.state[weight]["exp_avg"] = made.state[weight]["exp_avg"].contiguous()
    elif what == "gradient":
        weight.grad = weight.grad.contiguous()
    elif what == "gaps":
        weight.data, weight.grad = torch.randn(4, 3, 2, 4)[..., ::2], None
    return made


@pytest.mark.parametrize(
    ("what", "reason"), [("state", "strides"), ("gradient", "strides"), ("gaps", "gaps")]
)
def test_what_a_fused_kernel_would_read_in_another_order_than_the_weight_is_refused(
    what: str, reason: str
) -> None:
    optimizer = in_other_order(what)
    with pytest.raises(Refused, match=reason):
        FUSED.apply(job_of(optimizer), {})


def test_a_fused_update_of_channels_last_weights_and_state_is_the_plain_one() -> None:
    torch.manual_seed(3)
    plain = in_other_order("nothing")
    torch.manual_seed(3)
    fused = in_other_order("nothing")
    undo = FUSED.apply(job_of(fused), {})
    for optimizer in (plain, fused):
        optimizer.step()
    (mine,), (theirs,) = fused.param_groups[0]["params"], plain.param_groups[0]["params"]
    torch.testing.assert_close(mine, theirs)
    undo()


ODD = {
    "differentiable": (lambda: torch.optim.AdamW([parameter()], differentiable=True), "differentiable"),
    "capturable": (lambda: torch.optim.AdamW([parameter()], capturable=True), "capturable"),
    "tensor learning rate": (lambda: torch.optim.AdamW([parameter()], lr=torch.tensor(0.1)), "learning rate"),
    "complex": (lambda: torch.optim.AdamW([parameter(dtype=torch.complex64)]), "complex64"),
    "own step": (lambda: OwnStep([parameter()]), "OwnStep: torch has no"),
    "LBFGS": (lambda: torch.optim.LBFGS([parameter()]), "LBFGS: torch has no"),
    "SparseAdam": (lambda: torch.optim.SparseAdam([parameter()]), "SparseAdam: torch has no"),
    "fused already": (lambda: torch.optim.AdamW([parameter()], fused=True), "fused"),
}


@pytest.mark.parametrize("remedy", [FUSED, FOREACH], ids=["fused", "foreach"])
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_optimizer_is_refused_with_its_reason_and_left_alone(kind: str, remedy: object) -> None:
    make, reason = ODD[kind]
    optimizer = make()
    before = (list(vars(optimizer)), [dict(group) for group in optimizer.param_groups])
    with pytest.raises(Refused, match=reason):
        remedy.apply(job_of(optimizer), {})  # type: ignore[attr-defined]
    assert list(vars(optimizer)) == before[0]
    assert [list(group) for group in optimizer.param_groups] == [list(group) for group in before[1]]


def test_sparse_gradients_are_refused_before_and_after_they_are_there() -> None:
    net = nn.Embedding(10, 4, sparse=True)
    root = nn.Sequential(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(Refused, match="sparse gradients"):
        FUSED.apply(job_of(optimizer, root), {})
    net(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(Refused, match="sparse gradients"):
        FUSED.apply(job_of(optimizer), {})


def test_rehearsing_is_no_step_of_the_job() -> None:
    loop = training("AdamW amsgrad")
    fired: list[object] = []
    handle = register_optimizer_step_post_hook(lambda one, *_: fired.append(one))
    try:
        with dispatch_mode(torch, lambda operator, args, kwargs: fired.append(operator)):
            FUSED.apply(loop.job, {})()
        assert fired == [], "a mode of the job's own, or a hook, sees it"
        loop.train(1)
        assert fired == [loop.optimizer]
    finally:
        handle.remove()


def test_what_the_user_changed_meanwhile_stays_the_users() -> None:
    loop = training()
    undo = FOREACH.apply(loop.job, {})
    loop.optimizer.param_groups[0]["foreach"] = False
    loop.train(1)
    undo()
    assert loop.optimizer.param_groups[0]["foreach"] is False
    threads = REGISTRY["threads.intra_op"].apply(loop.job, {"threads": 2})
    torch.set_num_threads(3)
    threads()
    assert torch.get_num_threads() == 3


def test_a_scaler_skips_infinite_gradients_under_fused_as_without() -> None:
    loop = training("SGD momentum")
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    undo = FUSED.apply(loop.job, {})
    weights = [each.detach().clone() for each in loop.model.parameters()]
    for gradient in (float("inf"), 1.0):
        for each in loop.model.parameters():
            each.grad = torch.full_like(each, gradient)
        scaler.scale(torch.ones(()))
        scaler.step(loop.optimizer)
        scaler.update()
        moved = [not torch.equal(a, b) for a, b in zip(weights, loop.model.parameters(), strict=True)]
        assert all(moved) is (gradient == 1.0)
        assert any(moved) is (gradient == 1.0)
    undo()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_foreach_keeps_the_bits_or_is_refused(name: str, dtype: torch.dtype) -> None:
    bits = []
    for cured in (False, True):
        torch.manual_seed(2)
        made = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in ((33, 5), (7,), (64, 16))]
        optimizer = OPTIMIZERS[name](made)
        if cured and type(optimizer).__name__ not in SAME_BITS:
            with pytest.raises(Refused, match="bitwise"):
                FOREACH.apply(job_of(optimizer), {})
            return
        if cured:
            FOREACH.apply(job_of(optimizer), {})
        for step in range(60):
            torch.manual_seed(step)
            for each in made:
                each.grad = torch.randn(each.shape).to(dtype)
            optimizer.step()
        bits.append([each.detach().clone() for each in made])
    assert all(torch.equal(a, b) for a, b in zip(*bits, strict=True))


def test_foreach_in_half_precision_is_refused() -> None:
    optimizer = torch.optim.AdamW([parameter(dtype=torch.bfloat16)])
    with pytest.raises(Refused, match="bitwise"):
        FOREACH.apply(job_of(optimizer), {})


def test_frozen_or_collection_switched_off_by_the_user_is_refused() -> None:
    freeze = REGISTRY["gc.freeze"]
    keep = [[] for _ in range(5000)]
    gc.disable()
    try:
        with pytest.raises(Refused, match="off"):
            freeze.apply(Job(torch), {})
    finally:
        gc.enable()
    gc.freeze()
    try:
        with pytest.raises(Refused, match="already"):
            freeze.apply(Job(torch), {})
    finally:
        gc.unfreeze()
    assert len(keep) == 5000


def test_threads_stay_as_many_where_the_job_compiles_unless_a_recipe_set_them_at_its_start() -> None:
    active, job = ActiveRemedies(REGISTRY), Job(torch)
    wanted = {"threads": torch.get_num_threads() + 1}
    torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(2))
    with pytest.raises(Refused, match="runs compiled code of its own"):
        active.apply(job, "threads.intra_op", wanted)
    active.undo(active.apply(job, "threads.intra_op", wanted, planned=True))


@pytest.mark.skipif(not hasattr(LIBRARY, "mkl_serv_get_dynamic"), reason="torch has no MKL inside")
@pytest.mark.parametrize("adjusts", [0, 1])
def test_whether_mkl_adjusts_its_threads_is_as_it_was_after_the_undo(adjusts: int) -> None:
    before = LIBRARY.mkl_serv_get_dynamic()
    LIBRARY.mkl_serv_set_dynamic(adjusts)
    undo = REGISTRY["threads.intra_op"].apply(Job(torch), {"threads": 2})
    assert LIBRARY.mkl_serv_get_dynamic() == 0
    undo()
    assert LIBRARY.mkl_serv_get_dynamic() == adjusts
    LIBRARY.mkl_serv_set_dynamic(before)


def test_physical_cores_count_siblings_once(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        topology = tmp_path / f"cpu{cpu}" / "topology"  # type: ignore[operator]
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings + "\n")
    assert physical_cores(str(tmp_path)) == 2
    assert physical_cores("/nowhere") == 4


def test_the_kernel_of_attention_that_a_cpu_uses_anyway_is_no_remedy() -> None:
    model = nn.MultiheadAttention(8, 2)
    job = job_of(torch.optim.SGD(model.parameters(), lr=0.1), model)
    with pytest.raises(Refused, match="the job uses flash already"):
        REGISTRY["attention.sdpa"].apply(job, {"kernel": "flash"})
