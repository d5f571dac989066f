"""Does `diagnose` name what limits jobs on a device whose kernels take a planted time?

`emurun python -m benchmarks.gpu limits`: the table below on the emulated device of `tests/emulated`. A row is
right where the limit is the planted one and the regime, if one is named, is one of those that may be; wrong
where another is named; else silent.
"""

from dataclasses import dataclass
from typing import Final

from benchmarks import ROOT
from benchmarks.gpu.live_session import Measure, job, said
from benchmarks.planted.case import UNDECIDED as SILENT
from benchmarks.planted.diagnosed import seconds_until
from benchmarks.planted.job_process import own_folders, product

FOR_S = 15
CACHE = ROOT / "build" / "limits-cache"  # this machine's peaks are measured once


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A job, who limits it, and the regimes that may be named."""

    name: str
    words: str
    limit: str
    regimes: tuple[str, ...]


RANKS: Final = "communication"
MOVED = ("memory",)
HOST, KERNELS = ("overhead",), ("compute", "memory", "underfilled")
WIDE = "--width 4096 --batch 4096 --optimizer fused"
LARGE = "--width 512 --batch 256 --optimizer fused --scale 60"


def _row(name: str, limit: str, regimes: tuple[str, ...], words: str) -> Limited:
    return Limited(name=name, words=words, limit=limit, regimes=regimes)


JOBS = (
    _row("launches, AdamW over tensors", "host", HOST, "--optimizer loop --layers 20"),
    _row("launches, foreach", "host", HOST, "--layers 20"),
    _row("launches, fused, the loss read", "host", HOST, "--layers 20 --optimizer fused --read-every 1"),
    _row("launches, a loss scale", "host", HOST, "--layers 20 --kind scaler"),
    _row("launches, four backwards a step", "host", HOST, "--layers 12 --kind accumulate"),
    _row("code of the loop's own", "host", ("host",), f"{LARGE} --scale 4 --host-us 12000 --read-every 1"),
    _row("kernels", "kernels", KERNELS, LARGE),
    _row("kernels, the loss read each step", "kernels", KERNELS, f"{LARGE} --read-every 1"),
    _row("kernels, the loss read every 50 steps", "kernels", KERNELS, f"{LARGE} --read-every 50"),
    _row("kernels, a loss scale", "kernels", KERNELS, f"{LARGE} --kind scaler"),
    _row("kernels, four backwards a step", "kernels", KERNELS, f"{LARGE} --kind accumulate"),
    _row("kernels, few of them and long", "kernels", KERNELS, f"{LARGE} --layers 3 --scale 300"),
    _row("kernels, a step that is a graph", "kernels", KERNELS, f"{LARGE} --kind graph --optimizer foreach"),
    _row("kernels, a loader ahead of them", "kernels", KERNELS, f"{LARGE} --load-us 100 --workers 1"),
    _row("a slow loader", "input", ("input",), "--load-us 20000 --optimizer fused"),
    _row("a slow loader with a worker", "input", ("input",), "--load-us 25000 --workers 1 --optimizer fused"),
    _row("a slow loader, larger kernels", "input", ("input",), f"{LARGE} --scale 10 --load-us 20000"),
    _row("launches, few of them", "host", HOST, "--layers 4 --optimizer fused"),
    _row("launches, normalisations", "host", HOST, "--layer norm --layers 16"),
    _row("launches, autocast and a loss scale", "host", HOST, "--layers 16 --kind scaler --cast"),
    _row("launches, an evaluation in the loop", "host", HOST, "--layers 16 --kind evaluate"),
    _row("launches, two streams", "host", HOST, "--layers 16 --kind streams"),
    _row("launches, the loss read every 50 steps", "host", HOST, "--layers 20 --read-every 50"),
    _row("kernels, products that fill the device", "kernels", ("compute",), f"{WIDE} --layers 6"),
    _row("kernels, products in half precision", "kernels", ("compute",), f"{WIDE} --layers 6 --cast"),
    _row("kernels, numbers moved", "kernels", MOVED, f"{WIDE} --layers 8 --layer pointwise --scale 4"),
    _row("kernels, normalisations", "kernels", MOVED, f"{WIDE} --layers 8 --layer norm --scale 4"),
    _row("kernels, too small for the device", "kernels", ("underfilled",), "--optimizer fused --scale 100"),
    _row("kernels, autocast and a loss scale", "kernels", KERNELS, f"{LARGE} --kind scaler --cast"),
    _row("kernels, two streams", "kernels", KERNELS, f"{LARGE} --kind streams"),
    _row("kernels, an evaluation in the loop", "kernels", KERNELS, f"{LARGE} --kind evaluate"),
    _row("kernels, convolutions", "kernels", KERNELS, f"{WIDE} --layer convolution --scale 60 --batch 256"),
    _row("kernels, a policy that acts", "kernels", KERNELS, "--kind policy --layers 6 --scale 200"),
    _row("a policy and its world", "host", (*HOST, "host"), "--kind policy --layers 6"),
    _row("copies from pageable memory", "input", ("input",), "--layers 6 --pageable-mib 64"),
    _row("two ranks, one of them late", RANKS, (RANKS,), "--layers 6 --lag-us 20000"),
    _row("a slow loader, a loss scale", "input", ("input",), "--load-us 20000 --kind scaler"),
)  # fmt: skip


def name_limit(one: Limited) -> dict[str, object]:
    with own_folders(cache=CACHE) as environment:
        words = ["benchmarks/gpu/planted_job.py", *one.words.split()]
        with job(words, environment) as running:
            said(running, "trains")
            found = product(environment, "diagnose", str(running.pid), "--for", f"{FOR_S}s")
        named_s = seconds_until(
            environment, running.pid, lambda said: said.get("limit", "unknown") not in SILENT
        )
        sure_s = seconds_until(environment, running.pid, lambda said: said.get("limit_confidence") == "high")
    limit, regime = str(found["limit"]), str(found["regime"])
    cost, steps = found.get("cost"), found.get("step_ns")
    return {
        "planted": one.limit,
        "limit": limit,
        "limit_confidence": found["limit_confidence"],
        "regime": regime,
        "confidence": found["confidence"],
        "score": score(one, limit, regime),
        "named_s": named_s,
        "sure_s": sure_s,
        "own_cost_share": cost.get("share") if isinstance(cost, dict) else None,
        "step_ns": steps.get("median") if isinstance(steps, dict) else None,
        "why": found["limit_reason"],
    }


def score(one: Limited, limit: str, regime: str) -> str:
    if limit not in (one.limit, *SILENT) or regime not in (*one.regimes, *SILENT):
        return "wrong"
    return "right" if limit == one.limit else "silent"


def table(found: dict[str, dict[str, object]]) -> str:
    """The rows for people. No figure of it is one of a card."""
    lines = ["# Limits of planted jobs, emulated", ""]
    lines += ["Host code is real, kernels take a planted time and compute nothing: no figure of a GPU.", ""]
    lines += ["| job | planted | limit | regime | score | named s | sure s | step ms | own cost |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for name, row in found.items():
        is_ = row.get("is")
        if not isinstance(is_, dict):
            lines.append(f"| {name} | | failed: {row.get('failed')} | | | | | | |")
            continue
        share, step = is_["own_cost_share"], is_["step_ns"]
        cells = [name, is_["planted"], f"{is_['limit']}, {is_['limit_confidence']}", is_["regime"]]
        cells += [is_["score"], is_["named_s"], is_["sure_s"]]
        cells += [f"{step / 1e6:.2f}" if step else None, f"{share:.2%}" if share is not None else None]
        lines.append("| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |")
    lines += ["", "## Silent or wrong", ""]
    told = {name: row["is"] for name, row in found.items() if isinstance(row.get("is"), dict)}
    lines += [f"- {name}: {is_['why']}" for name, is_ in told.items() if is_["score"] != "right"]  # type: ignore[index]
    return "\n".join(lines) + "\n"


LIMITS: dict[str, Measure] = {one.name: (lambda one=one: name_limit(one)) for one in JOBS}
