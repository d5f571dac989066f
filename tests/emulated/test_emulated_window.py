"""A profiler window of a job on the device: its kernels come with it, and nothing of it stays."""

from pathlib import Path

import pytest

from autobrrr.sidecar.session.window_reader import read_window
from support.agent.agent import AgentJob
from support.agent.agent_windows import next_window

pytestmark = pytest.mark.usefixtures("device")

JOB = """
import ctypes, os, torch
from support.agent import agent_job
from torch import nn
torch.set_num_threads(1)
emulated = ctypes.CDLL(None)
torch.manual_seed(0)
layers = nn.Linear(64, 256), nn.ReLU(), nn.Dropout(), nn.BatchNorm1d(256), nn.Linear(256, 8)
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
data = torch.randn(32, 64, device="cuda")
def step():
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
for _ in range(20): step()
ended = agent_job.begin()
"""
END = """
while ended.locked(): step()
for _ in range(50): step()
agent_job.wait_ended(ended)
torch.cuda.synchronize()
assert not torch.autograd._profiler_enabled()
print("attached", emulated.emu_cupti_attached(), "finalized", emulated.emu_cupti_finalized())
print("set", os.environ.get("TEARDOWN_CUPTI"))
"""


def test_each_window_has_its_kernels_and_cupti_is_let_go_of(tmp_path: Path) -> None:
    with AgentJob(JOB + END, tmp_path) as job:
        peer = job.peer()
        for count in (1, 2):
            peer.wait_steps(20 * count)
            assert peer.ask("window", steps=3, shapes=True)["ok"]
            window = read_window(*next_window(peer))
            assert (window.status, window.why) == ("ok", None)
            assert window.cupti is None
            assert window.gaps[0].busy_ns > 0
            peer.events.clear()
        assert peer.ask("detach", keep=False)["left"] == []
        output = job.output()
        assert "attached 0 finalized 2" in output
        assert "set None" in output


def test_what_the_job_has_set_itself_is_left_as_it_is(tmp_path: Path) -> None:
    chosen = JOB.replace("torch.set_num_threads(1)", "os.environ['TEARDOWN_CUPTI'] = '0'")
    with AgentJob(chosen + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(20)
        assert "keeps CUPTI in the job" in str(peer.ask("window", steps=3)["why"])
        assert peer.ask("window", steps=3, asked=True)["ok"]
        assert read_window(*next_window(peer)).cupti == "attached"
        peer.ask("detach", keep=False)
        output = job.output()
        assert "attached 1 finalized 0" in output
        assert "set 0" in output


CAPTURES = """
aside = torch.cuda.Stream()
def captured():
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=aside): step()
    graph.replay()
    torch.cuda.current_stream().wait_stream(aside)
    optimizer.zero_grad(set_to_none=True)
done = 0
while ended.locked():
    step()
    if torch.autograd._profiler_enabled() or done < 20:
        captured()
        done += 1
print("captured", done, flush=True)
"""


def test_a_graph_that_the_job_captures_meanwhile_is_whole_and_the_window_says_so(tmp_path: Path) -> None:
    with AgentJob(JOB + CAPTURES + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(4)
        assert peer.ask("window", steps=8)["ok"]
        told, _ = next_window(peer)
        assert told.status == "abstained"
        assert "captured a CUDA graph" in (told.why or "")
        peer.ask("detach", keep=False)
        output = job.output()
        assert "captured" in output
        assert "attached 0" in output


ASIDE = """
emulated.emu_scale.argtypes = [ctypes.c_double]
emulated.emu_scale(400.0)  # the host runs ahead as far as the queue lets it
ahead = torch.cuda.Stream()
def prepared():
    with torch.cuda.stream(ahead): held = data * 2
    torch.cuda.current_stream().wait_stream(ahead)
    step()
while ended.locked(): prepared()
"""


def test_a_stream_that_runs_ahead_of_a_full_queue_makes_no_idle_device(tmp_path: Path) -> None:
    with AgentJob(JOB + ASIDE + END, tmp_path) as job:
        peer = job.peer()
        peer.wait_steps(60)
        assert peer.ask("window", steps=4)["ok"]
        window = read_window(*next_window(peer))
        assert (window.status, window.why) == ("ok", None)
        assert window.gaps[0].busy_ns < 0.9 * window.gaps[0].span_ns  # what was queued before it is not seen
        assert window.verdict.limit == "kernels", window.verdict.limit_reason
        peer.ask("detach", keep=False)
        job.output()
