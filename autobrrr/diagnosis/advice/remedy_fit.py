"""Whether a remedy fits this very job, and why, in its own figures. One row a remedy.

A function answers None where the remedy has nothing to do here: on a CPU nothing of CUDA, for one
process nothing of DDP, nothing that is on already. A remedy without a row is told by its own sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.loader.loader_workers import waiting_workers
from autobrrr.agent.remedies.optimizer import optimizer_kernels
from autobrrr.diagnosis.advice.compiled_gain import compiled_gain
from autobrrr.diagnosis.advice.predicted_gains import implementation, more_threads, optimizer_share
from autobrrr.diagnosis.ledger import SAMPLER, WORKER_START, loading_parts
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.cpu_delay import is_oversubscribed
from autobrrr.diagnosis.models.held_phase import held_phase
from autobrrr.diagnosis.models.shares import kernels_between, step_parts, worth_freezing
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.robust_stats import duration, of_one, positive
from autobrrr.diagnosis.signals.kernels import fault_share
from autobrrr.diagnosis.signals.loading import loading_sleeps, workers_keep_up

UNDERSTOOD = {"optimizer.fused": optimizer_kernels.FUSED, "optimizer.foreach": optimizer_kernels.SAME_BITS}
SMALL_KERNEL_NS = 50_000  # mean kernel below which waking a second thread costs more than it brings
NOTICEABLE = 0.03  # share of the step from which page faults are worth a remedy
DISPATCH_CURES = ("compile.", "cuda.graph")  # what they remove is dispatch, and no code of the user's own
LOADER_SETTINGS = ("loader.", "batch.")  # of a DataLoader: nobody can change them without one

Why = Callable[[str, Measurements], str | None]


def why(name: str, measured: Measurements) -> str | None:
    """The reason, from this job's figures; None where the remedy has nothing to do here."""
    if name.startswith(DISPATCH_CURES) and held_phase(measured) is not None:
        return None
    has_loader = measured.anatomy is not None and measured.anatomy.loader_workers is not None
    if name.startswith(LOADER_SETTINGS) and not has_loader:
        return None
    row = ROWS.get(name)
    return REGISTRY[name].doc if row is None else row(name, measured)


def _never(name: str, measured: Measurements) -> str | None:
    """Too unsure to be advised from measurements: `tune` may try it all the same."""
    return None


def _on_cuda(name: str, measured: Measurements) -> str | None:
    return REGISTRY[name].doc if measured.facts is not None and measured.facts.on_cuda else None


def _with_ranks(name: str, measured: Measurements) -> str | None:
    ranks = None if measured.facts is None else measured.facts.world_size
    parallel = measured.anatomy is not None and "DistributedDataParallel" in measured.anatomy.roots
    return REGISTRY[name].doc if parallel and ranks is not None and ranks > 1 else None


def _not_compiled(name: str, measured: Measurements) -> str | None:
    if measured.compiled:
        return None
    parts = step_parts(measured)
    gain = None if parts is None else compiled_gain(measured, parts)
    if gain is None:
        return REGISTRY[name].doc
    low, high = gain.interval
    return (
        f"an estimate: {of_one(gain.dispatch)} of the step is dispatch that compiled code does not need, "
        f"{of_one(gain.traffic)} traffic that fusing operators saves; by what other scripts got of theirs, "
        f"{low:.2f} to {high:.2f} times as fast"
    )


def _operators_of(mark: str) -> Why:
    def runs(name: str, measured: Measurements) -> str | None:
        traced = measured.traced
        ops = [] if traced is None else [one.op for one in traced.by_op] + [one.op for one in traced.work]
        return REGISTRY[name].doc if any(mark in op for op in ops) else None

    return runs


def _channels(name: str, measured: Measurements) -> str | None:
    work = [] if measured.traced is None else measured.traced.work
    inputs = [one.shapes.split(" ")[0] for one in work if "convolution" in one.op]
    if inputs and all(shape.count("x") == 2 for shape in inputs):
        return None  # Conv1d: its tensors have no such layout
    return _operators_of("convolution")(name, measured)


def _low_precision(name: str, measured: Measurements) -> str | None:
    if kernels_between(measured) or measured.compiled:
        return None  # they are not the model's, or its calls can't be changed
    if _on_cuda(name, measured) is None and not measured.bf16:
        return None
    return REGISTRY[name].doc


def _with_workers(name: str, measured: Measurements) -> str | None:
    if _mostly(SAMPLER, measured):
        return None
    workers = None if measured.anatomy is None else measured.anatomy.loader_workers
    return REGISTRY[name].doc if workers else None


def _optimizer(name: str, measured: Measurements) -> str | None:
    if implementation(measured) in (name, "optimizer.fused"):
        return None
    parts, classes = step_parts(measured), UNDERSTOOD[name]
    spent = None if parts is None else optimizer_share(measured, parts)
    if parts is None or spent is None or spent < 0.01:
        return None
    names = None if measured.anatomy is None else measured.anatomy.optimizers
    if names is not None and not any(one in classes for one in names):
        return None
    if names is not None and not all(one in classes for one in names):  # the phase is not theirs alone
        return REGISTRY[name].doc
    idle = parts.idle("optimizer")
    tensors = None if measured.anatomy is None else measured.anatomy.parameter_tensors
    what = f"the optimizer takes {of_one(spent)} of the step"
    if idle:
        what += f", {of_one(idle)} of the step is its dispatch"
    each = f" over {tensors} tensors" if tensors else ""
    how = "one kernel updates all" if name == "optimizer.fused" else "lists of tensors need fewer calls"
    return f"{what}{each}; {how}"


