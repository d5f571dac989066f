"""Attach over and over to targets that are busy in every way, and count what goes wrong.

    python -m benchmarks.attach.attach_stress [--attaches 200] [--fresh 40] [--versions 3.11,3.13 | --device]
        [--only join] [--into ROWS.jsonl] [--for SECONDS]

Each target takes `--fresh` attaches per process, then a new process is started. A fault is a target
that died, or whose own arithmetic came out wrong, or an injection that was refused or never ran.
With `--into` each process adds a row, and the same command goes on where it was cut off, as long as the
sources of attach are the same; `--for` ends a piece after the process that is under way.
A busy target is entered by a pending call, one whose main thread sleeps while another works by a thread.
`--device`: jobs on a CUDA device, by the Python that runs this; `emurun` in front: on the emulated one.
Prints a table on standard error, one JSON object on standard output.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autobrrr.attach.ptrace.injector import InjectionWay, inject
from autobrrr.errors import AutobrrrError
from benchmarks import parser
from benchmarks.planted.results import append, read, revision
from support.attach import SLEEPS, interpreters, leaves

Row = dict[str, Any]
SOURCES = ("autobrrr/attach", "autobrrr/machine")  # a row is for what they were

# Each checks its own work, and ends with status 3 when it is wrong.
TARGETS = {
    "python": "while True:\n    total = 0\n    for i in range(3000): total += i\n    good(total == 4498500)",
    "malloc": "while True:\n    kept = [bytes([n % 251]) * n for n in range(600, 4000, 7)]\n"
    "    good(all(len(b) == n and b[0] == n % 251 for b, n in zip(kept, range(600, 4000, 7))))",
    "gil_held": "import re\nwhile True:\n    good(re.match(r'(a?){19}a{19}', 'a' * 19) is not None)",
    "compiling": "text = '\\n'.join(f'x{n} = {n}' for n in range(400))\n"
    "while True:\n    space = {}\n    exec(compile(text, 'made', 'exec'), space)\n"
    "    good(space['x399'] == 399)",
}
TORCH_TARGETS = {
    "eager": "import torch\ntorch.set_num_threads(1)\nlayer = torch.nn.Linear(64, 64)\n"
    "optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)\nx = torch.ones(32, 64)\n"
    "while True:\n    optimizer.zero_grad()\n    loss = layer(x).square().mean()\n    loss.backward()\n"
    "    optimizer.step()\n    good(bool(torch.isfinite(loss)))",
    "compiled": "import torch\ntorch.set_num_threads(1)\nlayer = torch.nn.Linear(64, 64)\n"
    "step = torch.compile(lambda x: layer(x).sin().square().mean())\nx = torch.ones(32, 64)\n"
    "want = step(x).item()\nprint('warm', flush=True)\n"
    "while True: good(step(x).item() == want)",
}
# A thread works, and checks its work; the main thread sleeps in each of these ways.
WORKS = (
    "import threading\ndef work():\n  while True:\n"
    "    kept = [bytes([n % 251]) * n for n in range(600, 4000, 7)]\n"
    "    good(all(len(b) == n and b[0] == n % 251 for b, n in zip(kept, range(600, 4000, 7))))\n"
    "thread = threading.Thread(target=work, daemon=True); thread.start()\n"
)
BESIDE = {f"{name} (beside)": WORKS + sleeps for name, sleeps in SLEEPS.items()}
# The same sixty steps over and over: their weights must come out the same to the bit each time.
TRAINS_AGAIN = (
    "import threading, torch\ntorch.set_num_threads(1)\n"
    "def weights():\n"
    "  torch.manual_seed(3)\n"
    "  net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 8))\n"
    "  optimizer = torch.optim.AdamW(net.parameters())\n"
    "  for _ in range(60):\n"
    "    optimizer.zero_grad(); net(torch.randn(16, 64)).square().mean().backward(); optimizer.step()\n"
    "  return torch.cat([p.detach().flatten() for p in net.parameters()])\n"
    "want = weights()\nprint('warm', flush=True)\n"
    "def work():\n  while True: good(torch.equal(weights(), want))\n"
    "thread = threading.Thread(target=work, daemon=True); thread.start()\n"
)
TORCH_BESIDE = {
    f"trains, {name} (beside)": TRAINS_AGAIN + SLEEPS[name]
    for name in ("join", "asyncio", "sleep", "pause", "kernel")
}
# A device kept busy in every way in which a host can be found.
DEVICE_TARGETS = {
    name: f"import torch\ntorch.set_num_threads(1)\n{source}"
    for name, source in {
        "in .item()": "x = torch.zeros(64, device='cuda')\nn = 0\nprint('warm', flush=True)\n"
        "while True:\n    n = (n + 1) % 1000; x.fill_(n); torch.cuda._sleep(200000); good(x[7].item() == n)",
        "launching": "x = torch.zeros(64, device='cuda')\nn = 0\nprint('warm', flush=True)\n"
        "while True:\n    for _ in range(2000): n = (n + 1) % 1000; x.fill_(n)\n"
        "    good(x[7].item() == n)",
        "in a replay": "x, y = torch.zeros(64, device='cuda'), torch.zeros(64, device='cuda')\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n    for _ in range(200): y.copy_(x)\n"
        "n = 0\nprint('warm', flush=True)\n"
        "while True:\n    n = (n + 1) % 1000; x.fill_(n)\n    for _ in range(20): graph.replay()\n"
        "    good(y[7].item() == n)",
        "in an allocation": "n = 0\nprint('warm', flush=True)\n"
        "while True:\n    n = (n + 1) % 1000; torch.cuda.empty_cache()\n"
        "    kept = [torch.full((1 << 16,), n + i, device='cuda') for i in range(40)]\n"
        "    good(kept[39][7].item() == n + 39); del kept",
        "in a pinned copy": "host = torch.arange(1 << 18, dtype=torch.float32).pin_memory()\n"
        "back = torch.zeros(1 << 18).pin_memory()\nn = 0\nprint('warm', flush=True)\n"
        "while True:\n    n = (n + 1) % 1000; host.fill_(n); x = host.to('cuda', non_blocking=True)\n"
        "    back.copy_(x, non_blocking=True); torch.cuda.synchronize(); good(back[-1].item() == n)",
    }.items()
}
PREAMBLE = "import os\ndef good(holds):\n    if not holds: os._exit(3)\nprint('ready', flush=True)\n"
ANSWER_S = 20.0


def main() -> int:
    flags = parser(__doc__)
    flags.add_argument("--attaches", type=int, default=200, help="per target and version, in all pieces")
    flags.add_argument("--fresh", type=int, default=40, help="attaches per process")
    flags.add_argument("--versions", default=",".join(sorted(interpreters())))
    flags.add_argument("--only", default="", help="parts of targets' names, with commas")
    flags.add_argument("--device", action="store_true", help="jobs on a CUDA device, by this Python")
    flags.add_argument("--into", type=Path, help="file of the rows")
    flags.add_argument("--for", dest="for_s", type=float, default=math.inf, help="seconds")
    args = flags.parse_args()
    until_s = time.monotonic() + args.for_s
    version_of_attach = revision(sources=SOURCES)
    rows = read(args.into, version_of_attach)
    parts = args.only.split(",")
    versions = args.versions.split(",")
    wanted = list(device_targets(parts) if args.device else targets(versions, parts))
    while time.monotonic() < until_s:
        each = fewest(wanted, rows, args.attaches)
        if each is None:
            break
        count = min(args.fresh, args.attaches - done(rows, each))
        row = {**each.named, "revision": version_of_attach, **stress(each, count)}
        rows.append(row)
        append(args.into, row)
    told = [summary(each, rows) for each in wanted if done(rows, each)]
    for one in told:
        print(_line(one), file=sys.stderr, flush=True)
    faults = sum(int(one["faults"]) for one in told)
    missing = sum(max(0, args.attaches - done(rows, each)) for each in wanted)
    attaches = sum(int(one["attaches"]) for one in told)
    print(json.dumps({"attaches": attaches, "missing": missing, "faults": faults, "rows": told}))
    return 1 if faults else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One time in: how long a thread stood still, and how many stops it took."""

    pause_ns: int
    tries: int


