"""What twice the batch would take, told from a recorded step: the whole replay, in a process of its own.

In: a recording of `record_task`. Out: the payload of `probed` (`records.ShadowProbe`). Calls run in a fork,
since an operator may crash on made-up data: that costs this call alone. Times are the thread's CPU time, the
least of several rounds: other programs only ever lengthen a call.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from .player import Player, Run
from .step_record import Program, aligned, read

LEAST_COVERAGE = 0.9
CRASHES = 4
BUDGET_NS = 4_000_000_000  # of replays
GROUPS = 3  # each a reading of its own
MOST_ROUNDS = 5  # in each
SPARED = 0.5  # of the free memory
LOADED = 0.1  # share of a step that waits for workers: from here on it is not known what more samples do
NICER = 15  # than the sidecar: training comes first
NEVER = (1 << 32) - 1


class Refusal(Exception):
    """Why there is no answer; one clause."""


def replayed(torch: ModuleType, recording: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of `probed`."""
    known: dict[str, Any] = {"step_ns": recording["step_ns"], "total_pause_ns": recording["pause_ns"]}
    try:
        return {**known, **_replayed(torch, recording)}
    except Refusal as refusal:
        return {"status": "abstained", "why": str(refusal), **known}
    except (KeyError, ValueError, IndexError, TypeError) as error:
        return {"status": "abstained", "why": f"the step's record can't be read: {error!r}"[:200], **known}


def _replayed(torch: ModuleType, recording: Mapping[str, Any]) -> dict[str, Any]:
    program = read(torch, recording["trace"])
    if program.unknown:
        raise Refusal(f"the step runs {program.unknown[0][1]}, which can't be run again")
    batch = _batch(program, recording["batch"])
    torch.set_num_threads(recording["threads"])
    in_job = _times_in_job(program, recording["timed"])
    failed: dict[int, str] = {}
    for _ in range(CRASHES):
        found = _forked(torch, program, batch, failed, recording)
        if "crashed" not in found:
            break
        index = found["crashed"]
        if index in failed or index >= len(program.calls):
            raise Refusal("the replay ended unexpectedly")
        failed[index] = f"{program.calls[index].name}: it crashed on made-up data"
    else:
        raise Refusal("operators crash on made-up data")
    if "why" in found:
        raise Refusal(found["why"])
    return _answer(program, batch, found, in_job, recording)


def _batch(program: Program, told: int | None) -> int:
    """B: as the job's inputs showed it, where the step has data of that size; else what most data have."""
    sizes: Counter[int] = Counter()
    for value in program.values:
        if value.given and not value.owned and value.last_use >= 0:
            sizes.update({*value.shape[:2]} - {1})
    made = {
        size
        for call in program.calls
        for given in call.args
        if isinstance(given, list)
        for size in given
        if type(size) is int
    }
    if told is not None and told > 1 and (told in sizes or told in made):
        return told
    if told == 1:
        raise Refusal("a batch of one sample can't be told from other sizes")
    if not sizes:
        raise Refusal("the step reads no data of a batch")
    return sizes.most_common(1)[0][0]


