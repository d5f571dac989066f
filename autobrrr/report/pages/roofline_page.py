"""The roofline as a page: its roofs and what was measured under them, tables, and the curves behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from autobrrr.quantities import NOT_MEASURED, digits, duration, share
from autobrrr.records.busy_words import takers_words
from autobrrr.records.gain_words import factor_words
from autobrrr.report import page_model as pm
from autobrrr.roofline.roofline_records import FlameBox, Roofline, SweepPoint

COLOURS = ("memory", "overhead", "sync", "input", "communication", "host")
HEIGHT = 430.0
MEANS = (
    "How fast a kernel can be at most, by how many operations it makes for each byte it moves. "
    "Under the slope memory is the limit, under the flat part computing."
)
POINTS = (
    "Points are kernels that were measured here. A square matmul counts each matrix once; one that fits "
    "into the cache may lie above the slope. Dashed: one thread."
)


def roofline_page(found: Roofline) -> pm.ReportPage:
    """The page."""
    measured_at = datetime.fromtimestamp(found.measured_at_unix_s, timezone.utc)
    told, busy = [*spec_lines(found), *sentences(found)], found.waited_share or 0.0
    heads = ("figure", *(f"#-{_threads(run.threads)}" for run in runs(found)))
    warning = f"Others used the cores for {share(busy)} of the time: the roofs may be too low."
    return pm.ReportPage(
        kind="roofline",
        title=found.device,
        about=[
            f"torch {found.torch}",
            f"Python {found.python}",
            f"measured {measured_at:%Y-%m-%d %H:%M} UTC",
        ],
        sections=pm.filled(
            pm.section("", pm.Line(text=warning, tone="worse") if busy > 0.1 else None),
            _roofline(found),
            pm.section("What the figures mean", pm.listed(told) if told else None),
            pm.section("Figures", pm.table("Every figure that was measured.", heads, rows(found))),
            *_curves_measured(found),
            pm.section(
                "Where the time of one addition goes", None if found.flame is None else _flame(found.flame)
            ),
            pm.section(
                "Do it again",
                pm.Line(text=f"autobrrr roofline --threads {found.threads} --html FILE", tone="code"),
                on="page",
            ),
        ),
        data=found,
        file="roofline.json",
    )


def _roofline(found: Roofline) -> pm.Section:
    """FLOP/s against FLOP/byte, both logarithmic: every roof, and every measured kernel below them."""
    every = roofs(found)
    if not every:
        return pm.section("Roofline")
    points: dict[str, list[pm.Point]] = {}
    for group, point in (each for run in runs(found) for each in under_roof(run)):
        points.setdefault(group, []).append(point)
    reached = [point.x for group in points.values() for point in group]
    low, high = (
        min([*reached, *(r.ridge / 16 for r in every)]),
        max([*reached, *(r.ridge * 16 for r in every)]),
    )
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(r.name for r in every))}
    lines = [
        pm.Series(
            name="",
            colour=colours[roof.name],
            points=[pm.Point(x=x, y=min(roof.flops, x * roof.bytes_per_s)) for x in (low, roof.ridge, high)],
            is_dotted=False,
            is_dashed=roof.threads < found.threads,
            label=f"{roof.name}, {_threads(roof.threads)}",
        )
        for roof in every
    ]
    lines += [
        pm.Series(
            name=group if group == POINTWISE else f"matmuls, {group}",
            colour=colours.get(group, "compute"),
            points=marks,
            is_joined=False,
        )
        for group, marks in points.items()
    ]
    best = max(every, key=lambda roof: roof.flops)
    drawn = pm.Chart(
        title="",
        says=f"Roofline of {found.device}: the highest roof is {best.name}, {_flops(best.flops)}; "
        f"its ridge point lies at {best.ridge:.3g} FLOP/byte; the tables below have all figures.",
        lines=lines,
        name_y=_flops,
        name_x="arithmetic intensity, FLOP/byte",
        uprights=[(roof.ridge, f"ridge {roof.ridge:.3g}") for roof in every if roof.threads == found.threads],
        height=HEIGHT,
    )
    return pm.section(
        "Roofline", pm.Line(text=MEANS), drawn, pm.Line(text=POINTS, tone="muted"), _ridges(every), on="page"
    )


def _ridges(every: list[Roof]) -> pm.PageTable:
    return pm.table(
        "Roofs and ridge points. Left of its ridge point a kernel is bound by memory, right of it by "
        "computing.",
        ("roof", "threads:count", "#peak", "#memory", "#ridge point"),
        [
            (
                *(roof.name, roof.threads, pm.figure(_flops(roof.flops), roof.flops)),
                pm.figure(rate(roof.bytes_per_s, "B/s"), roof.bytes_per_s),
                pm.figure(f"{roof.ridge:.3g} FLOP/byte", roof.ridge),
            )
            for roof in every
        ],
    )


def _curves_measured(found: Roofline) -> Iterator[pm.Section]:
    """FLOP/s and what is behind them against the number of operations, and against the size of a matmul."""
    every = [run for run in runs(found) if run.sweep]
    kinds: tuple[tuple[str, Callable[[float], str], Callable[[SweepPoint], float]], ...] = (
        ("Runtime of x * 2, repeated", duration, lambda point: float(point.runtime_ns)),
        ("FLOP/s of x * 2, repeated", _flops, lambda point: point.flops),
        ("Bandwidth of x * 2, repeated", lambda y: rate(y, "B/s"), lambda point: point.bytes_per_s),
    )
    ridge = found.ridge_ops_per_element
    for title, label, value in kinds if every else ():
        curves = {_threads(run.threads): [(one.repeat, value(one)) for one in run.sweep] for run in every}
        drawn = _curves(title, "repeats", curves, label, [(ridge, f"ridge {ridge:.0f}")] if ridge else [])
        yield pm.section("", drawn, on="both" if label is _flops else "page", beside=True)

    matmuls: dict[str, list[tuple[float, float]]] = {}
    for one in found.matmul:
        matmuls.setdefault(one.dtype, []).append((one.n, one.flops))
    drawn = _curves("FLOP/s of square matmuls against n", "n", matmuls, _flops)
    yield pm.section("", drawn if matmuls else None, beside=True)


def _curves(
    title: str,
    name_x: str,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    label: Callable[[float], str],
    uprights: Sequence[tuple[float, str]] = (),
) -> pm.Chart:
    """What was measured against a size, a curve each."""
    lines = [
        pm.Series(
            name=name,
            colour=COLOURS[at % len(COLOURS)],
            points=[pm.Point(x=x, y=y, words=f"{name_x} = {x:g}: {label(y)}") for x, y in points],
        )
        for at, (name, points) in enumerate(curves.items())
    ]
    sizes = [x for points in curves.values() for x, _ in points] or [0]
    says = f"{title}, {name_x} from {min(sizes):g} to {max(sizes):g}"
    return pm.Chart(title=title, says=says, lines=lines, name_y=label, name_x=name_x, uprights=uprights)


def _flops(value: float) -> str:
    return rate(value, "FLOP/s")


def _flame(root: FlameBox) -> pm.PageTable:
    said = "A part stands below the whole that it is in, with its share of the addition."
    heads = ("-part", "#-time", "#-share", "", "-measured as")
    return pm.table(said, heads, _flame_rows(root, root.ns, 0))


def _flame_rows(box: FlameBox, whole_ns: float, depth: int) -> Iterator[Sequence[pm.Value]]:
    part = box.ns / whole_ns if whole_ns > 0 else 0.0
    inside = f"└{'─' * (depth - 1)} " if depth else ""
    took = f"{box.ns:.2f} ns" if 0 < box.ns < 1 else duration(box.ns)  # to take less is the point
    yield f"{inside}{box.name}", took, share(part), pm.bar(part, "overhead"), box.how
    for each in sorted(box.parts, key=lambda one: -one.ns):
        yield from _flame_rows(each, whole_ns, depth + 1)


def _threads(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


SCALES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
ITEM_BYTES = {"float64": 8, "float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2}
SWEEP_BYTES = 8  # of an element of the repeated pass: read and written once, in fp32
VECTOR, POINTWISE = "vector units, float32", "x * 2, repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """How fast anything can be: by memory up to the ridge point, by computing beyond it."""

    name: str  # dtype of a matmul, or the vector units
    threads: int
    flops: float  # FLOP/s
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """FLOP/byte from which on memory is no longer the limit."""
        return self.flops / self.bytes_per_s


def roofs(found: Roofline) -> list[Roof]:
    """Every roof of every number of threads, where both of its limits were measured."""
    return [
        Roof(name=name, threads=run.threads, flops=flops, bytes_per_s=run.peak_bytes_per_s)
        for run in runs(found)
        if run.peak_bytes_per_s
        for name, flops in (*run.peak_flops.items(), (VECTOR, _vector(run, fused=True)))
        if flops
    ]


def under_roof(run: Roofline) -> Iterator[tuple[str, pm.Point]]:
    """The kernels that were measured, by dtype or `POINTWISE`: FLOP/byte of the least bytes, and FLOP/s.

    A square matmul of n makes 2 n^3 FLOPs on three matrices of n^2 numbers.
    """
    for each in run.sweep:
        yield POINTWISE, _kernel(run, f"x * 2, {each.repeat} times", each.repeat / SWEEP_BYTES, each.flops)
    for one in run.matmul:
        if one.dtype in ITEM_BYTES:
            intensity = 2 * one.n / (3 * ITEM_BYTES[one.dtype])
            yield one.dtype, _kernel(run, f"matmul of {one.n}, {one.dtype}", intensity, one.flops)


def _kernel(run: Roofline, name: str, intensity: float, flops: float) -> pm.Point:
    said = f"{name}, {_threads(run.threads)}: {_flops(flops)} at {intensity:.3g} FLOP/byte"
    return pm.Point(x=intensity, y=flops, words=said)


def rate(value: float | None, unit: str) -> str:
    """Three digits, a prefix and a unit: 103 GFLOP/s."""
    if value is None:
        return NOT_MEASURED
    prefix, scale = next(((name, scale) for name, scale in SCALES if abs(value) >= scale), ("", 1.0))
    return f"{digits(value / scale)} {prefix}{unit}"


def rows(found: Roofline) -> Iterator[tuple[str, ...]]:
    """What the table says: a name, and the figure of each run; only what was measured in one of them."""
    figures = [_figures(run, tuple(found.peak_flops)) for run in runs(found)]
    for name in figures[0]:
        told = [each[name] for each in figures]
        if any(each != NOT_MEASURED for each in told):
            yield (name, *told)


def _figures(run: Roofline, dtypes: tuple[str, ...]) -> dict[str, str]:
    launch, fusion, gelu = run.launch, run.fusion, run.activations
    ridge = run.ridge_ops_per_element
    return {
        "Python additions": rate(run.python_adds_per_s, "/s"),
        "torch additions, one element": rate(run.torch_ops_per_s, "/s"),
        "kernel launch, queued": duration(launch.queued_ns if launch else None),
        "kernel launch, waited for": duration(launch.awaited_ns if launch else None),
        "memory, copy": rate(run.copy_bytes_per_s, "B/s"),
        "memory, triad": rate(run.triad_bytes_per_s, "B/s"),
        "vector units, multiplying": rate(_vector(run, fused=False), "FLOP/s"),
        "vector units, multiply-add": rate(_vector(run, fused=True), "FLOP/s"),
        **{f"matmul, {dtype}": rate(run.peak_flops.get(dtype), "FLOP/s") for dtype in dtypes},
        "ridge point, operations per element": NOT_MEASURED if ridge is None else digits(ridge),
        "FLOPs possible in a Python addition": rate(run.flops_per_python_add, ""),
        "speed-up of x.cos().cos(), fused": factor_words(fusion.ratio if fusion else None),
        "speed-up of x * 2 + 1, fused": factor_words(fusion.light_ratio if fusion else None),
        "time of gelu, that of relu being 1x": factor_words(gelu.ratio if gelu else None),
    }


def runs(found: Roofline) -> list[Roofline]:
    """One thread first, where there are several."""
    return [found.single_thread, found] if found.single_thread is not None else [found]


def spec_lines(found: Roofline) -> Iterator[str]:
    """What the maker promises beside what was reached."""
    spec = found.spec
    if spec is None:
        return
    best_half = max((found.peak_flops.get(name, 0.0) for name in ("float16", "bfloat16")), default=0.0)
    for words, promised, reached, unit in (
        ("memory", spec.bytes_per_s, found.peak_bytes_per_s, "B/s"),
        ("matmul at 16 bit", spec.half_flops, best_half or None, "FLOP/s"),
        ("matmul of fp32 input (TF32)", spec.tf32_flops, found.peak_flops.get("tf32"), "FLOP/s"),
        ("vector units at fp32", spec.fp32_flops, _vector(found, fused=True), "FLOP/s"),
    ):
        if reached is not None:
            sheet = f"{rate(promised, unit)} on the data sheet"
            yield f"{words}: {rate(reached, unit)} of {sheet} ({share(reached / promised)})"


def sentences(found: Roofline) -> Iterator[str]:
    """What the figures mean."""
    ridge, peak = found.ridge_ops_per_element, max(found.peak_flops.values(), default=None)
    if ridge is not None:
        yield (
            f"A kernel that reads and writes each 32-bit number once is bound by memory until it makes about "
            f"{ridge:.0f} operations on it."
        )
    if found.python_adds_per_s and found.torch_ops_per_s and peak:
        in_python, in_torch = (
            rate(peak / each, "FLOPs") for each in (found.python_adds_per_s, found.torch_ops_per_s)
        )
        yield (
            f"In the time of one addition in Python this device could do {in_python}; "
            f"in that of adding two one-element tensors with torch, {in_torch}."
        )
    fusion = found.fusion
    if fusion is not None and fusion.ratio < 1.5 < fusion.light_ratio:
        yield (
            f"Fusing makes x * 2 + 1 {fusion.light_ratio:.2f}x as fast, x.cos().cos() {fusion.ratio:.2f}x: "
            "here the cosine itself, not memory, takes the time."
        )
    points = found.sweep
    if not found.is_disturbed and points and points[-1].flops < 0.7 * max(point.flops for point in points):
        yield (
            f"At {points[-1].repeat} repeats FLOP/s fall again: each multiplication waits for the one "
            "before it, and the chain is longer than the processor looks ahead."
        )
    if found.is_disturbed:
        who = takers_words(found.contention) if found.contention else ""
        yield (
            f"Others used the cores for {share(found.waited_share)} of the time{f': {who}' if who else ''}."
            " The peaks may be too low, so they are not kept: measure again when the machine is quiet."
        )
    for name, why in found.left_out.items():
        yield f"Left out, {name.replace('_', ' ')}: {why}."


def _vector(run: Roofline, *, fused: bool) -> float | None:
    if run.multiply_add is None:
        return None
    return run.multiply_add.multiply_add_flops if fused else run.multiply_add.multiply_flops
