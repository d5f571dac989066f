"""Feeds the parsers with inputs made to break them: crashes, hangs and what is lost in silence.

    python -m benchmarks.fuzzing.fuzz --inputs 1000000 --parser trace --shard 0/4 --state fuzz.json

Every input has a seed, so that a shard goes on where it stopped and a fault can be looked at again. Prints
a table: inputs, crashes, hangs, silent losses; and the seeds of the first faults.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.fuzzing.targets import TARGETS

HANG_S = 20  # one input takes milliseconds
SAVED_EVERY_S = 10.0
SHOWN = 10


class Hang(BaseException):
    """One input takes too long; no parser may catch it."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the inputs of one shard of one parser."""

    next_seed: int
    inputs: int = 0
    crashes: int = 0
    hangs: int = 0
    losses: int = 0
    faults: list[str] = field(default_factory=list)


def feed(target: Callable[[int], list[str]], tally: Tally) -> None:
    """Give a parser the input of the next seed."""
    seed = tally.next_seed
    fault = ""
    signal.alarm(HANG_S)
    try:
        lost = target(seed)
        if lost:
            tally.losses += 1
            fault = lost[0]
    except Hang:
        tally.hangs += 1
        fault = "hang"
    except Exception as error:  # noqa: BLE001 - to find any is what this is for
        tally.crashes += 1
        fault = f"{type(error).__name__}: {str(error)[:100]}"
    finally:
        signal.alarm(0)
    tally.inputs += 1
    if fault and len(tally.faults) < SHOWN:
        tally.faults.append(f"seed {seed}: {fault}")


def run(parser: str, inputs: int, shard: tuple[int, int], state: Path | None, for_s: float) -> Tally:
    """Feed one parser until its share of the inputs is used up, or time is."""
    index, count = shard
    key = f"{parser} {index}/{count}"
    known = json.loads(state.read_text()) if state is not None and state.exists() else {}
    tally = Tally(**known[key]) if key in known else Tally(next_seed=index)
    began = saved = time.monotonic()
    while tally.next_seed < inputs and time.monotonic() - began < for_s:
        feed(TARGETS[parser], tally)
        tally.next_seed += count
        if time.monotonic() - saved > SAVED_EVERY_S:
            saved = time.monotonic()
            _save(state, known, key, tally)
    _save(state, known, key, tally)
    return tally


def _save(state: Path | None, known: dict[str, object], key: str, tally: Tally) -> None:
    if state is not None:
        state.write_text(json.dumps({**known, key: asdict(tally)}))


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not 0 <= int(index) < int(count):
        raise argparse.ArgumentTypeError("INDEX/COUNT, such as 0/4")
    return int(index), int(count)


def _hang(*_: object) -> None:
    raise Hang


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=10_000, help="of each parser, over all shards")
    parser.add_argument("--parser", choices=list(TARGETS), action="append", help="all unless given")
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="INDEX/COUNT")
    parser.add_argument("--state", type=Path, help="where to go on; one file a shard")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="seconds for each parser")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _hang)
    print(f"{'parser':<12} {'inputs':>9} {'crashes':>8} {'hangs':>6} {'silent losses':>14}")
    for name in args.parser or TARGETS:
        found = run(name, args.inputs, args.shard, args.state, args.for_s)
        print(
            f"{name:<12} {found.inputs:>9} {found.crashes:>8} {found.hangs:>6} {found.losses:>14}", flush=True
        )
        for fault in found.faults:
            print(f"  {fault}", flush=True)


if __name__ == "__main__":
    main()