def _times_in_job(program: Program, timed: Sequence[Sequence[Sequence[Any]]]) -> list[float]:
    """What each call took in the job, by the lower quartile; all alike where its steps differ."""
    steps = [found for found in (aligned(program.names, times) for times in timed) if found is not None]
    if not steps:
        return [1.0] * len(program.calls)
    rows = list(zip(*steps, strict=True))
    return [float(sorted(rows[call.at])[len(steps) // 4]) for call in program.calls]


def _forked(
    torch: ModuleType, program: Program, batch: int, failed: dict[int, str], recording: Mapping[str, Any]
) -> dict[str, Any]:
    """The timings of a fork; or which call crashed it."""
    at = mmap.mmap(-1, 4)
    at[:] = struct.pack("I", NEVER)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            begins = struct.Struct("I").pack_into
            player = Player(torch, program, batch, failed, lambda index: begins(at, 0, index))
            with os.fdopen(writer, "w") as out:
                json.dump(_timed(player, recording), out)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"crashed": struct.unpack("I", at[:])[0]}


def _timed(player: Player, recording: Mapping[str, Any]) -> dict[str, Any]:
    batch, torch = player.batch, player.torch
    with torch.enable_grad():  # some operators keep what their backward needs only then
        alone = Run(player, batch)
        peak = alone.peak_bytes()
        if 3 * peak > SPARED * _free_bytes():
            return {"why": f"a replay of twice the batch needs {3 * peak >> 20} MiB of memory"}
        runs = {batch: alone, 2 * batch: Run(player, 2 * batch)}
        if batch > 2:
            runs[batch // 2] = Run(player, batch // 2)
        count = len(player.program.calls)
        groups: list[dict[int, list[list[int]]]] = []
        first: dict[int, list[list[int]]] = {width: [[] for _ in range(count)] for width in runs}
        for width, run in runs.items():
            run.play(first[width])
        once = sum(sum(map(sum, spent)) for spent in first.values())
        rounds = max(1, min(MOST_ROUNDS, BUDGET_NS // max(1, GROUPS * once)))
        for number in range(GROUPS):
            spent: dict[int, list[list[int]]] = {width: [[] for _ in range(count)] for width in runs}
            for turn in range(rounds):
                order = sorted(runs, reverse=bool((turn + number) % 2))
                for width in order:
                    runs[width].play(spent[width])
            groups.append(spent)
    least = {
        str(width): [[min(times, default=0) for times in spent[width]] for spent in groups] for width in runs
    }
    return {
        "times": least,
        "failed": player.failed,
        "peak": peak,
        "peak_2x": runs[2 * batch].peak_bytes(),
        "scaled": runs[2 * batch].shapes != alone.shapes,
    }


def _answer(
    program: Program,
    batch: int,
    found: Mapping[str, Any],
    in_job: Sequence[float],
    recording: Mapping[str, Any],
) -> dict[str, Any]:
    failed = {int(index): why for index, why in found["failed"].items()}
    everything = sum(in_job)
    covered = sum(ns for index, ns in enumerate(in_job) if index not in failed) / max(1.0, everything)
    if covered < LEAST_COVERAGE:
        dearest = max(failed, key=lambda index: in_job[index])
        raise Refusal(f"{covered:.0%} of operator time can be run again ({failed[dearest]})")
    if not found["scaled"]:
        raise Refusal("no tensor of the step grows with the batch")
    step_ns, loading = recording["step_ns"], recording["loading_ns"]
    if recording["workers"] and loading > LOADED * step_ns:
        raise Refusal("the step waits for its loader's workers")
    times = found["times"]
    base = [min(column) for column in zip(*times[str(batch)], strict=True)]
    points = []
    for text, groups in sorted(times.items(), key=lambda item: int(item[0])):
        more = loading * (int(text) / batch - 1) if not recording["workers"] else 0.0
        points.append(
            {
                "batch": int(text),
                "shadow_ns": [max(1, int(step_ns + more + sum(group) - sum(base))) for group in groups],
            }
        )
    each = (found["peak_2x"] - found["peak"]) / batch
    free = recording["free_bytes"]
    fits = int(batch + (0.8 * free - found["peak"]) / each) if each >= 1 and free else None
    return {
        "status": "ok",
        "batch": batch,
        "points": points,
        "operations": len(program.calls),
        "notes": [f"{covered:.0%} of operator time was run again"],
        "memory": {
            "saved_bytes": found["peak"],
            "per_sample_bytes": each,
            "peak_bytes": found["peak"],
            "peak_2x_bytes": found["peak_2x"],
            "free_bytes": free,
            "largest_batch": max(batch, fits) if fits is not None else None,
        },
    }


def _free_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) << 10
    return 0


def main() -> None:
    """Read a recording from standard input, tell the payload on standard output."""
    recording = json.loads(sys.stdin.buffer.read())
    os.nice(NICER)
    sys.path += recording["paths"]
    import torch

    json.dump(replayed(torch, recording), sys.stdout)
