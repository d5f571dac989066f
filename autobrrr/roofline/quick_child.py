"""Measures one matmul size and one triad, in a process of its own; prints one line of JSON.

A script for any interpreter that has torch >= 2.1: it uses the standard library and torch only and
may not import anything of autobrrr. One argument: JSON with threads, n, triad_elements, budget_s and,
where torch lies outside of its path, site.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

LEAST = 3  # runs that count; the one before them warms up
CROWDED_AT, LONGER = 0.1, 4  # of the time its threads wait for a core: it measures so many times as long


def best_ns(call: Callable[[], object], budget_s: float) -> int:
    """The shortest of as many runs as fit: a peak is what was reached when nothing was in the way.

    Args:
        call: What is measured; it is done when it returns.
        budget_s: At least LEAST runs are made, whatever they take.
    """
    call()
    took: list[int] = []
    end = time.perf_counter_ns() + int(budget_s * 1e9)
    while len(took) < LEAST or time.perf_counter_ns() < end:
        began = time.perf_counter_ns()
        call()
        took.append(max(time.perf_counter_ns() - began, 1))
    return min(took)


def matmul_flops(torch: Any, n: int, budget_s: float) -> float:
    """FLOP/s of a square matmul, 2 n^3 each."""
    left, right = (torch.randn(n, n, dtype=torch.float32) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * n**3 / best_ns(lambda: torch.mm(left, right, out=out), budget_s) * 1e9


def triad_bytes_per_s(torch: Any, elements: int, budget_s: float) -> float:
    """Bytes per second of a = b + 3 c in fp32: two reads and one write, as STREAM counts them."""
    b, c, a = (torch.ones(elements) for _ in range(3))
    return 3 * 4 * elements / best_ns(lambda: torch.add(b, c, alpha=3.0, out=a), budget_s) * 1e9


class CoreWaits:
    """How long the threads of this process are runnable, but not running, from now on."""

    def __init__(self) -> None:
        self.began_ns, self.before_ns = time.perf_counter_ns(), self._waited_ns()

    def share(self, threads: int) -> float | None:
        """Of the time of so many threads, 0-1; None where the kernel does not tell."""
        now_ns, wall_ns = self._waited_ns(), time.perf_counter_ns() - self.began_ns
        if now_ns is None or self.before_ns is None:
            return None
        return min((now_ns - self.before_ns) / (wall_ns * threads), 1.0)

    def _waited_ns(self) -> int | None:
        total = 0
        try:
            for task in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{task}/schedstat") as file:
                    total += int(file.read().split()[1])
        except (OSError, ValueError, IndexError):
            return None
        return total


def main(words: list[str]) -> int:
    asked = json.loads(words[1])
    if asked.get("site"):
        sys.path.insert(0, asked["site"])
    import torch

    threads = int(asked["threads"])
    torch.set_num_threads(threads)
    waiting = CoreWaits()

    def peaks(budget_s: float) -> dict[str, float]:
        return {
            "matmul_flops": matmul_flops(torch, int(asked["n"]), budget_s),
            "triad_bytes_per_s": triad_bytes_per_s(torch, int(asked["triad_elements"]), budget_s),
        }

    budget_s = float(asked["budget_s"])
    found: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    found |= peaks(budget_s)
    if threads > 1 and (waiting.share(threads) or 0.0) > CROWDED_AT:
        found |= {name: max(found[name], again) for name, again in peaks(LONGER * budget_s).items()}
    found["waited_share"] = waited = waiting.share(threads)
    if threads > 1 and (waited or 0.0) > CROWDED_AT:
        torch.set_num_threads(1)  # one finds a free core sooner than all do at once, and all reach as much
        for name, best in peaks(budget_s).items():
            found |= {f"{name}_of_one": best, name: max(found[name], best)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    # Started by its path, this folder stands first in the search path: our files would hide others'.
    sys.path[:] = [place for place in sys.path if place != os.path.dirname(os.path.abspath(__file__))]
    main(sys.argv)
    sys.stdout.flush()
    os._exit(0)  # taking torch down in good order would cost a quarter of all the time
