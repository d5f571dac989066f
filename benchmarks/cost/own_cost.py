"""What does the attached agent cost a training step of about a millisecond?

    python -m benchmarks.cost.own_cost [--blocks 40] [--steps 300]

One process; blocks of steps with the agent on (hooks, ring, bursts, its own thread) and off take
turns, A B B A. Cost = the median over pairs of on less off; the bound is one-sided, 95 %, an order
statistic of the pairs (binomial, whatever their distribution).
Then the hooks' own nanoseconds: calibrated (quickest batch, warm) and as they stand in the ring.
"""

import _thread
import argparse
import mmap
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.stats import binom

from autobrrr.agent import entry
from autobrrr.agent.loop import own_cost
from autobrrr.agent.wire import ring_layout
from support.agent.agent import Peer, Step, read_ring

EDGE_NS = 15_000
SETTLED = 400  # steps after attach: the pattern is learnt, calibration and the first, denser bursts are over
WARM_STEPS = 100  # after detach


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Steps of one kind, one after another."""

    on: bool
    wall_ns: list[int]
    cpu_ns: int


def job() -> Callable[[], None]:
    """A step of about a millisecond."""
    torch.set_num_threads(1)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(64, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


class Switch:
    """Attaches and detaches the agent, from the training thread."""

    def __init__(self) -> None:
        self.records: list[Step] = []
        self._peer: Peer | None = None
        self._ended = _thread.allocate_lock()

    def on(self) -> None:
        path = tempfile.mkdtemp() + "/link.sock"  # the agent takes the folder away at its end
        boot: dict[str, object] = {"token": "bench", "link": path, "method": "ptrace"}
        self._ended.acquire()

        def run() -> None:
            entry.start(boot)
            self._ended.release()

        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen(1)
            _thread.start_new_thread(run, ())
            self._peer = Peer.accept(server)

    def off(self, step: Callable[[], None]) -> None:
        assert self._peer is not None
        assert isinstance(self._peer.memory, mmap.mmap)
        self.records += [one for one in read_ring(self._peer.memory[:]) if one.seq > SETTLED]
        self._peer.link.close()
        while self._ended.locked():
            step()


def block(step: Callable[[], None], steps: int, *, on: bool) -> Block:
    """Warm up, then measure."""
    for _ in range(SETTLED if on else WARM_STEPS):
        step()
    wall: list[int] = []
    cpu = time.thread_time_ns()
    last = time.perf_counter_ns()
    for _ in range(steps):
        step()
        now = time.perf_counter_ns()
        wall.append(now - last)
        last = now
    return Block(on=on, wall_ns=wall, cpu_ns=(time.thread_time_ns() - cpu) // steps)


def report(name: str, blocks: list[Block], figure: Callable[[Block], float]) -> None:
    """One line: the median difference of neighbouring on and off blocks, and its upper bound."""
    pairs = [{one.on: figure(one) for one in pair} for pair in zip(blocks[::2], blocks[1::2], strict=True)]
    base = statistics.median(pair[False] for pair in pairs)
    costs = sorted(pair[True] - pair[False] for pair in pairs)
    middle, bound = statistics.median(costs), costs[int(binom.ppf(0.95, len(costs), 0.5))]
    print(f"{name:<34}{base / 1000:>10.1f} us{middle / 1000:>10.2f} us", end="")
    print(f"{middle / base:>9.2%}{bound / base:>11.2%}")


def quantile(values: list[int], share: float) -> float:
    """The value below which this share of them lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40, help="pairs of blocks")
    parser.add_argument("--steps", type=int, default=300, help="measured steps of a block")
    args = parser.parse_args()
    step = job()
    blocks: list[Block] = []
    switch = Switch()
    for pair in range(args.blocks):
        for on in (True, False) if pair % 2 else (False, True):
            if on:
                switch.on()
            blocks.append(block(step, args.steps, on=on))
            if on:
                switch.off(step)
    print(f"{args.blocks} pairs of blocks of {args.steps} steps, {os.cpu_count()} CPUs\n")
    print(f"{'':<34}{'off':>13}{'cost':>13}{'share':>9}{'95 % bound':>11}")
    report("CPU time of a step, mean", blocks, lambda one: float(one.cpu_ns))
    report("wall time, mean", blocks, lambda one: statistics.mean(one.wall_ns))
    report("wall time, median", blocks, lambda one: float(statistics.median(one.wall_ns)))
    report("wall time, p99", blocks, lambda one: quantile(one.wall_ns, 0.99))
    records = switch.records
    plain = [one.own_ns for one in records if not one.flags and one.own_ns < EDGE_NS]
    edges = [one.own_ns for one in records if one.own_ns >= EDGE_NS]
    sampled = sum(bool(one.flags & ring_layout.PHASES) for one in records)
    hook_ns, sampled_ns = own_cost.calibrate(torch)
    share = sampled / len(records)
    print(f"\ncalibrated: {hook_ns} ns in a plain step, {sampled_ns} ns more in a sampled one ({share:.2%})")
    print(f"in the ring: {statistics.median(plain):.0f} ns median own time at a plain boundary,", end=" ")
    print(f"{statistics.median(edges):.0f} ns where hooks go on or off ({len(edges) / len(records):.2%})")
    own, whole = sum(one.own_ns for one in records), sum(one.duration_ns for one in records)
    print(f"in the ring: own time is {own / whole:.3%} of {len(records)} steps, hooks inside a step apart")


if __name__ == "__main__":
    measure()
