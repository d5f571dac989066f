"""What a recorded step's operators do, and what twice the batch would take: a process of its own.

In: a recording of `step_recorder`. Out: the rows `work` of `records.TracedSteps`, first without and then with
times of the replay, and a `ShadowProbe`. Times are the thread's CPU time, the least of several rounds: other
programs only ever lengthen a call.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from math import prod
from statistics import median
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from .call_work import fixed_calls, repeated_calls, unread_calls, work_table
from .device_queue import StepQueue, device_ratio
from .device_replay import DeviceReplay
from .player import ONE_BY_ONE, CallPlayer, NoAnswer, ReplayedStep, Shape
from .step_record import RecordedStep, StepCall, StepValue, TimedStep, read, tensors_in, timed_steps

LEAST_COVERAGE = 0.9
FAR = 8  # times the batch: B and 2B say little of memory beyond
# What speaks for a size being B, and how clearly: the input, a dimension of data, an operator's own word.
LIKE_INPUT, DIMENSIONS, SAID, CLEARLY = 0.7, (1.0, 0.6), 2.0, 1.5
BUDGET_NS = 1_000_000_000  # of replays
GROUPS = 3  # each a reading of its own
MOST_ROUNDS = 5  # in each
FACTORS = (0.5, 1, 2)  # of B
SWEEP = (0.25, 0.5, *(1 << power for power in range(7)))
SWEEP_NS = 400_000_000  # no size is added to a sweep that would take longer once
SPARED = 0.5  # of the free memory
UNKNOWN = 0.2  # share of a step whose growth nobody knows: loading but for items, Python at length
PICKS = {f"aten::{name}" for name in ("select", "slice", "narrow", "index", "index_select", "unbind")}


def replayed(
    torch: ModuleType,
    recording: Mapping[str, Any],
    on_work: Callable[[list[dict[str, Any]]], None] = lambda work: None,
) -> dict[str, Any]:
    """The rows `work`, and `probe` where that was asked for.

    Args:
        on_work: Gets the rows before anything is replayed, which takes long if a job has all CPUs.
    """
    work: list[dict[str, Any]] = []
    uuid = recording["device"]
    try:
        program = read(torch, recording["trace"])
        torch.set_num_threads(recording["threads"])
        steps = timed_steps(program, recording["timed"])
        found: Mapping[str, Any] = {}
        free_bytes = recording["free_bytes"] or 0
        if not uuid:
            on_work(_work(torch, program, steps, recording["timed"], found))
        try:
            if not steps:
                raise NoAnswer("steps differ in what they run")
            if not uuid:  # on a device it depends on whether the device waits for the host
                _scales(steps)
            batch, flat = _batch(program, recording["batch"])
            factors = SWEEP if recording["sweep"] else FACTORS if recording["probe"] else (1,)
            if uuid:
                found = DeviceReplay(torch, program, batch, flat).timed(uuid, free_bytes)
            else:
                found = _timed(CallPlayer(torch, program, batch, flat), factors, free_bytes)
            probe = _answer(program, batch, found, steps, recording)
        except (NoAnswer, RuntimeError, MemoryError) as error:
            failed = f"operators fail on made-up data: {type(error).__name__}"
            probe = {"status": "abstained", "why": str(error) if isinstance(error, NoAnswer) else failed}
        if not found and not uuid:  # the calls as they were; a failed replay's memory is free by now
            with contextlib.suppress(NoAnswer, RuntimeError, MemoryError):
                found = _timed(CallPlayer(torch, program, 1), (1,), free_bytes)
        if not uuid:
            work = _work(torch, program, steps, recording["timed"], found)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        probe = {"status": "abstained", "why": f"the step's record can't be read: {error}"[:200]}
    probe |= {"step_ns": recording["step_ns"], "sweep": recording["sweep"]}
    return {"work": work, "probe": probe if recording["probe"] else None}


def _scales(steps: Sequence[TimedStep]) -> None:
    """Raises NoAnswer where no replay can tell how the steps grow with B."""
    # The least: a thread that waits for a CPU looks like Python at length.
    held = min(step.held_ns / step.step_ns for step in steps)
    loading = min(step.collating_ns / step.step_ns for step in steps)
    if loading + held > UNKNOWN:
        loads = "collating" if steps[0].collating_ns < steps[0].loading_ns else "loading"
        what, share = max((loads, loading), ("Python between operators", held), key=lambda each: each[1])
        raise NoAnswer(f"{what} takes {100 * share:.0f} % of the step, and a replay can't scale that")


def _work(
    torch: ModuleType,
    program: RecordedStep,
    steps: Sequence[TimedStep],
    timed: Sequence[Any],
    found: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Times are those of timed steps that ran the same operators, else those of the like in one, in order."""
    same = [step.calls for step in steps]
    if not same:
        seen: dict[str, list[tuple[float, str]]] = {}
        for name, _, own_ns, phase, *_ in timed[-1][1] if timed else ():
            seen.setdefault(name, []).append((own_ns, phase))
        like = {name: chain(each, repeat(each[-1])) for name, each in seen.items()}
        names = [call.name.partition(".")[0] for call in program.calls]
        same = [[("", 0, *next(like.get(name, repeat((0, "other"))))) for name in names]]
    times = [
        (sum(one[2] for one in column) / len(same), str(column[0][3])) for column in zip(*same, strict=True)
    ]
    groups = found["times"][found["batch"]] if found else ()
    alone = {index: min(column) for index, column in enumerate(zip(*groups, strict=True)) if all(column)}
    phases = [phase for _, phase in times]
    by_phase = {"unread_ns": unread_calls, "repeated_ns": repeated_calls} if steps else {}
    parts = {name: find(program.calls, phases) for name, find in by_phase.items()}
    parts["fixed_ns"] = fixed_calls(program.calls)
    return work_table(program.calls, times, CallPlayer(torch, program, 1).operator, alone, parts)


