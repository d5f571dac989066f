"""autobrrr next to py-spy, memray, Scalene, TraceML and torch.profiler, on one job.

    python -m benchmarks.attach.peers [--rounds 5] [--seconds 12] [--only TOOL …]

The job takes steps of a few milliseconds and records when each ended. Part of a step is its own slow
function, `moving_average`. In every round each tool meets a fresh job, in a drawn order; one job has no tool.

- *cost*: the median step while the tool is there (of a sampler: while it samples) over that without one.
- *pause*: the longest step while the tool comes in, less the median. Tools that start the job have none.
- *cause*: seconds until the tool's output holds `moving_average`, from the start of its command.

The peers are installed into a temporary folder, without what they would bring of the packages that are here.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

from benchmarks import parser

PEERS = ("py-spy", "memray", "scalene", "traceml-ai")
PEERS_NEED = ("cloudpickle", "pydantic", "pydantic-core", "annotated-types", "typing-inspection", "pyyaml")
CAUSE = "moving_average"
WARM_S = 4.0
JOB = """
import contextlib, os, sys, time, torch
from array import array
folder, seconds, profiled = sys.argv[1], float(sys.argv[2]), sys.argv[3:] == ["profiled"]

def moving_average(history):
    total = 0.0
    for value in history:
        total = 0.99 * total + 0.01 * value
    return total

def main():
    torch.set_num_threads(1)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(96, 96), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.ones(64, 96)
    open(folder + "/started", "w").close()
    history, ends = [0.5] * 20000, array("q", [time.monotonic_ns()])
    until = time.monotonic() + seconds
    profile = contextlib.nullcontext()
    if profiled:  # the tutorial's schedule, without an end
        profile = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3),
                                         with_stack=True, on_trace_ready=lambda _: None)
    with profile:
        while time.monotonic() < until:
            optimizer.zero_grad()
            loss = model(x).square().mean() + moving_average(history)
            loss.backward()
            optimizer.step()
            if profiled:
                profile.step()
            ends.append(time.monotonic_ns())
    with open(folder + "/ends", "wb") as out:
        ends.tofile(out)

main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """How a tool meets the job: attach once it runs, or start it; {pid}, {out}, {job} are filled in."""

    attach: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    profiled: bool = False
    output: str = ""
    lasts_s: float = 0.0  # after the command has returned


