"""`attention.sdpa` on the device: the kernel asked for comes first, others serve what it does not take."""

import pytest
import torch

from autobrrr.agent.remedies.families import REGISTRY
from support.agent.remedies import training

pytestmark = pytest.mark.usefixtures("device")
NAMES = {0: "math", 1: "flash", 2: "mem_efficient", 3: "cudnn"}


def chosen(kind: torch.dtype, *, masked: bool = False) -> str:
    """What torch would compute attention with."""
    q = torch.randn(2, 4, 64, 32, device="cuda", dtype=kind)
    mask = torch.ones(2, 1, 64, 64, device="cuda", dtype=torch.bool) if masked else None
    return NAMES[torch._fused_sdp_choice(q, q, q, mask)]


def state() -> tuple[object, ...]:
    backends = torch.backends.cuda
    return torch._C._get_sdp_priority_order(), *(
        getattr(backends, f"{name}_sdp_enabled")() for name in NAMES.values()
    )


@pytest.mark.parametrize("kernel", ["flash", "mem_efficient", "cudnn"])
def test_nothing_falls_to_the_plain_kernel_that_another_served(kernel: str) -> None:
    torch.backends.cuda.enable_cudnn_sdp(False)  # not emulated; the remedy may switch it on
    try:
        loop = training(device="cuda", model="attention")
        inputs = [
            (torch.float32, False),
            (torch.float32, True),
            (torch.float16, True),
            (torch.float16, False),
        ]
        before, served = state(), [chosen(kind, masked=masked) for kind, masked in inputs]
        assert "math" not in served
        undo = REGISTRY["attention.sdpa"].apply(loop.job, {"kernel": kernel})
        now = [chosen(kind, masked=masked) for kind, masked in inputs]
        assert "math" not in now
        assert now[-1] == kernel
        assert now[0] == "mem_efficient", "float32 goes where it went: flash and cudnn do not take it"
        undo()
        assert state() == before
        assert [chosen(kind, masked=masked) for kind, masked in inputs] == served
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_the_plain_kernel_can_be_had_by_name() -> None:
    loop = training(device="cuda", model="attention")
    before = state()
    undo = REGISTRY["attention.sdpa"].apply(loop.job, {"kernel": "math"})
    assert chosen(torch.float32) == "math"
    undo()
    assert state() == before