def _batch(program: RecordedStep, told: int | None) -> tuple[int, Shape]:
    """B, and sizes of data that hold several of each sample in one dimension: as places of a sequence.

    Most of a step's data have B as first dimension, and it divides what operators say of samples.

    Raises:
        NoAnswer: the step reads no data, or another size may be B as well. The length of time-first sequences
            also grows without an error, and the answer would be wrong.
    """
    least = 1 if told == 1 else 2  # dimensions of one are everywhere; where the input says so, they count
    likely: dict[int, float] = {told: LIKE_INPUT} if told is not None else {}
    said = {count for count in program.samples if count >= least}
    shapes = [*(value.shape for value in _data(program, told)), *program.random]
    for shape in shapes:
        for size, weight in zip(shape, DIMENSIONS, strict=False):
            if size >= least:
                likely[size] = likely.get(size, 0.0) + weight
    places = {prod(shape[:2]) for shape in shapes if shape[:1] == (told,)} - {told}
    for size in list(likely):
        if size in (program.lengths - said) | places or any(count % size for count in said):
            del likely[size]
        elif size in said:
            likely[size] += SAID
    best = sorted(likely, key=lambda size: -likely[size])
    if not best:
        raise NoAnswer("the step reads no data that all of its operators take as a batch")
    listed = {told or 0} if all(len(shape) == 1 for shape in shapes if shape[:1] == (told,)) else set()
    flat = {size for size in places | listed if size > best[0] > 1 and size % best[0] == 0}
    rivals = [size for size in best[1:] if size not in flat and likely[best[0]] < CLEARLY * likely[size]]
    if rivals:
        raise NoAnswer(f"its batch may be {best[0]} or {rivals[0]}")
    return best[0], tuple(flat)


def _data(program: RecordedStep, told: int | None) -> Iterator[StepValue]:
    """What the step reads of data; of a whole data set, the part that it picks. No copies of weights."""
    weights = {value.shape for value in program.values if value.weight}
    uses: dict[int, list[StepCall]] = {}
    for call in program.calls:
        for value in tensors_in(call.args):
            uses.setdefault(value.number, []).append(call)
    waiting = [value for value in program.values if value.given and not value.owned and value.last_use >= 0]
    while waiting:
        value = waiting.pop()
        calls = uses.get(value.number, [])
        alone = value.shape[:1] == (told,) and len(value.shape) < 3  # its rows are single samples
        if value.shape in weights and value.shape[:1] != (told,):
            continue
        if not alone and PICKS.issuperset(call.name.partition(".")[0] for call in calls):
            waiting += [each for call in calls for each in call.outputs if each is not None]
        else:
            yield value


