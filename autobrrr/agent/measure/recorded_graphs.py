"""What becomes of the graphs that calls of root modules record, while stacks are sampled.

In: what a root has returned; each run of autograd's engine. Out: as `records.CodeSite`s the lines whose
graphs end before the engine runs, outlive their steps, or are several in a step; that call many roots of one
shape, or one without gradients; that make gradients for nothing. A mark in the `metadata` of a graph's first
node ends with it: nothing is kept alive, and the engine calls no hook.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from sys import _getframe
from time import perf_counter_ns, thread_time_ns
from typing import Any

from ..live_torch.dispatch_modes import unseen
from ..live_torch.job_signals import ANY, Ours
from ..live_torch.module_call_slot import unwatch, watch
from ..live_torch.patches import Patch, around, patched, take_off_all
from ..loop.train_loop import TrainLoop
from ..phases.batch_shapes import arrays
from .code_sites import CallSite, Stacks, UserStack, named
from .dropped_gradients import DroppedGradients, Look
from .stack_sampler import foreign_folders, look_at

MOST_NS = 50_000_000  # of CPU that training gives for it, some 30 us a call
MOST_NODES = 1000  # from what a call returns to where its graph begins, 1.5 us each; BERT-large has 900
RECENT = 8  # steps whose graphs the loop's variables may hold
FEWEST = 4  # of a kind, for it to be told
FEWEST_RUNS = 3  # whose gradients were dropped
BY_ROW, TRAINS_BY_ROW = "calls by row", "trains by row"
MANY_ROWS = 8  # for one run of the engine
OUTPUT = f"{__name__}.output"  # in the metadata of nodes
Marks = list["weakref.ref[set[object]]"]


class RecordedGraphs:
    """The graphs of one job, as long as they are `followed`."""

    def __init__(self, loop: TrainLoop) -> None:
        self._loop, self._foreign = loop, foreign_folders(loop.torch)
        self._ours = Ours(Exception, told=loop.fail)
        self._spent_ns = 0
        self._began_ns = self._called_ns = self._until_ns = 0  # of this, of a call, of the last call's mark
        # Since the engine ran; how long the call took; whether it was of one row.
        self._open: list[tuple[Marks, UserStack, int, bool]] = []
        self._used: dict[int, list[tuple[Marks, UserStack]]] = {}  # by step: one for each run
        self._trains: set[CallSite] = set()  # calls that the engine ran in, or for
        self._calls_ns: Counter[tuple[str, UserStack]] = Counter()  # of a kind
        self._dropped = DroppedGradients(loop.job)
        self._runs: list[tuple[dict[int, Look], UserStack, int]] = []  # that have not ended: one in another
        self._weights = dict[int, dict[int, int]]()  # by root: what it trains, for which optimizer
        self._fed = set[int]()  # roots whose output another one was given, since the engine ran
        self._patches, self._watches = list[Patch](), list[Any]()
        self._kinds = dict[object, list[int]]()  # roots of one class and shape
        self._twins, self._twins_at = set[int](), dict[CallSite, set[int]]()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Watch calls of the job's root modules inside the `with` block. Safe from any thread."""
        self._began_ns = perf_counter_ns()
        try:
            self.keep_up()
            yield
        finally:
            for one in self._watches:
                unwatch(one)
            self._loop.left += take_off_all(self._patches)

    def keep_up(self) -> None:
        """Watch roots that have been found since: a job with long steps shows them late."""
        loop, known = self._loop, self._weights
        roots = [root for root in loop.job.roots if id(root) not in known]
        if not roots or loop.is_compiled():
            return
        # The engine first, so that it uses no mark unseen. Torch before 2.3 has no such call: no marks.
        around_runs = around(self._engine_runs, self._engine_ran)
        self._patches = self._patches or patched(loop.torch.autograd, "_engine_run_backward", around_runs)
        groups = ((id(one), getattr(one, "param_groups", ())) for one in loop.job.optimizers)
        owners = {id(weight): key for key, each in groups for group in each for weight in group["params"]}
        for root in roots:
            kind, known[id(root)] = _trained(root, owners)
            self._kinds.setdefault(kind if known[id(root)] else id(root), []).append(id(root))
            self._watches += [watch(root, self._enters, self._returned)] if self._patches else []
        self._twins = {one for same in self._kinds.values() if len(same) >= FEWEST for one in same}

    def sites(self, looks: int, stacks: Stacks) -> list[dict[str, object]]:
        """Lines of each kind; of so many looks those that would have found an unused call.

        Args:
            stacks: How many looks have found a line, whatever it called.
        """
        found: Counter[tuple[str, str]] = Counter()
        each_ns = max(1, self._until_ns - self._began_ns) / max(1, looks)
        for (what, stack), ns in list(self._calls_ns.items()) if self._used else ():
            # Not a function that trains, too, but who calls it and does not.
            for at in [at for at in stack if what == TRAINS_BY_ROW or at not in self._trains][:1]:
                found[what, named(*at)] += round(ns / each_ns)
                if what in (BY_ROW, TRAINS_BY_ROW):  # what is around each call would be done once, too
                    found[what, named(*at)] = max(found[what, named(*at)], stacks[at])
        for (what, at), runs_ns in list(self._dropped.spent_ns.items()):
            if len(runs_ns) >= FEWEST_RUNS:
                found[what, named(*at)] += round(sum(runs_ns) / each_ns)
        found.update({("twins", named(*at)): len(nets) for at, nets in list(self._twins_at.items())})
        last = self._loop.hot.steps - RECENT
        used = list(self._used.items())
        older = [runs[0] for step, runs in used if step < last]
        kept = [[id(end) for mark in marks if (end := mark()) is not None] for marks, _ in older]
        if all(kept) and len({ids[0] for ids in kept}) == len(kept):  # one graph for all steps does not grow
            found.update(("kept graphs", named(*stack[0])) for _, stack in older)
        for _, runs in used:
            if len(runs) > 1 and len({stack for _, stack in runs}) == 1:
                found["accumulates", named(*runs[0][1][0])] += 1
        return [
            {"what": what, "where": where, "samples": count}
            for (what, where), count in found.items()
            if count >= FEWEST
        ]

    def _enters(self, *_: object) -> None:
        self._called_ns = perf_counter_ns()

    def _returned(self, module: object, args: Iterable[object], result: object) -> None:
        loop, began_ns = self._loop, thread_time_ns()
        with self._ours:
            looked = loop.hot.live and self._spent_ns < MOST_NS
            graded = loop.torch.is_grad_enabled()
            fed, mine = set[int](), set(self._weights.get(id(module), {}).values())
            marks = _marked(result, id(module), fed) if looked and graded else []
            # By a loss, or a layer of the same network that is called by itself: no matter.
            self._fed |= {one for one in fed if mine and mine != {*self._weights.get(one, {}).values()}}
            if marks is None:
                self._spent_ns = MOST_NS  # the next call's graph is no less deep
            until_ns = perf_counter_ns()
            stack = look_at(_getframe(1), self._foreign).path if marks or (looked and not graded) else ()
            self._until_ns = until_ns if stack else self._until_ns
            if stack and not graded:
                what = BY_ROW if _is_one_row(args) else "without gradients"
                self._calls_ns[what, stack] += until_ns - self._called_ns
            elif marks and stack:
                alone = _awaits_none(args)
                self._open.append((marks, stack, until_ns - self._called_ns, alone and _is_one_row(args)))
                if alone and id(module) in self._twins:
                    self._twins_at.setdefault(stack[0], set()).add(id(module))
            self._gave(thread_time_ns() - began_ns)

    def _engine_runs(self, *_: object, **__: object) -> None:
        began_ns, before, path = thread_time_ns(), dict[int, Look](), UserStack()
        with self._ours:
            if self._spent_ns < MOST_NS:
                path = look_at(_getframe(1), self._foreign).path
                self._trains.update(path)
                before = self._dropped.before()
            found, self._open = self._open, []
            used, by_row = [], Counter[UserStack]()
            for marks, stack, ns, one_row in found:
                if any(mark() is not None for mark in marks):
                    used.append((marks, stack))
                    by_row[stack] += one_row
                    if by_row[stack] >= MANY_ROWS:
                        self._calls_ns[TRAINS_BY_ROW, stack] += ns
                    self._trains.update(stack)
                else:
                    self._calls_ns["unused graphs", stack] += ns
            if used:
                self._used.setdefault(self._loop.hot.steps, []).append(used[0])
            self._gave(thread_time_ns() - began_ns)
        self._runs.append((before, path, perf_counter_ns()))

    def _engine_ran(self, *_: object, **__: object) -> None:
        ended_ns, began_ns = perf_counter_ns(), thread_time_ns()
        with self._ours:
            before, path, run_ns = self._runs.pop()
            if before and path:
                beyond = set().union(*(self._weights.get(root, ()) for root in self._fed))
                self._dropped.after(before, path[0], ended_ns - run_ns, beyond)
            self._fed.clear()
            self._gave(thread_time_ns() - began_ns)

    def _gave(self, spent_ns: int) -> None:
        self._spent_ns += spent_ns
        self._loop.measuring.posted_ns += spent_ns


