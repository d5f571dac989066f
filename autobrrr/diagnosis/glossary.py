"""What every figure and signal means: where it comes from, and the guards that may silence it."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.glossary_words import Explanation, words
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signals import host_slack, uneven_steps
from autobrrr.diagnosis.verdict.agreement import AGREEMENT
from autobrrr.trace.causes import time_slices
from autobrrr.trace.verdict.trace_limit import KERNELS_NAMED_AT

NAMED, EXCLUDED = of_one(thresholds.NAMED_AT), of_one(thresholds.EXCLUDED_AT)


def _signal(name: str, meaning: str, source: str, *guards: str) -> Explanation:
    return Explanation(name=name, kind="signal", meaning=meaning, source=source, guards=guards)


def _regime(name: str, meaning: str) -> Explanation:
    pairs = [f"{pair.first} + {pair.second}" for pair in AGREEMENT if pair.regime == name]
    if pairs:
        source = f"named when these agree: {', or '.join(pairs)}"
    elif name in ("mixed", "unknown"):
        source = "the reason says which, and the command that would decide it"
    else:
        source = "not named yet: this version does not measure the second signal that it takes"
    guards = (f"takes {NAMED} of the step", f"leads by {100 * thresholds.LEAD:.0f} points") if pairs else ()
    return Explanation(name=name, kind="regime", meaning=meaning, source=source, guards=guards)


def _limit(name: str, meaning: str, source: str, *guards: str) -> Explanation:
    return Explanation(name=name, kind="limit", meaning=meaning, source=source, guards=guards)


def _figure(name: str, meaning: str, source: str, *guards: str) -> Explanation:
    return Explanation(name=name, kind="figure", meaning=meaning, source=source, guards=guards)


ENTRIES: tuple[Explanation, ...] = (
    _signal(
        "traced_steps",
        "The part of the step in forward, backward and optimizer in which no kernel works: Python and the "
        f"dispatcher. {NAMED} speaks for overhead, {EXCLUDED} or less excludes it.",
        "A timing dispatch mode around a few real steps gives the kernel work inside operators; plain steps "
        "between them give the time it is taken from. The weights stay bitwise the same.",
        f"at least {thresholds.TRACED_STEPS} traced and as many plain steps",
        f"plain steps vary by at most {of_one(thresholds.STEP_SPREAD)} (IQR over median)",
        f"kernel work varies by at most {of_one(thresholds.KERNEL_SPREAD)} of the step",
        f"a traced step takes at least {thresholds.TRACED_OVER_PLAIN} of a plain one; where it takes less, "
        f"down to {thresholds.TRACED_LEAST}, kernels are a lower bound, and nothing but kernels is named",
        f"run-queue delay below {of_one(thresholds.BUSY_AT)}",
        "eager CPU jobs only; never with --readonly",
    ),
    _signal(
        "batch_probe",
        "The part of the step that does not grow with the batch. It never decides alone: weights and "
        "optimizer state that are moved once per step do not grow either, and are memory traffic.",
        "A recorded step is replayed at B/4, B/2, B and 2B between real steps, without touching weights, "
        "gradients or random streams; t(B) = replay + optimizer + rest, fitted by fixed + per_sample * B.",
        "the replay and the optimizer make up {} to {} of the step".format(
            *map(of_one, thresholds.RECONSTRUCTION)
        ),
        f"every point within {of_one(thresholds.LINEAR_ERROR)} of the line",
        f"replays of one size vary by at most {of_one(thresholds.REPLAY_SPREAD)}",
        "the batch dimension is verified, not guessed; otherwise the probe is not available",
    ),
    _signal(
        "op_cost",
        "Operators in a step, times what dispatching one costs in this process, over the step. A low value "
        "excludes nothing: Python between operators is not counted.",
        "Operators are counted in the traced steps; the cost of one is calibrated on a tiny tensor.",
        "replaces batch_probe only where that one is not available",
    ),
    _signal(
        "profiler_window",
        "The part of a profiled step that lies between operators and compiled graphs, outside the loader and "
        f"host code. {NAMED} speaks for overhead; operators that fill the step and are long exclude it. In "
        "compiled code, where forward can't be timed apart, it speaks for host where half of the step lies "
        "between operators and, by sampled stacks, in the user's own code at once. On a GPU the device's "
        "idle time, by cause, carries the verdict instead.",
        "A few real steps under torch.profiler, without stacks, and as many plain ones before them; the "
        "trace is read as by `autobrrr analyze`.",
        "unasked only on a GPU or in compiled code; else --window, or key w; never with --readonly",
        "not while the job profiles itself or starts a process",
    ),
    _signal(
        "loader_wait",
        "The part of the step that the loop waits for its next batch.",
        "A clock around the DataLoader's `next`, in sampled steps.",
        f"at least {thresholds.SAMPLED_STEPS} sampled steps",
        "not on a GPU, where the device may be working meanwhile",
    ),
    _signal(
        "loader_queue",
        "How often the workers' prefetch queue was empty when looked at.",
        "The agent's thread looks at the queue while it samples stacks.",
        f"at least {thresholds.FRAME_SAMPLES} looks",
        "only with DataLoader workers",
    ),
    _signal(
        "loader_frames",
        "How often the training thread was found inside the loader.",
        "Stacks of the training thread, sampled by the agent's thread.",
        f"at least {thresholds.FRAME_SAMPLES} samples",
    ),
    _signal(
        "host_time",
        "The part of the step outside loading, forward, backward and optimizer in which no operator runs.",
        "What the sampled phases leave of the step, less the kernel work in it and its dispatch.",
        "needs traced steps that pass their guards",
    ),
    _signal(
        "host_frames",
        "How often the training thread was found in the loop's own code between the phases, and where.",
        "Stacks of the training thread, sampled by the agent's thread.",
        f"at least {thresholds.FRAME_SAMPLES} samples",
    ),
    _signal(
        "phase_frames",
        "How often the training thread was found in one function of the user's inside forward, backward or "
        "optimizer, where operators explain less than half of the time in which no kernel works: Python "
        "that works or sleeps there, which compiling does not remedy.",
        "Stacks of the training thread, sampled by the agent's thread; operators of the traced steps, times "
        "what dispatching one costs.",
        f"at least {thresholds.FRAME_SAMPLES} samples",
    ),
    _signal(
        "collective_wait",
        "What collectives of gradients take beyond the backward that hides them, and those that the loop "
        "calls by itself: this rank waits for the others, or for the network. "
        f"{NAMED} speaks for communication, {EXCLUDED} or less excludes it. The others wait for the rank "
        "that waits least.",
        "In a few plain steps the clock of DistributedDataParallel, and a clock around calls of collectives "
        "and around waiting for their results.",
        f"at least {thresholds.COLLECTIVE_STEPS} steps",
        "eager CPU jobs; functional collectives (DTensor) are not seen",
    ),
    _signal(
        "blocked_thread",
        "The part of the step in which the training thread sleeps in forward, backward, optimizer or a "
        "collective: it neither runs nor waits for a CPU.",
        "The thread's CPU time and run-queue delay in the same steps, less loading and the user's code.",
        "only where collectives were timed",
    ),
    _signal(
        "kernel_time",
        "The part of the step that kernels of one kind take: matrix products above the ridge of this "
        "machine (compute), or all that moves tensors, products of too few rows included (memory). "
        f"{NAMED}, and twice the other kind, speaks for the kind; {EXCLUDED} or less excludes it.",
        "Traced steps, operator by operator; one more step, in which shapes are read, says what each "
        "had to do.",
        "the guards of traced_steps",
    ),
    _signal(
        "traffic",
        "What moving the step's tensors takes at the bandwidth of this machine, plus its page faults. "
        f"Speaks for memory where that explains {of_one(thresholds.EXPLAINED_AT)} of the kernels that move "
        "tensors.",
        "Bytes from the operators' shapes (each input and output once), over a measured triad; page faults "
        "of sampled steps, times what one costs here.",
        "no kernel counts for more than it took: caches are faster than memory",
        "peaks at the job's own number of threads; what others took from them counts against it",
    ),
    _signal(
        "matmul_rate",
        "FLOP/s of matrix products, convolutions and attention, as a part of what this machine reaches "
        f"with as many threads. {NAMED} speaks for compute.",
        "FLOPs from the operators' shapes over the time inside them; the peak from a benchmark of a square "
        "product, or the whole curve where `autobrrr roofline` has run.",
        f"products take at least {EXCLUDED} of the step",
        "peaks at the job's own number of threads; what others took from them counts against it",
    ),
    _signal(
        "roofline",
        "How much of the kernels' time the nearer roof, FLOP/s or bandwidth, explains. Below "
        f"{of_one(thresholds.ROOF_LOW)} of both, kernels that are short, or made of many small products, are "
        "underfilled; of long ones it is told that they are far below both roofs, and why where shapes tell "
        "it.",
        "Shapes of the operators, over measured peaks and over the time inside them.",
        "large tensors that move slowly (page faults, exponentials) stay memory",
    ),
    _signal(
        "page_faults",
        "The part of the step spent on minor page faults. An allocator that gives large tensors back to "
        "the kernel must fault them in again in every step. It names no regime alone, and adds to traffic.",
        "The training thread's own count in sampled steps, times the cost of a first touch, measured here.",
    ),
    _signal(
        "garbage",
        "The part of the step that Python's garbage collector takes. It names no regime alone: the time "
        "belongs to whatever phase a collection begins in.",
        "A callback of Python's `gc`, there in sampled steps only.",
    ),
    _signal(
        "loader_cpu",
        "How much of a core each DataLoader worker uses: near 100 %, more workers or cheaper samples help; "
        "far below while training waits, they wait for a disk or a network themselves.",
        "CPU time of the job's children in /proc.",
        "only with DataLoader workers",
    ),
    _signal(
        "uneven_steps",
        "The part of the time that a few much longer steps take beyond the usual one: evaluations, "
        "checkpoints, logging. The verdict speaks of the usual step.",
        "Durations in the agent's ring.",
        f"at least {uneven_steps.LEAST_STEPS} steps",
        f"a long step takes {uneven_steps.LONGER} times the median",
    ),
    _signal(
        "host_lead",
        "How often the host came to a step's end while the GPU was still in an earlier step. Where it nearly "
        "always does, nothing of the host's doing limits the step.",
        "Events in the GPU's queue, asked about and never waited for.",
        f"at least {thresholds.SAMPLED_STEPS} stamped steps",
        "being seldom ahead proves nothing: the queue may hold less than a step, or the loss is read",
    ),
    _signal(
        "host_slack",
        "Whether the GPU waits where the host is held up on purpose. Where it has work queued at both "
        "places of the step, it does not wait for dispatch; where it idles at both, it waits for the host, "
        "unless steps get no longer for it.",
        "In eight of seventeen steps the training thread is kept busy for a twentieth of a step, four times "
        "between two steps and four times before the backward; events around it in the GPU's queue.",
        f"at least {host_slack.LEAST_HOLDS} holds at a place",
        f"the GPU idles for at most {of_one(host_slack.BUSY_AT)} of a hold, or at least "
        f"{of_one(host_slack.IDLE_AT)} of it",
        "jobs on a GPU only; never with --readonly or --no-probe",
    ),
    _signal(
        "nvml",
        "What the GPU's driver shows from outside. GPU-Util says that some kernel ran, not how much of the "
        "device it filled, so it names no regime; the note says where the clock is held down, or another "
        "process computes on the same device.",
        "NVML, five times a second on a thread of its own, and on Hopper and later GPM's counters of SMs, "
        "tensor cores and memory. Medians of the last ten seconds.",
        "not while a tuning measures",
        "in a container the driver's process numbers may be others: then only where there is one GPU",
    ),
    _signal(
        "oversubscription",
        "How long the training thread was ready to run while other threads of its own job had the CPUs. "
        f"Speaks for overhead from {of_one(thresholds.BUSY_AT)} on, where torch has more threads than "
        "the job has CPUs: operators then wait for threads that wait for a CPU. Fewer threads help.",
        "The thread's run-queue delay in /proc, less all that anybody else ran on the job's CPUs meanwhile.",
        "CPU time of other programs is subtracted first",
        "named only where kernels stay far below both roofs (roofline)",
    ),
    _signal(
        "busy_machine",
        "How long the training thread was ready to run and had no CPU, as far as others had it. "
        f"From {of_one(thresholds.BUSY_AT)} on a verdict is low at best, and given only where the delay, all "
        f"taken off its share, leaves it ahead; from {of_one(thresholds.WITHHELD_AT)} on it is withheld.",
        "The run-queue delay in /proc/PID/task/TID/schedstat, time stolen by other guests, and time in which "
        "a container's CPU limit stopped the job.",
    ),
    _limit(
        "kernels",
        "As a limit: the kernels of the device, or the CPU, whatever they do: compute, memory and "
        "underfilled together. Only less work, other kernels or a faster device make the step shorter.",
        "Their part of the step, by traced steps; on a GPU and in a trace by the union of kernels in time.",
        f"takes {of_one(thresholds.LIMIT_AT)} of the step ({of_one(KERNELS_NAMED_AT)} of a trace)",
        f"{thresholds.OVERHEAD_TIMES} times what the host takes",
    ),
    _limit(
        "startup",
        "As a limit: first launches, loading of modules and compilation. It passes by itself: look at later "
        "steps. In traces only.",
        "Launch calls of 1 ms or more while the device idles, and calls that load, compile or tune.",
        "early steps are left out where steps are marked",
    ),
    _limit(
        "shared",
        "As a limit: another process has the device in turn. In traces only.",
        "Equal gaps long after the launch in which nothing runs, between operations that elsewhere follow "
        "each other at once.",
        f"at least {time_slices.LEAST_GAPS} gaps of {time_slices.LEAST_NS / 1e6:g} ms or more",
    ),
    _regime("overhead", "The step is spent in Python, the dispatcher and launches, not in kernels."),
    _regime(
        "input",
        "The step is spent waiting for data. As a limit also: copies between host and device with no kernel "
        "beside them.",
    ),
    _regime(
        "host",
        "The step is spent in the user's own code between loading, model and optimizer. As a limit: that and "
        "overhead together, all that the host does while nothing else works.",
    ),
    _regime(
        "sync", "On a GPU: the host waits for the device by choice (.item(), prints). As a limit the same."
    ),
    _regime("communication", "Collectives that no computation hides. As a limit the same."),
    _regime("memory", "Moving tensors: pointwise operators, norms, optimizer traffic, embeddings."),
    _regime("compute", "Matrix products near the peak of the device."),
    _regime("underfilled", "Kernels back to back, each far below both roofs."),
    _regime(
        "mixed",
        "The step is measured and no single part leads, or two signals contradict. As a limit: nobody holds "
        "most of the step by a clear lead.",
    ),
    _regime(
        "unknown",
        "Not measured, not reliable, or no two signals agree. As a limit: too much is not explained.",
    ),
    _figure(
        "limit",
        "Who limits the step: host, input, sync, communication, kernels, startup or shared; above the "
        "regime, which says with what. It can be sure over a mixture: 55 % products and 31 % moving tensors "
        "are kernels.",
        "The parts of the step, by its own clock, summed by who they belong to.",
        f"takes {of_one(thresholds.LIMIT_AT)} of the step and leads by {100 * thresholds.LEAD:.0f} points",
        f"`high` from {of_one(thresholds.LIMIT_FIRM_AT)} on, with a second signal, even steps and a quiet "
        "machine",
    ),
    _figure(
        "shares",
        "Parts of the whole step. Those that are measured sum to one with `other`, which is what no "
        "measurement separates; null is not measured. In compiled code `host` is a lower bound.",
        "Sampled phases, divided by the kernel work of traced steps.",
    ),
    _figure(
        "confidence",
        "`high`: both signals pass their guards with room to spare, steps are even, the machine is quiet, "
        f"and {thresholds.STEPS_FIRM} steps were seen. Everything else is `low`.",
        "The signals' guards.",
    ),
    _figure(
        "ratio_2x",
        "How many times as long a step at twice the batch would take. By itself it decides nothing. The "
        "interval spans a rest of the step that stays constant and one that grows with the batch.",
        "The batch probe.",
        "null unless all guards of batch_probe pass",
        "null where page faults of the larger batch would carry it",
    ),
    _figure("fixed_ns", "The part of a step that does not grow with the batch.", "The batch probe's fit."),
    _figure("per_sample_ns", "What one more sample adds to a step.", "The batch probe's fit."),
    _figure(
        "step_ns",
        "Duration of a step: from the hand-over to training to the next update of the weights.",
        "The agent's ring; steps that were traced, skipped, evaluated or settling are left out.",
    ),
    _figure(
        "phases_ns",
        "Means of data wait, copies, forward (with the loss), backward, optimizer (with zero_grad), rest.",
        "Hooks that are on in short bursts of steps.",
        "host_to_device is null: on a CPU nothing is copied, and on a GPU a copy runs beside the host, so "
        "that no clock of the host shows it; there the profiler window does",
        "forward and optimizer are null in compiled code, which a hook would make compile anew: they lie in "
        "other, as the optimizer does where the job has a global optimizer hook of its own",
    ),
    _figure(
        "expected",
        "What a remedy would bring: 1.3 = 30 % more steps per second; null where the step does not show it.",
        "What the remedy would remove from the measured step. `tune` measures what it really brings.",
    ),
    _figure(
        "slowest",
        "The rank that the others wait for: it waits least in collectives and works longest, by at least "
        f"{of_one(thresholds.RANK_LEAD)} of the step and {thresholds.RANK_ERRORS:.0f} standard errors over "
        "the next one. All ranks' steps are equally long: in its own is work, in the others' waiting.",
        "The timed collectives of every rank that has a session on this machine; one rank is measured at a "
        "time, since the others wait for what is done to it.",
        "null with fewer than two timed ranks",
        f"with a rank missing, only one that waits {of_one(thresholds.RANK_WAITS_LITTLE)} of a step or less",
    ),
    _figure(
        "cost",
        "What being attached costs, per step and as a share of it.",
        "Hooks calibrated inside the target, and the agent's work at step boundaries, by its clock.",
    ),
)

EXPLANATIONS: dict[str, Explanation] = {entry.name: entry for entry in (*words(), *ENTRIES)}
