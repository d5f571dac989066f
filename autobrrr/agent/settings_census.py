"""Settings and habits that make a job slow whatever it computes: one exact read each.

In: torch's and Python's switches, as the training thread has them between two steps; parameters, optimizer
states and dynamo's own records, read by the agent's thread. Out: the event `census` (`records.SettingFact`s).
Nothing is set, and no figure of time is needed: it holds on a busy machine.
"""

from __future__ import annotations

import dis
import os
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .live_torch.available_memory import figure
from .live_torch.dispatch_modes import unseen, unwatched
from .live_torch.job_signals import OF_TORCH
from .loop.train_loop import TrainLoop
from .measure.code_sites import RESUMED, is_own, named
from .measure.stack_sampler import foreign_folders

Value = tuple[float, str]  # how much, and what of
Left = dict[str, set[tuple[int, int]]]  # by model: gradients that no optimizer takes, each with its version
EVERY_S, LATE_S = 10.0, 3.0  # between looks; without a step boundary, the first look comes after the second
SMALLEST_NORMAL = 1.17549435e-38  # of float32
MOST_STATES, SAMPLED, SAMPLED_ROWS = 64, 1024, 256  # elements of a state, rows of a gradient
PADDED = 1 << 14  # numbers of a batch that are looked at
ELSEWHERE = 0.1  # of what does not pad is the same number: unknown words, ends of sentences
ALL_FIRE_IN = 20  # steps, in which each optimizer steps
LARGE = 1 << 20  # elements of a table whose rows are looked at
COMPILED_S, COMPILED_FEWEST_S = 60.0, 10.0  # over which compiling counts
PILED = 8  # copies of a hook on one object, which a step runs all
HOOKS = ("_backward_hooks", "_forward_hooks", "_forward_pre_hooks", "_post_accumulate_grad_hooks")
FEWEST = 3  # the same once more, for other shapes, is usual
SETTERS = {  # names by which a line sets something
    "set_detect_anomaly": "anomaly",
    "detect_anomaly": "anomaly",
    "use_deterministic_algorithms": "deterministic",
    "set_num_threads": "threads",
    "double": "float64",
    "float64": "float64",
    "emit_nvtx": "profiler",
    **{f"register_{kind}hook": "hooks" for kind in ("", "forward_", "forward_pre_", "full_backward_")},
    "register_post_accumulate_grad_hook": "hooks",
    "pad_sequence": "padding",
    "max_length": "fixed_padding",  # of a tokenizer, as `padding`
}


class SettingsCensus:
    """Reads them at a boundary of the loop, and again now and then."""

    def __init__(self, loop: TrainLoop) -> None:
        self._loop = loop
        self._switches: dict[str, Value] | None = None  # as the training thread has seen them
        self._known: dict[str, Value] = {}  # by the look before
        self._allocator: dict[str, int] | None = None
        self._left = Left()
        self._padded = deque[tuple[int, ...]](maxlen=64)  # rows, length, numbers looked at, and of `_pads`
        self._asked, self._asked_s, self._all_fired = False, -EVERY_S, False

    def facts(self) -> dict[str, object] | None:
        """What a look has found that was not told yet; asks for another one where that is due."""
        now_s, found, late = time.monotonic(), self._switches, False
        unread = (bool(self._loop.phases.texts) and not self._padded) or not self._all_fired
        measured = self._loop.measuring.task is not None
        every_s = LATE_S if self._asked or unread else EVERY_S
        if now_s - self._asked_s >= every_s + LATE_S * measured:
            late = self._asked or measured  # long steps: tell now what needs no boundary
            self._asked_s = now_s + (EVERY_S - LATE_S if late else 0)
            if not late:
                self._asked, self._all_fired = True, self._loop.hot.steps >= ALL_FIRE_IN
                self._loop.post(self._look)
        self._switches = None
        if found is None and not late:
            return None
        self._known = self._known if found is None else found
        compiled = list(getattr(sys.modules.get("torch._dynamo.utils"), "_compilation_metrics", ()))
        with unseen(), self._loop.torch.no_grad():
            found = self._known | dict(_weights(self._loop, self._left)) | _recompiles(compiled)
            found |= _graph_breaks(compiled) | _piled_hooks(self._loop)
        out, held = (figure(Path("/proc/self/status"), name) or 0 for name in ("VmSwap", "VmRSS"))
        found |= {"swap": (out / (out + held), "")} if out else {}  # of the process's memory
        lines = _setting_lines(self._loop) if found else {}
        return {
            "facts": [
                {"name": name, "value": round(value, 3), "detail": detail, "where": lines.get(name)}
                for name, (value, detail) in found.items()
            ],
            "allocator": self._allocator,
        }

    def _look(self) -> None:
        """On the training thread, between two steps."""
        torch, self._asked = self._loop.torch, False
        with OF_TORCH, unwatched(torch), torch.no_grad():
            found = {name: (1.0, detail) for name, on, detail in _switches(torch) if on}
            self._switches = found | _unused_rows(self._loop) | _padding(self._loop, self._padded)
            # What torch's allocator has counted on this thread's device; None without one.
            seen = torch.cuda.memory_stats() if torch.cuda.is_initialized() else None
            kinds = {"reserved_bytes": "reserved_bytes.all.current", "peak_bytes": "allocated_bytes.all.peak"}
            self._allocator = seen and {name: int(seen.get(kind, 0)) for name, kind in kinds.items()}


