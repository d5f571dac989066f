"""The measuring process: makes the experiments with its own number of threads, talks JSON lines.

Started as `python -m autobrrr.roofline.roofline_child ASKED`; says what it begins, and in the end what it
found.
"""

from __future__ import annotations

import platform
import sys
import time

import msgspec
import torch

from autobrrr.roofline.device_peaks import peaks_of
from autobrrr.roofline.experiments import EXPERIMENTS, Experiment
from autobrrr.roofline.machine_identity import read_machine
from autobrrr.roofline.peaks import with_peaks
from autobrrr.roofline.quick_child import waited_ns
from autobrrr.roofline.roofline_bench import NoCompiler, RooflineBench
from autobrrr.roofline.roofline_records import Began, Found, Roofline, RooflineRefused, RooflineRequest, Word


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
    began_ns, waited_before = time.perf_counter_ns(), waited_ns()
    found = _all(bench, _chosen(asked), asked.start or _empty(asked))
    waited_after, wall_ns = waited_ns(), time.perf_counter_ns() - began_ns
    if asked.start is None and waited_before is not None and waited_after is not None:
        share = min((waited_after - waited_before) / (wall_ns * asked.threads), 1.0)
        found = msgspec.structs.replace(found, waited_share=share)
    _say(Found(roofline=with_peaks(found)))
    return 0


def _all(bench: RooflineBench, chosen: list[Experiment], found: Roofline) -> Roofline:
    whole = sum(each.expected_s for each in chosen)
    done = 0.0
    for each in chosen:
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


def _chosen(asked: RooflineRequest) -> list[Experiment]:
    usual = asked.start is None
    return [each for each in EXPERIMENTS if (asked.flame if each.on_request else usual)]


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
