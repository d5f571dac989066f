"""Do ranks ever differ in what is on, or wait for ever, when processes are stopped and killed at random?

    python -m benchmarks.tuning.rank_switches [--switches N] [--ranks R] [--each K]

Real gloo ranks on this machine, one agent in each, whose plans have a twelfth of their usual lead. A round
switches a fused update on and off, K times, asked by a rank drawn at random, while one drawn at random is
stopped for up to 150 ms.
Then one link is cut at a random moment, as when its sidecar is killed, with a switch asked for just before;
the others detach. Every rank notes at each step what is on: a step in which they differ is counted, and
weights are compared at the end. Each round is appended to `results/rank-switches.jsonl`, and only what is
missing of N switches is run; the table goes beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from autobrrr.injected.wire import framing
from benchmarks import ROOT
from benchmarks.planted.results import append, read
from support.injected.agent import Peer
from support.injected.rank_agents import RankJobs

RESULTS = ROOT / "benchmarks" / "results" / "rank-switches.jsonl"
TABLE = RESULTS.with_suffix(".md")
FUSED = {"remedy": "optimizer.fused", "options": {}, "allowed": ["bitwise", "rounding"]}
STOP_S = 0.15
# So that thousands fit into an hour; the fewest steps between a plan and its step stay as they are.
HURRY = """
from autobrrr.injected.ranks import rank_switching
rank_switching.LEAD_S, rank_switching.BUSY_MS = 0.005, 2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What became of one job."""

    seed: int
    ranks: int
    asked: int  # switches
    made: int  # by all ranks
    dropped: int
    steps: int
    differ: int | None = None  # steps in which ranks differ; None: a rank did not end
    equal: bool = False  # weights at the end
    hung: str | None = None


@contextlib.contextmanager
def stopping(jobs: RankJobs, draw: random.Random) -> Iterator[None]:
    """Stop a rank now and then."""
    over = threading.Event()

    def stop() -> None:
        while not over.wait(draw.random() / 2):
            pid = draw.choice(jobs.jobs).process.pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(draw.random() * STOP_S)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def play(seed: int, ranks: int, each: int) -> Round | None:
    """One job from beginning to end; None: the machine is too busy for it to begin within a minute."""
    draw = random.Random(seed)
    asked = made = dropped = 0
    with tempfile.TemporaryDirectory() as folder, RankJobs(Path(folder), ranks=ranks, between=HURRY) as jobs:
        try:
            peers = jobs.peers()
        except TimeoutError:
            return None
        try:
            log = ""
            for peer in peers:
                found = peer.ask("together", log=log)
                if not found["ok"]:
                    raise AssertionError(found)
                log = str(found["log"])
            with stopping(jobs, random.Random(seed + 1)):
                token: int | None = None
                lead = peers[0]
                for _ in range(each):
                    asked += 1
                    if token is None:
                        lead = draw.choice(peers)
                        done = lead.ask("apply", **FUSED)
                        token = int(str(done["token"])) if done["ok"] else None
                    else:
                        done = lead.ask("undo", token=token)
                        token = None if done["ok"] else token
                    made, dropped = made + bool(done["ok"]), dropped + (not done["ok"])
                cut(draw.choice(peers), draw)
                for peer in peers:
                    leave(peer)
            modes, weights = jobs.end()
        except (TimeoutError, subprocess.TimeoutExpired) as late:
            return Round(
                seed=seed,
                ranks=ranks,
                asked=asked,
                made=made,
                dropped=dropped,
                steps=0,
                hung=str(late)[:80],
            )
    differ = sum(len(set(step)) > 1 for step in zip(*modes, strict=True))
    return Round(
        seed=seed,
        ranks=ranks,
        asked=asked,
        made=made,
        dropped=dropped,
        steps=len(modes[0]),
        differ=differ,
        equal=len(set(weights)) == 1,
    )


def cut(peer: Peer, draw: random.Random) -> None:
    """Ask for a switch, and be gone before it is made, or while it is."""
    framing.send(peer.link, {"do": "apply", "id": 0, **FUSED})
    time.sleep(draw.random() * 0.3)
    peer.close()


def leave(peer: Peer) -> None:
    """Detach; nothing where the link was cut."""
    with contextlib.suppress(OSError, framing.Closed):
        peer.ask("detach", keep=False)


def table(rounds: list[Round]) -> str:
    lines = [
        "| ranks | jobs | switches made | dropped by all | steps | steps apart | weights equal | hung |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ranks in sorted({one.ranks for one in rounds}):
        of = [one for one in rounds if one.ranks == ranks]
        cells = (
            ranks,
            len(of),
            sum(one.made for one in of),
            sum(one.dropped for one in of),
            sum(one.steps for one in of),
            sum(one.differ or 0 for one in of),
            f"{sum(one.equal for one in of)} of {len(of)}",
            sum(one.hung is not None for one in of),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--switches", type=int, default=20_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--each", type=int, default=500)
    args = parser.parse_args()
    rounds = [Round(**each) for each in read(RESULTS)]
    of = [one for one in rounds if one.ranks == args.ranks]
    asked, seed = sum(one.asked for one in of), max((one.seed for one in rounds), default=0)
    while asked < args.switches:
        seed += 1
        played = play(seed, args.ranks, min(args.each, args.switches - asked))
        if played is None:
            print(f"job {seed} did not begin within a minute; the next one is tried", flush=True)
            continue
        rounds.append(played)
        asked += rounds[-1].asked
        append(RESULTS, asdict(played))
        print(rounds[-1], flush=True)
        TABLE.write_text(table(rounds) + "\n")
    print(table(rounds))
    return 0 if all(one.differ == 0 and one.equal for one in rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