def _switches(torch: ModuleType) -> Iterator[tuple[str, bool, str]]:
    """Of this thread and of the process: name, whether it is on, how."""
    environ, on_cuda = os.environ, torch.cuda.is_initialized()
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    yield "threads", threads > cores, f"{threads} threads on {cores} CPUs"
    yield "anomaly", torch.is_anomaly_enabled(), ""
    yield "profiler", torch.autograd._profiler_enabled(), ""
    yield "deterministic", torch.are_deterministic_algorithms_enabled(), ""
    yield "cudnn_benchmark", on_cuda and not torch.backends.cudnn.benchmark, ""
    watcher = type(sys.gettrace() or sys.getprofile())
    yield "tracing", watcher is not type(None), f"{watcher.__module__}.{watcher.__qualname__}"
    tools = getattr(sys, "monitoring", None)
    watching = [tools.get_tool(n) for n in range(6) if tools and tools.get_tool(n) and tools.get_events(n)]
    yield "monitoring", bool(watching), ", ".join(watching)
    memory = sys.modules.get("tracemalloc")
    frames = memory.get_traceback_limit() if memory is not None and memory.is_tracing() else 0
    yield "tracemalloc", frames > 0, f"{frames} frames"
    yield "launch_blocking", on_cuda and environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"), ""
    yield "distributed_debug", environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL", "DETAIL"