def _marked(result: object, root: int, fed: set[int]) -> Marks | None:
    """A mark in the first node of each graph; None if it is too deep, or this torch does not show it.

    The last node names its root; `fed` gets the other roots whose last nodes are on the way.
    """
    found, seen = Marks(), set[object]()
    with unseen(), ANY:
        for tensor in arrays(result):
            node: Any = getattr(tensor, "grad_fn", None)
            if node is not None:
                node.metadata.setdefault(OUTPUT, root)
            while node is not None and node not in seen:
                seen.add(node)
                if len(seen) > MOST_NODES:
                    return None
                fed.update({node.metadata.get(OUTPUT, root)} - {root})
                below = (one for one, _ in node.next_functions if one is not None and one.next_functions)
                deeper = next(below, None)
                if deeper is None:
                    found.append(weakref.ref(node.metadata.setdefault(__name__, set())))
                node = deeper
        return found
    return None


def _awaits_none(args: object) -> bool:
    """Whether no argument has a graph, as the result of another call would."""
    with unseen(), ANY:
        return all(getattr(one, "grad_fn", None) is None for one in arrays(args))
    return False


def _is_one_row(args: object) -> bool:
    """Whether a call is for one item: its first side is 1, or it is a single vector."""
    with unseen(), ANY:
        given: list[Any] = [*arrays(args)]
        sides = {len(each.shape) and each.shape[0] for each in given}
        vector = [len(each.shape) == 1 and each.is_floating_point() for each in given]
        return sides == {1} or vector == [True]
    return False


def _trained(root: object, owners: dict[int, int]) -> tuple[object, dict[int, int]]:
    """Its class with its weights' shapes; the optimizer of each that is updated, ids both."""
    parts: list[Any] = [root]
    with unseen(), ANY:
        for part in parts:
            parts += [one for one in part._modules.values() if one is not None]
        weights = [one for part in parts for one in part._parameters.values() if one is not None]
        taken = {id(one): owners[id(one)] for one in weights if id(one) in owners}
        return (type(root), *(one.shape for one in weights)), taken
    return None, {}
