"""Builds the emulated device: one library with all symbols, an empty one for every name torch asks for.

usage: build.py OUT; the environment of this Python has torch (a CUDA build) and the headers of the packages
nvidia-cuda-runtime, nvidia-cuda-cupti and nvidia-cuda-crt. Needs g++ and nm. Nothing is built anew that is
younger than its sources. `OUT/emurun PROGRAM ...` then runs a program on the device.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wno-misleading-indentation"]
# What torch's libraries name as needed: the loader takes a preloaded library of the same SONAME for it.
SONAMES = [
    "libcudart.so.13",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcurand.so.10",
    "libcusparse.so.12",
    "libcusolver.so.12",
    "libcusparseLt.so.0",
    "libcufile.so.0",
    "libcupti.so.13",
    "libnvrtc.so.13",
    "libnccl.so.2",
    "libnvshmem_host.so.3",
    "libnvidia-ml.so.1",
    "libcuda.so.1",
]
WRAPPED = [
    "torch_cuda",
    "c10_cuda",
    "torch_cuda_linalg",
    "torch_python",
    "torch_nvshmem",
    "caffe2_nvrtc",
    "torch_cpu",
]
VENDORS = re.compile(
    r"^(__cuda|cuda[A-Z]|cublas|cudnn|cufft|curand|cusparse|cusolver|cupti|nccl|nvrtc|nvshmem|cu[A-Z]|cuFile)"
)
# Looked up by name at run time, so that no library lists them.
BY_NAME = [
    "cuCtxFromGreenCtx",
    "cuDevResourceGenerateDesc",
    "cuDevSmResourceSplitByCount",
    "cuDeviceGetDevResource",
    "cuGreenCtxCreate",
    "cuGreenCtxDestroy",
    "cuGreenCtxStreamCreate",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemsetD32Async",
    "cuMulticastAddDevice",
    "cuMulticastBindMem",
    "cuMulticastCreate",
    "cuMulticastUnbind",
    "cuStreamWriteValue32",
    "cuDeviceGetUuid",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
]
# How each library says "not supported".
REFUSALS = {
    "cuda": 801,
    "cublas": 15,
    "cudnn": 3000,
    "cufft": 16,
    "cusparse": 10,
    "cusolver": 9,
    "nccl": 5,
    "nvml": 3,
    "nvrtc": 5,
    "cuFile": 5000,
}
CALL_NAMES = (
    ("cupti_runtime_cbid.h", "CUPTI_RUNTIME_TRACE_CBID_", 0),
    ("cupti_driver_cbid.h", "CUPTI_DRIVER_TRACE_CBID_", 1 << 31),
)
RUN = """#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_PRELOAD="$(cat "$here/preload.txt")" TRITON_LIBCUDA_PATH="$here/link"
export LD_PRELOAD TRITON_LIBCUDA_PATH
exec "$@"
"""


def main() -> None:
    site, out = Path(sysconfig.get_paths()["purelib"]), Path(sys.argv[1]).resolve()
    (out / "link").mkdir(parents=True, exist_ok=True)
    headers = site / "nvidia" / "cu13" / "include"
    torch = site / "torch" / "lib"
    sources = sorted(HERE.glob("*.cpp"))
    newest = max(each.stat().st_mtime for each in HERE.iterdir())
    whole = out / "libemucuda.so"
    if whole.exists() and whole.stat().st_mtime > newest and (out / "emurun").exists():
        return
    (out / "call_names.inc").write_text(_call_names(headers))

    def compiled(source: Path) -> Path:
        target = out / f"{source.stem}.o"
        _run("g++", *FLAGS, f"-I{headers}", f"-I{out}", "-c", source, "-o", target)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    (out / "stubs.c").write_text(_stubs(torch, objects))
    _run("gcc", "-O1", "-fPIC", "-fvisibility=hidden", "-c", out / "stubs.c", "-o", out / "stubs.o")
    _run(
        "g++",
        "-shared",
        "-o",
        whole,
        *objects,
        out / "stubs.o",
        "-Wl,-soname,libemucuda.so",
        "-lpthread",
        "-ldl",
    )
    (out / "empty.c").write_text("int emulated_name;\n")
    # The files must not be called libcudart.so*: torch looks for that name in /proc/self/maps.
    named = [_named(soname, out) for soname in SONAMES]
    (out / "preload.txt").write_text(" ".join(map(str, named)))
    shutil.copy(out / "emu_cuda.so", out / "link" / "libcuda.so.1")  # what Triton links its launcher with
    shutil.copy(whole, out / "link")
    (out / "emurun").write_text(RUN)
    (out / "emurun").chmod(0o755)


def _named(soname: str, out: Path) -> Path:
    target = out / f"emu_{soname.removeprefix('lib').split('.so')[0]}.so"
    link = ["-Wl,--no-as-needed", f"-L{out}", "-l:libemucuda.so", "-Wl,-rpath,$ORIGIN"]
    _run(
        "gcc",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        out / "empty.c",
        "-o",
        target,
        f"-Wl,-soname,{soname}",
        *link,
    )
    return target


def _stubs(torch: Path, objects: list[Path]) -> str:
    """C for the calls that nothing emulates: they say so once (EMU_TRACE=1) and answer "not supported"."""
    wanted = set(BY_NAME)
    for path in (torch / f"lib{name}.so" for name in WRAPPED):
        if path.exists():
            wanted |= {each for each in _symbols(path, "--undefined-only") if VENDORS.match(each)}
    there = set().union(*(_symbols(each, "--defined-only") for each in objects))
    lines = ["void emu_unimplemented(const char *);"]
    for name in sorted(wanted - there):
        matching = [start for start in REFUSALS if name.startswith(start)]
        code = REFUSALS[max(matching, key=len)] if matching else 801
        lines.append(
            f'__attribute__((visibility("default"))) long {name}(void) '
            f'{{ emu_unimplemented("{name}"); return {code}; }}'
        )
    return "\n".join(lines) + "\n"


def _symbols(path: Path, which: str) -> set[str]:
    kind = "-D" if ".so" in path.name else "-g"
    said = subprocess.run(["nm", kind, which, str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines() if line.strip()}


def _call_names(headers: Path) -> str:
    """Rows of a table: the number of a call for CUPTI, and its name."""
    rows = []
    for header, prefix, flag in CALL_NAMES:
        for name, number in re.findall(prefix + r"(\w+)\s*=\s*(\d+)", (headers / header).read_text()):
            if name not in ("INVALID", "SIZE"):
                rows.append(f'{{{int(number) | flag}u, "{name}"}},')
    return "\n".join(rows) + "\n"


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


if __name__ == "__main__":
    main()