Go = Callable[[int, Path], AbstractContextManager[Taken]]


@contextmanager
def _by_call(pid: int, answer: Path) -> Iterator[Taken]:
    taken = inject(pid, leaves(answer))
    yield Taken(pause_ns=taken.pause_ns, tries=taken.tries)


@contextmanager
def _by_thread(pid: int, answer: Path) -> Iterator[Taken]:
    taken = inject(pid, f"open({str(answer)!r}, 'x').close()", way=InjectionWay.NEW_THREAD)
    yield Taken(pause_ns=taken.pause_ns, tries=taken.tries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A program that is entered, by a Python, in a way."""

    version: str
    python: str
    name: str
    source: str
    go: Go

    @property
    def named(self) -> dict[str, str]:
        """What tells its rows from others'."""
        return {"python": self.version, "target": self.name, "way": self.go.__name__.strip("_")}


def targets(versions: Sequence[str], parts: Sequence[str]) -> Iterator[Target]:
    """All programs of these Pythons whose names hold one of the parts."""
    for version in versions:
        python = interpreters()[version]
        with_torch = {**TORCH_TARGETS, **TORCH_BESIDE} if _has_torch(python) else {}
        for name, source in {**TARGETS, **BESIDE, **with_torch}.items():
            if not any(part in name for part in parts):
                continue
            go: Go = _by_thread if "beside" in name else _by_call
            yield Target(version=version, python=python, name=name, source=source, go=go)


def device_targets(parts: Sequence[str]) -> Iterator[Target]:
    """Jobs on the device that this Python's torch sees."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, source in DEVICE_TARGETS.items():
        if any(part in name for part in parts):
            yield Target(version=version, python=sys.executable, name=name, source=source, go=_by_call)


def done(rows: Sequence[Row], target: Target) -> int:
    """Attaches to a target so far."""
    return sum(int(row["attaches"]) for row in _of(rows, target))


def fewest(wanted: Sequence[Target], rows: Sequence[Row], attaches: int) -> Target | None:
    """The target that was entered least, so that each piece holds some of all; None where all are done."""
    count, at = min(((done(rows, each), at) for at, each in enumerate(wanted)), default=(attaches, 0))
    return wanted[at] if count < attaches else None


def summary(target: Target, rows: Sequence[Row]) -> Row:
    """All rows of a target as one, with figures in milliseconds."""
    found = _of(rows, target)
    return {
        **target.named,
        "attaches": sum(int(row["attaches"]) for row in found),
        "faults": sum(len(row["faults"]) for row in found),
        "what": sorted({fault for row in found for fault in row["faults"]}),
        "retried": sum(int(row["retried"]) for row in found),
        "stop_ms": figures([each for row in found for each in row["pauses_ms"]]),
        "latency_ms": figures([each for row in found for each in row["latencies_ms"]]),
    }


def _of(rows: Sequence[Row], target: Target) -> list[Row]:
    return [row for row in rows if target.named.items() <= row.items()]


def stress(target: Target, attaches: int) -> Row:
    """Attach so many times to one process: how it went, each time in milliseconds."""
    pauses_ms: list[float] = []
    latencies_ms: list[float] = []
    faults: list[str] = []
    count = retried = 0
    process = subprocess.Popen(
        [target.python, "-c", PREAMBLE + target.source], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    if "'warm'" in target.source:
        process.stdout.readline()
    try:
        for _ in range(attaches):
            count += 1
            answer = Path(f"/tmp/autobrrr-stress-{process.pid}")
            began = time.monotonic()
            try:
                with target.go(process.pid, answer) as taken:
                    while _is_awaited(answer, process, began):
                        time.sleep(0.0005)
            except AutobrrrError as error:
                faults.append(str(error))
                break
            pauses_ms.append(round(taken.pause_ns / 1e6, 3))
            retried += taken.tries > 1
            if not answer.exists():
                faults.append(f"never ran; status {process.poll()}")
                break
            answer.unlink()
            latencies_ms.append(round((time.monotonic() - began) * 1e3, 1))
        time.sleep(0.05)
        if process.poll() is not None:
            faults.append(f"target ended with {process.returncode}")
    finally:
        process.kill()
        process.communicate()
        for left in (f"/tmp/autobrrr-stress-{process.pid}", f"/tmp/autobrrr-stress-{process.pid}.part"):
            if os.path.exists(left):
                os.unlink(left)
    return {
        "attaches": count,
        "faults": faults,
        "retried": retried,
        "pauses_ms": pauses_ms,
        "latencies_ms": latencies_ms,
    }


def _is_awaited(answer: Path, process: subprocess.Popen[str], began_s: float) -> bool:
    return not answer.exists() and process.poll() is None and time.monotonic() < began_s + ANSWER_S


def figures(values: list[float]) -> dict[str, float]:
    """Median, p99 and maximum; nothing of nothing."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "max": round(ordered[-1], 3),
    }


def _line(row: dict[str, object]) -> str:
    return (
        f"{row['python']:>5} {row['target']:<24} {row['way']:<10} attaches {row['attaches']:>4}  "
        f"faults {row['faults']:>2}  "
        f"retried {row['retried']:>2}  stop {row['stop_ms']}  latency {row['latency_ms']}"
    )


def _has_torch(python: str) -> bool:
    asked = [python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"]
    return subprocess.run(asked, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