TOOLS = {
    "none": Tool(),
    "autobrrr": Tool(attach=(sys.executable, "-m", "autobrrr", "diagnose", "{pid}")),
    "py-spy": Tool(
        attach=("py-spy", "record", "-d", "5", "-f", "raw", "-o", "{out}", "--pid", "{pid}"), output="out"
    ),
    "memray": Tool(
        attach=(sys.executable, "-m", "memray", "attach", "-o", "{out}", "--duration", "5", "{pid}"),
        lasts_s=5.0,
    ),
    "scalene": Tool(start=("scalene", "run", "--cpu-only", "-o", "{out}", "{job}", "---")),
    "traceml": Tool(start=("traceml", "run", "{job}", "--args")),
    "torch.profiler": Tool(profiled=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """One tool, one job: steps while the tool was there, its pause, seconds to the cause; None: not seen."""

    steps_ns: list[int]
    pause_ns: int | None
    cause_s: float | None


def main() -> int:
    flags = parser(__doc__)
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--seconds", type=float, default=12.0, help="of a job after it is warm")
    flags.add_argument("--only", nargs="*", default=list(TOOLS), choices=list(TOOLS))
    args = flags.parse_args()
    met: dict[str, list[Meeting]] = {name: [] for name in args.only}
    with tempfile.TemporaryDirectory(prefix="autobrrr-peers-") as name:
        peers = Path(name) / "site"
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(peers)]
        subprocess.run([*install, *PEERS, *PEERS_NEED], check=True)
        for at in range(args.rounds):
            for tool in random.sample(args.only, len(args.only)):
                with tempfile.TemporaryDirectory(prefix="autobrrr-peers-") as folder:
                    met[tool].append(meet(TOOLS[tool], Path(folder), peers, args.seconds))
                print(f"round {at + 1} {tool}", file=sys.stderr)
    for tool, meetings in met.items():
        print(json.dumps({"tool": tool, **figures(meetings, met.get("none", []))}))
    return 0


def meet(tool: Tool, folder: Path, peers: Path, seconds: float) -> Meeting:
    """Run the job for so many seconds after it is warm, with the tool."""
    script = folder / "train.py"
    script.write_text(JOB)
    job = [str(folder), str(WARM_S + seconds), *(["profiled"] if tool.profiled else [])]
    paths = [str(peers), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": f"{peers}/bin{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    filled = {"out": str(folder / "out"), "job": str(script)}
    command = [word.format(**filled) for word in tool.start] or [sys.executable, str(script)]
    began_ns = time.monotonic_ns()
    process = subprocess.Popen(
        [*command, *job],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    cause_s, span_ns = None, None
    try:
        if tool.attach:
            while not (folder / "started").exists() and process.poll() is None:
                time.sleep(0.05)
            time.sleep(WARM_S)
            filled["pid"] = str(process.pid)
            came_ns = time.monotonic_ns()
            said = subprocess.run(
                [word.format(**filled) for word in tool.attach],
                env=environment,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            span_ns = (came_ns, time.monotonic_ns() + int(tool.lasts_s * 1e9))
            text = (folder / "out").read_text() if tool.output else said.stdout
            if CAUSE in text:
                cause_s = (time.monotonic_ns() - came_ns) / 1e9
        printed, _ = process.communicate(timeout=WARM_S + seconds + 120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if tool.start and CAUSE in printed + written(folder):
        cause_s = (time.monotonic_ns() - began_ns) / 1e9
    ends = array("q")
    if (folder / "ends").exists():
        ends.frombytes((folder / "ends").read_bytes())
    return meeting(list(ends), span_ns, cause_s)


def written(folder: Path) -> str:
    """What a tool left in its folder, where it is text."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in {"train.py", "ends"}]
    return "\n".join(path.read_text(errors="ignore") for path in files if path.stat().st_size < 1 << 24)


def meeting(ends_ns: list[int], span_ns: tuple[int, int] | None, cause_s: float | None) -> Meeting:
    """The steps while the tool was there; without a span, all after the warm-up."""
    if len(ends_ns) < 3:
        return Meeting(steps_ns=[], pause_ns=None, cause_s=cause_s)
    first, last = span_ns or (ends_ns[0] + int(WARM_S / 2 * 1e9), ends_ns[-1])
    pairs = itertools.pairwise(ends_ns)
    steps = [end - start for start, end in pairs if start < last and end > first]
    pause = max(steps) - int(statistics.median(steps)) if span_ns and steps else None
    return Meeting(steps_ns=steps, pause_ns=pause, cause_s=cause_s)


def figures(meetings: list[Meeting], alone: list[Meeting]) -> dict[str, object]:
    """Medians over rounds; the cost of a round is against the untouched job of the same round."""
    ratios = [
        statistics.median(with_tool.steps_ns) / statistics.median(without.steps_ns)
        for with_tool, without in zip(meetings, alone, strict=False)
        if with_tool.steps_ns and without.steps_ns
    ]
    pauses = [one.pause_ns / 1e6 for one in meetings if one.pause_ns is not None]
    causes = [one.cause_s for one in meetings if one.cause_s is not None]
    return {
        "cost": round(statistics.median(ratios), 3) if ratios else None,
        "cost_each": [round(ratio, 3) for ratio in ratios],
        "pause_ms": round(statistics.median(pauses), 1) if pauses else None,
        "cause_s": round(statistics.median(causes), 1) if causes else None,
        "named": f"{len(causes)} of {len(meetings)}",
        "ran": f"{sum(bool(one.steps_ns) for one in meetings)} of {len(meetings)}",
    }


if __name__ == "__main__":
    sys.exit(main())
