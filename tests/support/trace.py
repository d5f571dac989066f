"""Small traces, written as the profiler writes them, with times in whole nanoseconds."""

import gzip
import json
from dataclasses import dataclass, field
from io import BufferedReader, BytesIO
from pathlib import Path

from autobrrr.trace.reading.trace_columns import Trace
from autobrrr.trace.reading.trace_reader import read_blocks, read_trace
from autobrrr.trace.reading.trace_source import BLOCK_BYTES, Blocks, TraceFile


def us(ns: int) -> str:
    """Nanoseconds as the digits of microseconds."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


@dataclass
class Scene:
    """Collects events; `text()` is the trace. `base_ns` is added to every start."""

    base_ns: int = 1_000_000_000
    head: dict[str, object] = field(default_factory=lambda: {"schemaVersion": 1})
    events: list[str] = field(default_factory=list)
    _correlation: int = 0

    def event(self, start: int, length: int | None, cat: str, name: str, **rest: object) -> None:
        fields = {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 100, **rest}
        text = json.dumps(fields)[:-1] + f', "ts": {us(self.base_ns + start)}'
        self.events.append(text + (f', "dur": {us(length)}}}' if length is not None else "}"))

    def operator(self, start: int, length: int, name: str, tid: int = 100, **args: object) -> None:
        self.event(start, length, "cpu_op", name, tid=tid, args=args)

    def annotation(self, start: int, length: int, name: str, tid: int = 100) -> None:
        self.event(start, length, "user_annotation", name, tid=tid)

    def python(self, start: int, length: int, name: str, tid: int = 100) -> None:
        self.event(start, length, "python_function", name, tid=tid)

    def call(self, start: int, length: int, name: str, tid: int = 100, correlation: int = 0) -> None:
        self.event(start, length, "cuda_runtime", name, tid=tid, args={"correlation": correlation})

    def kernel(
        self,
        start: int,
        length: int | None,
        name: str = "void at::native::vectorized_elementwise_kernel<4, add>(int)",
        *,
        launch: tuple[int, int] | None = None,
        stream: int = 7,
        device: int | str = 0,
        cat: str = "kernel",
        tid: int = 100,
        correlation: int | None = None,
        **args: object,
    ) -> int:
        """One operation, and its launch call where `launch` gives start and length."""
        self._correlation += 1
        mine = self._correlation if correlation is None else correlation
        if launch is not None:
            self.call(launch[0], launch[1], "cudaLaunchKernel", tid=tid, correlation=mine)
        fields = {"device": device, "stream": stream, "correlation": mine, **args}
        self.event(start, length, cat, name, pid=device, tid=stream, args=fields)
        return mine

    def text(self) -> bytes:
        head = json.dumps(self.head)[1:-1]
        body = ",\n".join(self.events)
        return f'{{{head}{", " if head else ""}"traceEvents": [\n{body}\n], "traceName": "scene"}}'.encode()

    def write(self, folder: Path, name: str = "scene.json") -> Path:
        target = folder / name
        data = self.text()
        target.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return target

    def read(self, folder: Path) -> Trace:
        return read(self.write(folder))


def read(path: Path) -> Trace:
    return read_trace(TraceFile(name=str(path), path=path))


def busy_scene(steps: int = 4, kernels: int = 30) -> Scene:
    """Steps in which operators launch short kernels one after the other: the device waits for the host."""
    scene = Scene(
        head={
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
        }
    )
    at = 0
    for step in range(steps):
        begin = at
        for _ in range(kernels):
            scene.operator(at, 18_000, "aten::mul")
            scene.kernel(at + 14_000, 2_000, launch=(at + 8_000, 5_000), grid=[512, 1, 1], block=[128, 1, 1])
            at += 20_000
        scene.annotation(begin, at - begin, f"ProfilerStep#{step}")
    return scene


def as_trace(scene: Scene) -> Trace:
    return in_blocks(scene.text(), BLOCK_BYTES)


def in_blocks(text: bytes, size: int) -> Trace:
    return read_blocks("scene", Blocks(BufferedReader(BytesIO(text)), size))