def _unused_rows(loop: TrainLoop) -> dict[str, Value]:
    """Of all parameters, those in rows of large tables that this step had no gradient for.

    Only of tables with a dense gradient on a CPU.
    """
    weights: list[Any] = loop.job.updated
    grads = [each.grad for each in weights if each.dim() == 2]
    dense = [each for each in grads if type(each) is loop.torch.Tensor and each.layout is loop.torch.strided]
    tables = [each for each in dense if each.numel() >= LARGE and each.device.type == "cpu"]
    unused, largest = 0.0, max(tables, key=len, default=None)
    for table in tables:
        rows = table[:: max(1, len(table) // SAMPLED_ROWS)]
        unused += float((rows == 0).all(dim=1).float().mean()) * table.numel()
    if not unused or largest is None:
        return {}
    detail = f"{largest.shape[0]} x {largest.shape[1]}" + f", and {len(tables) - 1} more" * (len(tables) > 1)
    return {"unused_rows": (unused / sum(map(loop.torch.numel, weights)), detail)}


def _padding(loop: TrainLoop, seen: deque[tuple[int, ...]]) -> dict[str, Value]:
    """Of the numbers in batches, those that pad. Batches of one length have to show it clearly."""
    texts = loop.phases.texts
    while texts:
        text: Any = texts.popleft()
        if type(text) is loop.torch.Tensor and text.dtype in (loop.torch.int64, loop.torch.int32):
            some = text[:: 1 + text.numel() // PADDED]
            told = max(map(_pads, (some, some.flip(1))), key=itemgetter(1))
            seen.append((*text.shape, some.numel(), *told))
    rows, lengths, numbers, pads, clear = ([each[at] for each in seen] for at in range(5))
    share, different = sum(pads) / max(1, sum(numbers)), len(set(lengths))
    if share and different >= FEWEST:
        return {"padding": (share, f"{min(lengths)} to {max(lengths)}")}
    fixed = different == 1 and len(lengths) >= FEWEST and 2 * sum(clear) > len(clear)
    return {"fixed_padding": (share, f"{max(rows)} x {lengths[0]}")} if fixed else {}


def _pads(text: Any) -> tuple[int, bool]:
    """How many repeat the last of their row; whether it is clear that no data ends so.

    One number does it, for different lengths, and hardly stands elsewhere, and the rest is no mask's.
    """
    runs = (text == text[:, -1:]).flip(1).int().cumprod(1).sum(1)
    runs *= (runs > 1) & (runs < text.shape[1])  # a mask is all ones where nothing pads
    if len(runs.unique()) < FEWEST:
        return int(runs.sum()), False
    pad = text[runs > 0, -1].mode().values
    rest, padded = text[text != pad], int(runs[text[:, -1] == pad].sum())
    few = text.numel() - len(rest) - padded <= ELSEWHERE * (text.numel() - padded)
    one = padded >= (1 - ELSEWHERE) * int(runs.sum())
    return int(runs.sum()), few and one and int(rest.max() - rest.min()) >= FEWEST


def _weights(loop: TrainLoop, left: Left) -> Iterator[tuple[str, Value]]:
    """Doubles among the parameters, gradients nobody takes, denormal numbers in what the optimizers keep.

    `left`: such gradients, by the look before. What has not changed since is of earlier training.
    """
    sizes, tiny, seen, states = Counter[object](), 0, 0, list[Any]()
    for parameter in loop.job.updated:
        sizes[parameter.dtype] += parameter.numel()
    for optimizer in loop.job.optimizers:
        kept = [one for one in list(getattr(optimizer, "state", {}).values()) if isinstance(one, dict)]
        # An operator on a DTensor is a collective. No other rank expects it, and gloo ends the process.
        states += [value for one in kept for value in list(one.values()) if type(value) is loop.torch.Tensor]
    floats = [one for one in states if one.dtype is loop.torch.float32 and one.numel() > 1]
    for value in floats[:: max(1, len(floats) // MOST_STATES)]:
        if value.device.type == "cpu" and value.is_contiguous():
            some = value.detach().view(-1)[:: max(1, value.numel() // SAMPLED)].abs()
            tiny += int(((some > 0) & (some < SMALLEST_NORMAL)).sum())
            seen += some.numel()
    updated, trained, untrained = set(map(id, loop.job.updated)), 0, Counter[str]()
    # A layer that is called by itself, too, is a root beside its model.
    in_roots = {id(each): (root, each) for root in loop.job.roots for each in root.parameters()}  # type: ignore[attr-defined]
    now: Left = defaultdict(set)
    for root, each in in_roots.values():
        if id(each) in updated:  # its gradient may not be there yet
            trained += each.numel()
        elif each.is_leaf and each.grad is not None:
            untrained[type(root).__name__] += each.numel()
            now[type(root).__name__].add((each.grad._cdata, each.grad._version))
    for model in [model for model in now if now[model] == left.get(model, now[model])]:
        del untrained[model]
    left.clear()
    left.update(now)
    # Optimizers of copies, as of float32 ones, have at least as many parameters that are in no model.
    if trained and untrained.total() > sizes.total() - trained and loop.hot.steps >= ALL_FIRE_IN:
        [(model, _)] = untrained.most_common(1)
        yield "untrained", (untrained.total() / (trained + untrained.total()), model)
    if sizes[loop.torch.float64]:
        yield "float64", (sizes[loop.torch.float64] / sizes.total(), "parameters")
    if tiny:
        yield "denormals", (tiny / seen, "optimizer state")


def _piled_hooks(loop: TrainLoop) -> dict[str, Value]:
    """Of the hooks on one module or parameter, the share that are further copies of one function."""
    copies = Counter[tuple[int, CodeType]]()
    for one in [*loop.job.updated, *(each for root in loop.job.roots for each in root.modules())]:  # type: ignore[attr-defined]
        for hook in [hook for name in HOOKS for hook in list((getattr(one, name, None) or {}).values())]:
            if isinstance(hook, (FunctionType, MethodType)):
                copies[id(one), hook.__code__] += 1
    [((_, code), most)] = copies.most_common(1) or [((0, _piled_hooks.__code__), 0)]
    return {"hooks": (1 - 1 / most, named(code, 0))} if most >= PILED else {}


def _recompiles(log: list[Any]) -> dict[str, Value]:
    """Of the last seconds, the share that dynamo has spent compiling what it had compiled before."""
    now_s = time.time()
    recent = [each for each in log if (each.start_time_us or 0) > (now_s - COMPILED_S) * 1e6]
    again = [each for each in recent if (each.cache_size or 0) > 0]
    if len(again) < FEWEST:
        return {}
    last, since_s = again[-1], min(again[0].start_time_us / 1e6, now_s - COMPILED_FEWEST_S)
    spent_s = sum(each.duration_us or 0 for each in recent) / 1e6  # with those of backwards
    why = (getattr(last, "recompile_reason", None) or "").strip().splitlines()
    reason = why[-1].strip(" -")[:160] if why else ""
    place = f"{os.path.basename(last.co_filename)}:{last.co_firstlineno} {last.co_name}"
    return {"recompiles": (min(1.0, spent_s / (now_s - since_s)), f"{place}: {reason}")}


def _graph_breaks(log: list[Any]) -> dict[str, Value]:
    """Where dynamo goes on in a frame of its own, named after function and line, it had to stop before."""
    reasons, found = dict[str, str](), dict[str, str]()
    for each in log:
        resumed = RESUMED.fullmatch(each.co_name or "")
        name = resumed[1] if resumed else each.co_name or ""
        if resumed:
            place = f"{os.path.basename(each.co_filename)}:{resumed[2]} {name}"
            found.setdefault(place, reasons.get(name, ""))
        for text in getattr(each, "restart_reasons", None) or ():
            if not text.startswith("<"):  # else it has begun anew for itself
                lines = [line.strip() for line in text.splitlines()]
                told = (line for line in lines if line.startswith("Explanation:"))
                reasons[name] = next(told, lines[0]).removeprefix("Explanation:").strip(" .")[:160]
    if not found:
        return {}
    place, reason = next(iter(found.items()))
    more = f"; and at {len(found) - 1} more" if len(found) > 1 else ""
    return {"graph_breaks": (1.0, f"{place}{f' ({reason})' if reason else ''}{more}")}


def _setting_lines(loop: TrainLoop) -> dict[str, str]:
    """Lines that set one of these, in the user's code that is on the training thread's stack."""
    foreign, found = foreign_folders(loop.torch), dict[str, str]()
    frame = sys._current_frames().get(loop.hot.owner)
    while frame is not None:
        waiting = [frame.f_code] if is_own(frame.f_code, foreign) else []
        while waiting:
            code = waiting.pop()
            waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
            names = {*code.co_names, *code.co_consts} & SETTERS.keys()
            for one in dis.get_instructions(code) if names else ():
                if one.argval in names and one.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_CONST"):
                    found.setdefault(SETTERS[one.argval], named(code, one.offset))
        frame = frame.f_back
    return found
