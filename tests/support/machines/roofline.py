"""Made-up calibrations: what a machine of two cores may have told."""

from pathlib import Path

from autobrrr.roofline.machine_identity import Machine
from autobrrr.roofline.roofline_records import (
    Activations,
    DtypeMatmul,
    FlameBox,
    Fusion,
    MultiplyAdd,
    Roofline,
    SweepPoint,
)

MACHINE = Machine(name="Made-up CPU", cores=2, last_cache_bytes=8 << 20)
ELEMENTS = 1 << 25

# An interpreter of our own making: answers any measuring script.
INTERPRETER = """#!/bin/sh
echo called >> "{calls}"
echo '{answer}'
exit {status}
"""


def interpreter(folder: Path, answer: str, *, status: int = 0) -> str:
    """A program that takes the place of `python`; it notes its measurements in `calls`."""
    file = folder / "python"
    text = INTERPRETER.format(calls=folder / "calls", answer=answer, status=status)
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def calls(folder: Path) -> int:
    """How often the interpreter was asked to measure."""
    file = folder / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


def sweep(peak_flops: float, bytes_per_s: float) -> list[SweepPoint]:
    """A device that is bound by memory first and by its peak later."""
    points = []
    for repeat in (1, 4, 8, 16, 32, 64, 256):
        seconds = max(8 * ELEMENTS / bytes_per_s, ELEMENTS * repeat / peak_flops)
        points.append(
            SweepPoint(
                repeat=repeat,
                runtime_ns=round(seconds * 1e9),
                flops=ELEMENTS * repeat / seconds,
                bytes_per_s=8 * ELEMENTS / seconds,
            )
        )
    return points


def measured(threads: int = 1, **fields: object) -> Roofline:
    """One number of threads, before what follows from it is filled in."""
    usual: dict[str, object] = {
        "device": MACHINE.title,
        "torch": "2.9.1",
        "threads": threads,
        "python": "3.11.7",
        "measured_at_unix_s": 1000.0,
        "python_adds_per_s": 50e6,
        "torch_ops_per_s": 500e3,
        "copy_bytes_per_s": 20e9 * threads,
        "triad_bytes_per_s": 22e9 * threads,
        "sweep": sweep(60e9 * threads, 24e9 * threads),
        "matmul": [
            DtypeMatmul(dtype=dtype, n=n, flops=peak * threads * min(1.0, n / 512))
            for dtype, peak in (("float32", 100e9), ("bfloat16", 200e9))
            for n in (64, 256, 1024)
        ],
        "fusion": Fusion(
            unfused_ns=20_000_000,
            fused_ns=19_000_000,
            ratio=20 / 19,
            single_ns=11_000_000,
            light_unfused_ns=20_000_000,
            light_fused_ns=10_000_000,
            light_ratio=2.0,
        ),
        "activations": Activations(relu_ns=10_000_000, gelu_ns=15_000_000, ratio=1.5, compiled=True),
        "multiply_add": MultiplyAdd(multiply_flops=58e9 * threads, multiply_add_flops=110e9 * threads),
    }
    return Roofline(**{**usual, **fields})  # type: ignore[arg-type]


def flame() -> FlameBox:
    return FlameBox(
        name="a + b",
        ns=2000.0,
        how="timed",
        parts=[
            FlameBox(name="Python", ns=500.0, how="difference"),
            FlameBox(
                name="below",
                ns=1500.0,
                how="foreach",
                parts=[FlameBox(name="the addition", ns=0.1, how="slope")],
            ),
        ],
    )