def _threads(name: str, measured: Measurements) -> str | None:
    threads = None if measured.facts is None else measured.facts.threads
    work = kernel_work(measured.traced)
    more = more_threads(measured)
    if more is not None:
        return f"{threads} of {measured.cores} CPUs compute, others are free: large kernels can use {more[0]}"
    if is_oversubscribed(measured):
        return f"{threads} threads share {measured.cores} CPUs and wait for each other"
    if not threads or threads < 2 or not isinstance(work, KernelWork) or work.operations is None:
        return None
    each_ns = work.share * work.step_ns / work.operations
    if each_ns > SMALL_KERNEL_NS:
        return None
    return f"a kernel takes {duration(each_ns)} on average, too short to share among {threads} threads"


def _mostly(kind: str, measured: Measurements) -> bool:
    """Whether most of the wait for data is this, which more workers don't shorten.

    A sampler runs in the training process whatever the workers; of workers that start anew more take longer.
    """
    parts = loading_parts(measured)
    return kind in parts and parts[kind].share >= sum(one.share for one in parts.values()) / 2


def _persistent(name: str, measured: Measurements) -> str | None:
    start = loading_parts(measured).get(WORKER_START)
    if start is None or _with_workers(name, measured) is None:
        return None
    return (
        f"{of_one(start.share)} of the time goes into starting workers anew in each epoch, at {start.where}: "
        "persistent_workers=True keeps them"
    )


def options(name: str, measured: Measurements) -> dict[str, int]:
    """The options to try it with, where they are not its defaults."""
    more = more_threads(measured) if name == "threads.intra_op" else None
    if more is not None:
        return {"threads": more[0]}
    if name != "loader.workers" or not loading_sleeps(measured) or workers_keep_up(measured):
        return {}
    workers = 0 if measured.anatomy is None else measured.anatomy.loader_workers or 0
    return {"workers": waiting_workers(workers)}


def _workers(name: str, measured: Measurements) -> str | None:
    if _mostly(SAMPLER, measured) or _mostly(WORKER_START, measured):
        return None
    workers = 0 if measured.anatomy is None else measured.anatomy.loader_workers or 0
    cores = positive(measured.cores)
    if waiting := options(name, measured):
        return (
            "loading sleeps more than it computes (a disk, a network, a pause): more workers than CPUs may "
            f"wait beside each other, such as workers={waiting['workers']}"
        )
    if workers == 0 and cores == 1:
        return (
            "batches are loaded between steps; on one CPU a worker helps only where loading waits for a disk "
            "or a network"
        )
    if workers == 0:
        return "batches are loaded between steps; workers would load them during steps"
    if workers_keep_up(measured) or (cores is not None and workers >= cores):
        return None
    return f"{workers} workers do not keep up; more of them, or cheaper samples"


def _batch(name: str, measured: Measurements) -> str | None:
    return "what does not grow with the batch is shared by more samples; it changes the training"


def _garbage(name: str, measured: Measurements) -> str | None:
    share = worth_freezing(measured)
    if share is None:
        return None
    how = "today's objects need not be looked at again" if name == "gc.freeze" else "collect less often"
    return f"Python's garbage collector takes {of_one(share)} of the step; {how}"


def _page_faults(name: str, measured: Measurements) -> str | None:
    share, sampled = fault_share(measured), measured.phases
    if share is None or share < NOTICEABLE or sampled is None or sampled.minor_faults is None:
        return None
    return (
        f"{sampled.minor_faults:.0f} page faults a step take about {of_one(share)} of it: large tensors are "
        "given back to the system and faulted in anew"
    )


ROWS: Mapping[str, Why] = {
    "optimizer.fused": _optimizer,
    "optimizer.foreach": _optimizer,
    "threads.intra_op": _threads,
    "threads.inter_op": _never,
    "host.allocator": _never,
    "host.malloc": _page_faults,
    "gc.freeze": _garbage,
    "gc.threshold": _garbage,
    "batch.larger": _batch,
    "loader.workers": _workers,
    "loader.prefetch_factor": _with_workers,
    "loader.persistent_workers": _persistent,
    "loader.pin_memory": _on_cuda,
    "compile.default": _not_compiled,
    "compile.regional": _never,
    "compile.reduce_overhead": _on_cuda,
    "compile.max_autotune": _on_cuda,
    "layout.channels_last": _channels,
    "attention.sdpa": _operators_of("scaled_dot_product"),
    "precision.tf32": _on_cuda,
    "precision.float32_matmul_precision": _low_precision,
    "precision.autocast_bf16": _low_precision,
    "recompute.checkpoint": _on_cuda,
    "ddp.bucket_size": _with_ranks,
    "ddp.gradient_as_bucket_view": _with_ranks,
    "ddp.static_graph": _with_ranks,
    "cuda.allocator": _on_cuda,
}