def _timed(player: CallPlayer, factors: Sequence[float], free_bytes: int) -> Mapping[str, Any]:
    """Times of each call at so many times the batch.

    Raises:
        NoAnswer: there is too little memory, or the step handles samples one by one.
    """
    batch, peak = player.batch, player.peak_bytes({})
    runs: dict[int, ReplayedStep] = {}
    once_ns = 0
    with player.torch.enable_grad():  # some operators keep what their backward needs only then
        for factor in sorted(factors, key=lambda factor: factor != 1):
            width, held = max(1, int(batch * factor)), player.held_bytes(sum(runs) / batch + factor)
            needed = held + int(1.5 * factor * peak)
            if needed > SPARED * free_bytes:
                if factor <= 2:
                    raise NoAnswer(f"a replay at {width} needs {needed >> 20} MiB of memory")
            elif width not in runs and (factor <= 2 or factor * once_ns <= SWEEP_NS):
                runs[width] = ReplayedStep(player, width)
                if not once_ns:  # by the wall clock: who gets little of a CPU repeats little
                    began_ns = perf_counter_ns()
                    runs[width].play()
                    once_ns = perf_counter_ns() - began_ns
        if any(ONE_BY_ONE in why for why in player.failed.values()):
            raise NoAnswer(ONE_BY_ONE)
        round_ns = max(1, once_ns * sum(runs) / batch)  # at most: little work takes as long at any size
        rounds = max(1, min(MOST_ROUNDS, int(BUDGET_NS * len(runs) / (len(FACTORS) * GROUPS * round_ns))))
        least: dict[int, list[list[int]]] = {width: [] for width in runs}
        for number in range(GROUPS):
            spent: dict[int, list[list[int]]] = {width: [] for width in runs}
            for turn in range(rounds):
                for width in sorted(runs, reverse=bool((turn + number) % 2)):
                    spent[width].append(runs[width].play())
            for width, plays in spent.items():
                least[width].append([min(times) for times in zip(*plays, strict=True)])
    twice = runs.get(2 * batch, runs[batch])
    return {
        "batch": batch,
        "times": least,
        "failed": player.failed,
        "peak": peak,
        "peak_2x": player.peak_bytes(twice.shapes),
        "scaled": twice.shapes != runs[batch].shapes,
    }


def _answer(
    program: RecordedStep,
    batch: int,
    found: Mapping[str, Any],
    steps: Sequence[TimedStep],
    recording: Mapping[str, Any],
) -> dict[str, Any]:
    failed = found["failed"]
    in_job = [
        median(one[1] for one in column) for column in zip(*(step.calls for step in steps), strict=True)
    ]
    covered = 1 - sum(in_job[index] for index in failed) / max(1.0, sum(in_job))
    if covered < LEAST_COVERAGE:
        dearest = max(failed, key=lambda index: in_job[index])
        raise NoAnswer(f"only {100 * covered:.0f} % of operator time can be replayed ({failed[dearest]})")
    if not found["scaled"]:
        raise NoAnswer("no tensor of the step grows with the batch")
    times = found["times"]
    base = [min(column) for column in zip(*times[batch], strict=True)]
    device = [
        StepQueue(program, step, found["waits"], base, recording["step_ns"])
        for step in steps
        if recording["device"]
    ]
    points = []
    for width, groups in sorted(times.items()):
        factor = width / batch
        ratios = [
            device_ratio(device, group, factor)
            if device
            else median(_ratio(step, base, group, factor) for step in steps)
            for group in groups
        ]
        points.append(
            {"batch": width, "shadow_ns": [max(1, int(recording["step_ns"] * ratio)) for ratio in ratios]}
        )
    per_sample = (found["peak_2x"] - found["peak"]) / batch
    free, far = recording["free_bytes"], max(FAR * batch, points[-1]["batch"])
    fits = int(batch + (0.8 * free - found["peak"]) / per_sample) if per_sample >= 1 and free else None
    return {
        "status": "ok",
        "batch": batch,
        "points": points,
        "operations": len(program.calls),
        "notes": [f"{100 * covered:.0f} % of operator time was replayed"],
        "memory": {
            "saved_bytes": found["peak"],
            "per_sample_bytes": per_sample,
            "peak_bytes": found["peak"],
            "peak_2x_bytes": found["peak_2x"],
            "free_bytes": free,
            "largest_batch": max(batch, min(fits, far)) if fits is not None else None,
        },
    }


def _ratio(step: TimedStep, base: Sequence[int], times: Sequence[int], factor: float) -> float:
    """This step at `factor` times the batch over itself: each call by its replay's, loading by `factor`.

    Both are of one step, so that whatever else the machine had to do then lengthens both.
    """
    more: float = sum(
        call[1] * (now / before - 1)
        for call, before, now in zip(step.calls, base, times, strict=True)
        if before and now
    )
    return float(1 + (more + step.loading_ns * (factor - 1)) / step.step_ns)


def main() -> None:
    """Import torch from the folders given as arguments, if all that it needs is there. Then read a recording
    from standard input, and tell what is known on standard output, a line each time that it is more.
    """

    def tell(payload: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(payload) + "\n")
        sys.stdout.flush()

    sys.path += sys.argv[1:]
    with contextlib.suppress(ImportError, OSError, ValueError):  # the latter: of CUDA's libraries
        import torch
    recording = json.loads(sys.stdin.buffer.read())
    sys.path += recording["paths"]
    import torch

    tell(replayed(torch, recording, lambda work: tell({"work": work, "more": True})))
