"""Scenes of a device at work that several tests look at, and the verdict on one."""

from autobrrr.trace.trace_analysis import analyse_trace
from autobrrr.trace.trace_records import TraceAnalysis
from support.trace import Scene, as_trace

HEAD: dict[str, object] = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]}
GRID, BLOCK = [4096, 1, 1], [128, 1, 1]
STREAMING = "void at::native::vectorized_elementwise_kernel<4, add<float>, at::detail::Array<char*, 3> >"
MATMUL = "ampere_sgemm_128x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f16_RING_LL()"
EARLY = -50_000_000  # launched so long before it runs


def verdict(scene: Scene) -> TraceAnalysis:
    return analyse_trace(as_trace(scene))


def back_to_back(name: str, length: int, dims: list[list[int]] | None = None, count: int = 200) -> Scene:
    """Kernels that were all launched long before they run."""
    scene = Scene(head=HEAD)
    for index in range(count):
        called = index * 1_000
        args: dict[str, object] = (
            {} if dims is None else {"Input Dims": dims, "Input type": ["float", "float"]}
        )
        scene.operator(called, 900, "aten::mm" if dims else "aten::add", **args)
        scene.kernel(
            500_000 + index * length, length - 100, name, launch=(called + 100, 300), grid=GRID, block=BLOCK
        )
    return scene


def loading(copy_ends_the_gap: bool) -> Scene:
    """Steps that wait for a loader, and maybe for its copy."""
    scene = Scene(head=HEAD)
    for step in range(12):
        at = step * 1_000_000
        scene.annotation(at, 1_000_000, f"ProfilerStep#{step}")
        scene.operator(at, 700_000, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
        if copy_ends_the_gap:
            scene.kernel(
                at + 702_000,
                3_000,
                "Memcpy HtoD (Pinned -> Device)",
                cat="gpu_memcpy",
                launch=(at + 700_000, 500),
            )
        for index in range(20):
            begin = at + 710_000 + index * 10_000
            scene.operator(begin, 1_000, "aten::add")
            scene.kernel(begin + 1_500, 9_000, STREAMING, launch=(begin, 700), grid=GRID, block=BLOCK)
    return scene


def queued(*lengths: tuple[str, int], rounds: int = 100, gap: int = 100) -> Scene:
    """Rounds of kernels that were all launched before the first one ran."""
    scene = Scene(head=HEAD)
    at = 0
    for index in range(rounds):
        for name, length in lengths:
            called = EARLY + index * 10_000
            scene.operator(called, 900, "aten::some")
            scene.kernel(at, length, name, launch=(called + 100, 300), grid=GRID, block=BLOCK)
            at += length + gap
    return scene


def beside_a_queue(rounds: int = 100) -> Scene:
    """A stream that runs when it is launched, beside one with 20 ms of work from before the recording."""
    scene = Scene(head=HEAD)
    for index in range(rounds):
        called = index * 10_000
        scene.operator(called, 900, "aten::some")
        scene.kernel(
            called + 5_000, 1_000, STREAMING, launch=(called, 300), stream=20, grid=GRID, block=BLOCK
        )
        at = 20_000_000 + index * 100_000
        scene.kernel(at, 99_900, MATMUL, launch=(called + 400, 300), grid=GRID, block=BLOCK)
        scene.kernel(at + 99_900, 50, MATMUL, launch=(called + 800, 90), grid=GRID, block=BLOCK)
    return scene


def shared_device(equal: bool = True, own_place: bool = False) -> Scene:
    """A queue that never runs dry, and now and then the device runs nothing for 2.4 ms."""
    scene = Scene(head=HEAD)
    at = 0
    for index in range(600):
        called = EARLY + index * 10_000
        scene.operator(called, 900, "aten::some")
        name = (STREAMING, MATMUL, "void reduce_kernel<512>")[index % 3]
        scene.kernel(at, 100_000, name, launch=(called + 100, 300), grid=GRID, block=BLOCK)
        sliced = index % 24 == 23 if own_place else index % 23 == 22
        if own_place:
            sliced = name == MATMUL and index % 3 == 1
        at += 100_100 + (2_430_000 + (0 if equal else index * 9_000) if sliced else 0)
    return scene


def copying(direction: str) -> Scene:
    """Steps that wait for copies of one direction, with a kernel behind each."""
    scene = Scene(head=HEAD)
    for index in range(60):
        at = index * 200_000
        scene.operator(at, 900, "aten::copy_")
        scene.kernel(at + 1_000, 150_000, f"Memcpy {direction}", cat="gpu_memcpy", launch=(at, 300))
        scene.kernel(at + 151_000, 40_000, STREAMING, launch=(at + 500, 300), grid=GRID, block=BLOCK)
    return scene
