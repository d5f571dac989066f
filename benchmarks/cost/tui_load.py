"""What the terminal UI costs: CPU at 10 Hz, first paint, keypress to paint, memory.

The UI runs in a real pseudo-terminal as a process of its own, on sessions of a process that only plays
the agent. With `--ranks N`, a made-up source publishes a view of N ranks ten times a second.
CPU and memory are read from `/proc`.

    python -m benchmarks.cost.tui_load --for-s 20
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import ROOT
from benchmarks.cost.sidecar_load import spent, watched
from support.screens.tui_terminal import Terminal
from support.training import environment

KEYS = "1234560" * 6
RANKS = """
import sys, threading, time
import msgspec
sys.path[:0] = {paths!r}
from autobrrr_tui.app import show
from autobrrr.records import StepStats
from support.screens import tui
class Ranks(tui.FakeSource):
    def start(self, publish):
        threading.Thread(target=self.play, args=(publish,), daemon=True).start()
    def play(self, publish):
        number = 0
        while True:
            number += 1
            lines = [
                msgspec.structs.replace(line, step_ns=line.step_ns + (number * 7 + line.rank) % 9 * 100000)
                for line in self.first.ranks
            ]
            step_ns = StepStats(count=number, mean=1, median=4_000_000 + number % 50 * 1000, p99=5_000_000)
            found = msgspec.structs.replace(self.first.snapshot, t_ns=number * 100_000_000, steps=number,
                activity=f"probing {{number}}", step_ns=step_ns, ranks=lines)
            publish(tui.take(self.first, found))
            time.sleep(0.1)
show(Ranks(tui.ranks()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for-s", type=float, default=20.0, help="length of each measurement of CPU")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autobrrr-bench-") as name:
        env = {**environment(Path(name)), "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tui")])}
        os.environ.update(env)
        print(f"{'what':<44} {'measured':>16}   promised")
        with watched(2.0) as pid:
            one_job(pid, env, args.for_s)
        eight_ranks(env, args.for_s)


def one_job(pid: int, env: dict[str, str], for_s: float) -> None:
    """First paint, CPU, memory and keys of `attach` on one session."""
    paints = [first_paint(pid, env) for _ in range(5)]
    row("first paint after start, one job", f"{statistics.median(paints) * 1000:.0f} ms", "500 ms")
    screen = Terminal("attach", str(pid), env=env)
    try:
        screen.until(lambda s: "median" in s.text)
        share, rss_bytes = load(screen, for_s)
        row("CPU at 10 Hz, one job, first screen", f"{share:.2f} % of a core", "3 %")
        screen.press("3")
        share, _ = load(screen, for_s)
        row("CPU at 10 Hz, one job, mode 3", f"{share:.2f} % of a core", "3 %")
        row("resident memory", f"{rss_bytes / 1e6:.0f} MB", "80 MB")
        took = sorted(keypress(screen, key) for key in KEYS)
        row("keypress to paint, median", f"{took[len(took) // 2] * 1000:.0f} ms", "100 ms")
        row(f"keypress to paint, longest of {len(took)}", f"{took[-1] * 1000:.0f} ms", "100 ms")
        screen.press("q")
        screen.code()
    finally:
        screen.close()


def eight_ranks(env: dict[str, str], for_s: float) -> None:
    code = RANKS.format(paths=[str(ROOT), str(ROOT / "tests"), str(ROOT / "tui")])
    screen = Terminal(env=env, command=[sys.executable, "-c", code])
    try:
        screen.until(lambda s: "ranks" in s.text)
        share, rss_bytes = load(screen, for_s)
        row("CPU at 10 Hz, 8 ranks, first screen", f"{share:.2f} % of a core", "6 %")
        row("resident memory, 8 ranks", f"{rss_bytes / 1e6:.0f} MB", "80 MB")
        screen.press("q")
        screen.code()
    finally:
        screen.close()


def first_paint(pid: int, env: dict[str, str]) -> float:
    """Seconds from the start of the process to the first row on the screen."""
    began_s = time.monotonic()
    screen = Terminal("attach", str(pid), env=env)
    try:
        screen.until(lambda s: "regime:" in s.text)
        took_s = time.monotonic() - began_s
        screen.press("q")
        screen.code()
    finally:
        screen.close()
    return took_s


def keypress(screen: Terminal, key: str) -> float:
    """Seconds until the mode of this key is shown."""
    screen.drain()
    began_s = time.monotonic()
    screen.press(key)
    screen.until(shows(f"[{key} "), step_s=0.002)
    return time.monotonic() - began_s


def shows(text: str) -> Callable[[Terminal], bool]:
    return lambda screen: text in screen.lines[0]


def load(screen: Terminal, for_s: float) -> tuple[float, int]:
    """Share of a core in percent and resident memory, while somebody reads the terminal."""
    screen.drain(2.0)
    return spent(screen.process.pid, lambda: screen.drain(for_s))


def row(what: str, measured: str, promised: str) -> None:
    print(f"{what:<44} {measured:>16}   {promised}", flush=True)


if __name__ == "__main__":
    main()
