"""Constants of a CUDA machine on which the product's choices stand: queue, calls, rates, windows, NVML."""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.gpu.live_session import Measure

MOST_LAUNCHES = 4096
SLEEP_CYCLES = 2_000_000  # about a millisecond


def each_us(work: Callable[[], object], times: int = 2000) -> float:
    """Host time of one call, the median of ten rounds."""
    rounds = []
    for _ in range(10):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times // 10):
            work()
        rounds.append((time.perf_counter() - began) / (times // 10) * 1e6)
    torch.cuda.synchronize()
    return round(statistics.median(rounds), 3)


def queue_depth() -> object:
    """Launches that are taken before one has to wait for room: three times, for the host may be held up."""
    return [launches_until_one_waits() for _ in range(3)]


def launches_until_one_waits() -> int | None:
    torch.cuda.synchronize()
    for number in range(MOST_LAUNCHES):
        began = time.perf_counter()
        torch.cuda._sleep(SLEEP_CYCLES)
        if time.perf_counter() - began > 3e-4 and number > 8:
            torch.cuda.synchronize()
            return number
    torch.cuda.synchronize()
    return None


def graph_queue_depth() -> object:
    """The same for replays of a graph, by its kernels: how many entries one replay takes."""
    found = {}
    for kernels in (1, 10, 100, 400):
        x, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(kernels):
                x.add_(1)
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)
        replays = 0
        began = time.perf_counter()
        while time.perf_counter() - began < 0.5 and replays < MOST_LAUNCHES:
            before = time.perf_counter()
            graph.replay()
            if time.perf_counter() - before > 3e-3:
                break
            replays += 1
        found[kernels] = {"replays": replays, "host_us": round(0.5e6 / max(replays, 1), 2)}
        torch.cuda.synchronize()
    return found


def calls() -> object:
    x = torch.zeros(1, device="cuda")
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    device = torch.cuda.current_device()
    return {
        "add_": each_us(lambda: x.add_(1)),
        "sleep_1": each_us(lambda: torch.cuda._sleep(1)),
        "record": each_us(event.record),
        "query": each_us(event.query),
        "memory_allocated": each_us(torch.cuda.memory_allocated, 500),
        "memory_stats_nested": each_us(lambda: torch._C._cuda_memoryStats(device), 500),
        "is_current_stream_capturing": each_us(torch.cuda.is_current_stream_capturing),
    }


def rates() -> object:
    """Copy rate and products in TF a second by width and type."""
    found: dict[str, object] = {"copy_gbps": copy_gbps()}
    for kind in (torch.bfloat16, torch.float32):
        for width in (512, 1024, 2048, 4096, 8192):
            a = torch.randn(width, width, device="cuda", dtype=kind)
            spent_s = on_device_s(lambda a=a: a @ a)
            found[f"{str(kind).removeprefix('torch.')} {width}"] = round(2 * width**3 / spent_s / 1e12, 1)
    return found


def copy_gbps() -> float:
    source, target = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    return round(2 * source.numel() / on_device_s(lambda: target.copy_(source)) / 1e9, 1)


def on_device_s(work: Callable[[], object], times: int = 20) -> float:
    """Device time of one call, by events, behind a backlog."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    work()
    torch.cuda._sleep(20 * SLEEP_CYCLES)
    first.record()
    for _ in range(times):
        work()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / times


def host_bound() -> Callable[[], None]:
    """One step of a job that only launches."""
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(32, 64, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step


def windows(teardown: str | None) -> object:
    """Profiler windows one after the other: kernels in each, what they cost, steps before and after."""
    from torch.autograd import profiler as profilers

    step, found = host_bound(), []
    before_us = each_us(step, 400)
    for _ in range(3):
        profiler = profilers.profile(use_kineto=True, use_cpu=True, use_device="cuda", record_shapes=True)
        began = time.perf_counter()
        profiler._prepare_trace()
        profiler._start_trace()
        on_s = time.perf_counter() - began
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        if teardown is not None:
            os.environ["TEARDOWN_CUPTI"] = teardown
        began = time.perf_counter()
        result = profilers._disable_profiler()
        off_s = time.perf_counter() - began
        os.environ.pop("TEARDOWN_CUPTI", None)
        saved = saved_beside_a_clock(result)
        after_us = each_us(step, 400)
        found.append({"on_s": round(on_s, 3), "off_s": round(off_s, 3), **saved, "step_us": after_us})
    return {"step_us_before": before_us, "windows": found}


def saved_beside_a_clock(result: object) -> dict[str, object]:
    """What saving the trace takes, how long another thread stood still meanwhile, kernels in it."""
    ended, longest = threading.Event(), [0.0]

    def tick() -> None:
        last = time.perf_counter()
        while not ended.is_set():
            now = time.perf_counter()
            longest[0], last = max(longest[0], now - last), now

    thread = threading.Thread(target=tick)
    thread.start()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        began = time.perf_counter()
        result.save(file.name)  # type: ignore[attr-defined]
        saved_s = time.perf_counter() - began
        ended.set()
        thread.join()
        with open(file.name, "rb") as trace:
            text = trace.read()
    return {
        "save_s": round(saved_s, 3),
        "stood_still_s": round(longest[0], 3),
        "bytes": len(text),
        "kernels": text.count(b'"cat": "kernel"'),
    }


def nvml() -> object:
    """Which functions answer, how long a poll takes, and whether the driver knows this pid."""
    from autobrrr.machine.nvml import NvmlDevice

    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    device = NvmlDevice(os.getpid(), lambda: True, named=lambda: [uuid] if uuid else [])
    polls, sample = [], None
    for _ in range(25):
        began = time.perf_counter()
        sample = device.sample()
        polls.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.2)
    step = host_bound()
    alone_us = each_us(step, 400)
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            device.sample()
            ended.wait(0.2)

    thread = threading.Thread(target=poll)
    thread.start()
    polled_us = each_us(step, 400)
    ended.set()
    thread.join()
    device.close()
    return {
        "sample": str(sample),
        "uuid": uuid,
        "ms": [round(statistics.median(polls), 2), round(max(polls), 2)],
        "step_us": {"alone": alone_us, "polled": polled_us},
        "pid_namespace": os.readlink("/proc/self/ns/pid"),
    }


def versions() -> object:
    return {"cuda": torch.version.cuda, "python": sys.version, "cudnn": torch.backends.cudnn.version()}


FACTS: dict[str, Measure] = {
    "versions": versions,
    "queue depth": queue_depth,
    "queue depth of graphs": graph_queue_depth,
    "host microseconds of calls": calls,
    "rates": rates,
    "windows, CUPTI torn down": lambda: windows("1"),
    "NVML": nvml,
    "windows, CUPTI left": lambda: windows(None),  # the last: it stays in this process
}
