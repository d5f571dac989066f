"""Collectives of the emulated device: two ranks, planted durations, ends that only the last rank decides."""

import json
import os
import sys
from pathlib import Path

import pytest

from support.training import ran

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.nightly, pytest.mark.timeout(300)]
BEGIN = """
import ctypes, json, os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
emulated = ctypes.CDLL(None)
emulated.emu_rule.argtypes = [ctypes.c_char_p, ctypes.c_double]
plant = lambda name, us: emulated.emu_rule(name.encode(), us)
event = lambda: torch.cuda.Event(enable_timing=True)
big = torch.zeros(1 << 20, device="cuda")  # of which no contents are moved
plant("AllReduce", 5000.0)
plant("elementwise", 1000.0)
sleep = lambda ms: torch.cuda._sleep(round(ms * 1.98e6))
def told(**found):
    print("told " + json.dumps(found), flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()
dist.barrier()
torch.cuda.synchronize()
"""


def ranks(folder: Path, script: str) -> list[dict[str, object]]:
    """What both ranks of a script tell, in their order."""
    (folder / "job.py").write_text(BEGIN + script)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--log-dir"]
    launcher += [str(folder / "logs"), "--redirects", "1"]
    environment = {**os.environ, "EMU_DEVICES": "2", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    ended = ran([sys.executable, *launcher, str(folder / "job.py")], env=environment, timeout=200)
    assert ended.returncode == 0, ended.stderr
    said = sorted((folder / "logs").rglob("stdout.log"), key=lambda each: int(each.parent.name))
    return [json.loads(each.read_text().split("told ")[1].splitlines()[0]) for each in said]


def test_a_collective_ends_on_all_ranks_as_long_after_the_last_one_came_as_was_planted(tmp_path: Path):
    first, last = ranks(
        tmp_path,
        """
began, ended = event(), event()
sleep(200)  # both are queued before either begins
began.record()
sleep(30 if rank else 10)
dist.all_reduce(big)
ended.record()
ended.synchronize()
told(took=began.elapsed_time(ended), at=time.monotonic())
""",
    )
    assert last["took"] == pytest.approx(35.0, abs=0.01)
    assert abs(first["at"] - last["at"]) < 0.5  # they leave it together


def test_few_contents_are_really_moved(tmp_path: Path):
    found = ranks(
        tmp_path,
        """
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank, "much": "x" * 2000 * rank})
sums = torch.full((3,), float(rank + 1), device="cuda")
dist.all_reduce(sums)
root = torch.full((2,), rank + 7, device="cuda")
dist.broadcast(root, src=1)
parts = torch.empty(4, device="cuda")
dist.all_gather_into_tensor(parts, torch.full((2,), float(rank), device="cuda"))
message = torch.full((2,), float(rank), device="cuda")
if rank:
    dist.recv(message, 0)
else:
    dist.send(message, 1)
told(objects=[len(each["much"]) for each in objects], sums=sums.tolist(), root=root.tolist(),
     parts=parts.tolist(), message=message.tolist())
""",
    )
    moved = {
        "objects": [0, 2000],
        "sums": [3.0] * 3,
        "root": [8, 8],
        "parts": [0.0, 0.0, 1.0, 1.0],
        "message": [0.0, 0.0],
    }
    assert found == [moved, moved]
