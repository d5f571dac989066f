"""The roofline of a device: from the cache, else measured by processes of their own.

Comes in as a request, goes out as one `Roofline` at all threads with the single thread inside it.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from autobrrr import own_modules, paths
from autobrrr.errors import AutobrrrError, NotInstalled, UsageError
from autobrrr.machine.cpu_takers import CpuTakers
from autobrrr.records import CpuTaker
from autobrrr.roofline.calibration_cache import cached_file, keep, known
from autobrrr.roofline.machine_identity import Machine, accelerators, torch_version
from autobrrr.roofline.roofline_records import WORD, Began, Found, Roofline, RooflineRefused, RooflineRequest

Progress = Callable[[str, float], None]


def default_device(root: Path = Path("/")) -> str:
    """A GPU where a driver shows one and this torch is not built for CPUs alone."""
    return "cuda" if accelerators(root) and not (torch_version() or "+cpu").endswith("+cpu") else "cpu"


def roofline(
    request: RooflineRequest,
    cache: Path,
    machine: Machine,
    progress: Progress,
    *,
    again: bool = False,
    flame: bool = False,
    root: Path = Path("/"),
) -> Roofline:
    """All figures of a device.

    Args:
        request: What to measure.
        cache: `paths.cache_dir()`.
        machine: The processor.
        progress: Called with what is being measured and the share that is done.
        again: Ignore the cache.
        flame: Also where the time of one addition goes; every calibration knows it.
        root: Where the drivers show their devices.

    Raises:
        AutobrrrError: no torch, no such device, or the measuring process failed.
    """
    torch = torch_version()
    if torch is None:
        raise NotInstalled("torch", "roofline")
    counts = sorted({1, request.threads}) if request.device == "cpu" else [request.threads]
    name = machine.title if request.device == "cpu" else "|".join([request.device, *accelerators(root)])
    found: list[Roofline] = []
    for index, threads in enumerate(counts):
        file = cached_file(cache, "full", device=name, torch=torch, threads=threads)
        one = None if again or request.effort != 1.0 else known(file, Roofline)
        if one is None or (flame and one.flame is None):  # an earlier version measured it on request
            cache_bytes = machine.last_cache_bytes
            asked = msgspec.structs.replace(request, threads=threads, last_cache_bytes=cache_bytes)
            one = _ask(asked, cache, _part(progress, index, len(counts), threads))
            if request.effort == 1.0 and not one.is_disturbed:
                keep(file, one)
        found.append(one if flame and threads == counts[-1] else msgspec.structs.replace(one, flame=None))
    many = found[-1]
    return msgspec.structs.replace(many, single_thread=found[0]) if len(found) > 1 else many


def _part(progress: Progress, index: int, parts: int, threads: int) -> Progress:
    words = f"{threads} thread" + ("s" if threads > 1 else "")
    return lambda title, share: progress(f"{words}: {title}", (index + share) / parts)


def _ask(asked: RooflineRequest, cache: Path, progress: Progress) -> Roofline:
    compiled = cache / "roofline" / "compiled"
    with suppress(OSError):  # then nothing is compiled: below /tmp others may have put headers for torch
        paths.make_closed(compiled)
    env = {**own_modules.environment(), "OMP_NUM_THREADS": str(asked.threads), "TMPDIR": str(compiled)}
    for name in ("MKL_NUM_THREADS", "MKL_DYNAMIC", "OMP_DYNAMIC"):
        env.pop(name, None)
    env.setdefault("TORCHINDUCTOR_CACHE_DIR", str(compiled))
    env["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of compilers that would outlive or disturb us
    words = own_modules.command("autobrrr.roofline.roofline_child", msgspec.json.encode(asked).decode())
    with (
        tempfile.TemporaryFile(dir=paths.temporary_dir()) as complaints,
        subprocess.Popen(
            words, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints
        ) as child,
    ):
        try:
            found = _listen(child, progress, CpuTakers(child.pid))
        except BaseException:
            child.kill()
            raise
        child.wait()
        if found is None:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip().splitlines()
            raise AutobrrrError(
                f"measuring failed with status {child.returncode}: {said[-1] if said else 'silent'}",
                "autobrrr doctor says whether torch works here",
            )
        return found


def _listen(child: subprocess.Popen[bytes], progress: Progress, takers: CpuTakers) -> Roofline | None:
    assert child.stdout is not None
    found, taken = None, list[CpuTaker]()
    for line in child.stdout:
        taken = takers.look(time.monotonic_ns(), busy=True) or taken
        try:
            word = WORD.decode(line)
        except msgspec.MsgspecError:
            continue  # a compiler that talks on standard output
        if isinstance(word, Began):
            progress(word.title, word.done_share)
        elif isinstance(word, RooflineRefused):
            raise UsageError(word.why, "--device cpu")
        elif isinstance(word, Found):
            found = word.roofline
    if found is None or not found.is_disturbed:
        return found
    return msgspec.structs.replace(found, contention=taken)
