"""The measuring process: makes the experiments with its own number of threads, talks JSON lines.

Started as `python -m autobrrr.roofline.roofline_child ASKED`; says what it begins, and in the end what it
found.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import torch

from autobrrr.roofline import fused_passes, plain_rates
from autobrrr.roofline.device_peaks import peaks_of
from autobrrr.roofline.machine_identity import read_machine
from autobrrr.roofline.quick_child import CoreWaits
from autobrrr.roofline.roofline_bench import Fields, NoCompiler, RooflineBench
from autobrrr.roofline.roofline_records import (
    Began,
    Found,
    Roofline,
    RooflineRefused,
    RooflineRequest,
    Word,
    with_peaks,
)


class Experiment(NamedTuple):
    """One entry of the table; `measure` gives the fields of `Roofline` that it finds."""

    name: str
    title: str
    measure: Callable[[RooflineBench], Fields]
    expected_s: float  # with a warm compile cache, for the progress bar


EXPERIMENTS = (
    Experiment("python_adds", "additions in Python", plain_rates.python_adds, 0.1),
    Experiment("torch_ops", "additions of one-element tensors", plain_rates.torch_ops, 0.3),
    Experiment("launches", "kernel launches", plain_rates.launches, 0.3),
    Experiment("bandwidth", "copy and triad", plain_rates.bandwidth, 1.0),
    Experiment("matmul_sizes", "square matmuls", plain_rates.matmul_sizes, 3.0),
    Experiment("repeat_sweep", "x * 2, repeated and fused", fused_passes.repeat_sweep, 8.0),
    Experiment("multiply_add", "vector units with and without multiply-add", fused_passes.multiply_add, 2.0),
    Experiment("cosine_fusion", "x.cos().cos(), fused and not", fused_passes.cosine_fusion, 2.0),
    Experiment("activations", "gelu against relu", fused_passes.activations, 1.5),
    Experiment("flame", "one addition, taken apart", plain_rates.flame, 1.0),
)


def main(words: list[str]) -> int:
    asked = msgspec.json.decode(words[1], type=RooflineRequest)
    refused = _why_not(asked.device)
    if refused:
        _say(RooflineRefused(why=refused))
        return 0
    torch.set_num_threads(asked.threads)
    bench = RooflineBench(
        device=asked.device,
        threads=asked.threads,
        last_cache_bytes=asked.last_cache_bytes,
        effort=asked.effort,
    )
    waiting = CoreWaits()
    found = _all(bench, _empty(asked))
    found = msgspec.structs.replace(found, waited_share=waiting.share(asked.threads))
    _say(Found(roofline=with_peaks(found)))
    return 0


def _all(bench: RooflineBench, found: Roofline) -> Roofline:
    whole = sum(each.expected_s for each in EXPERIMENTS)
    done = 0.0
    for each in EXPERIMENTS:
        _say(Began(title=each.title, done_share=done / whole))
        try:
            found = msgspec.structs.replace(found, **each.measure(bench))
            continue
        except NoCompiler as error:
            why = f"not compiled: {error}"
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            why = "the device has too little memory free"
        finally:
            done += each.expected_s
        found = msgspec.structs.replace(found, left_out={**found.left_out, each.name: why})
    return found


def _why_not(device: str) -> str | None:
    if device == "cpu":
        return None
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA or ROCm device"
    number = torch.device(device).index or 0
    if number >= torch.cuda.device_count():
        return f"there is no {device}: torch sees {torch.cuda.device_count()} devices"
    return None


def _empty(asked: RooflineRequest) -> Roofline:
    name = read_machine().title if asked.device == "cpu" else torch.cuda.get_device_name(asked.device)
    return Roofline(
        device=name,
        torch=str(torch.__version__),  # a class of its own, which JSON does not know
        threads=asked.threads,
        python=platform.python_version(),
        measured_at_unix_s=time.time(),
        spec=None if asked.device == "cpu" else peaks_of(name),
    )


def _say(word: Word) -> None:
    print(msgspec.json.encode(word).decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
