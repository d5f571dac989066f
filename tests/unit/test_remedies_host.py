"""Remedies on the process as a whole: which CPUs, which allocator, which variables; on fake machines."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from autobrrr.agent.job import Job
from autobrrr.remedies import host_environment, host_malloc
from autobrrr.remedies.catalog import REGISTRY
from autobrrr.remedies.host_affinity import chosen
from autobrrr.remedies.loader_workers import default_workers
from autobrrr.remedies.process_value import switch
from autobrrr.remedies.registry import Refused

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]
# Steps that fill six temporaries of 36 MiB and keep a small block above them: page faults before, with it
# and right after the undo, and how much more is resident then than before.
FAULTS = """
import ctypes, resource, sys
sys.path.insert(0, {root!r})
from autobrrr.remedies import host_malloc

libc, fill = host_malloc.glibc(), ctypes.CDLL(None).memset
fill.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
SIZE = 36 << 20

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(SIZE) for _ in range(6)]
    for block in blocks:
        fill(block, 1, SIZE)
    libc.malloc(1 << 16)
    for block in blocks[::2] + blocks[1::2]:
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

before, had = step(), resident_mib()
for _ in range(2):
    undo = host_malloc.keep_blocks(libc, 1 << 30, host_malloc.KEPT_BYTES)
    settled = [step() for _ in range(6)][-1]
    undo()
    after = min(step() for _ in range(4))
print(before, settled, after, resident_mib() - had)
"""


class FakeLibc:
    """glibc as far as blocks above the threshold are mappings, and a threshold set by hand is fixed."""

    def __init__(self, threshold: int, *, takes: int = 1 << 40) -> None:
        self.threshold, self.takes = threshold, takes
        self.trim = 0
        self.fixed = False
        self.sizes: dict[int, int] = {}
        self.inside: set[int] = set()  # blocks in what was a hole
        self.freed: list[int] = []
        self.threshold_before: int | None = None
        self.full_heap = False  # free blocks in it serve every request
        self.plugs: list[int] = []
        self.holes: list[int] = []  # free bytes inside the heap, once something was kept there
        self.heap = 1 * MIB

    def mallopt(self, parameter: int, value: int, /) -> int:
        if value > self.takes:
            return 0
        if parameter == host_malloc.M_MMAP_THRESHOLD:
            self.threshold, self.fixed = value, True
        else:
            self.trim = value
        return 1

    def malloc(self, size: int, /) -> int | None:
        block = len(self.sizes) + 1
        self.sizes[block] = size
        fits = [hole for hole in self.holes if hole >= size]
        if fits:
            self.holes.remove(min(fits))
            self.holes.append(min(fits) - size)
            self.inside.add(block)
        elif size < self.threshold:
            self.heap += size
        return block

    def free(self, block: int, /) -> None:
        size = self.sizes[block]
        self.freed.append(block)
        if block in self.inside:
            self.holes.append(size)
        if not self.fixed and size >= self.threshold:
            self.threshold = size

    def malloc_trim(self, pad: int, /) -> int:
        return 1

    def heap_bytes(self) -> int:
        return self.heap

    def size_word(self, block: int, /) -> int:
        in_heap = self.full_heap or block in self.inside
        return 2 if not in_heap and self.sizes[block] >= self.threshold else 0


@pytest.mark.parametrize("threshold", [128 << 10, 300_000, 5 * MIB, 32 * MIB])
def test_the_threshold_is_found_raised_and_put_back(threshold: int) -> None:
    libc = FakeLibc(threshold)
    undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    assert (libc.threshold, libc.trim) == (1 << 30, 1 << 31)
    with pytest.raises(Refused, match="already"):
        host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    undo()
    assert threshold <= libc.threshold <= threshold + 4096
    assert libc.trim in (128 << 10, 2 * libc.threshold)
    libc.threshold = 7
    undo()
    assert libc.threshold == 7


def test_thresholds_that_the_process_has_set_itself_are_left_alone() -> None:
    libc = FakeLibc(64 * MIB)
    libc.fixed = True
    with pytest.raises(Refused, match="come from the heap already"):
        host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    assert (libc.threshold, libc.trim) == (64 * MIB, 0)
    assert sorted(libc.freed) == sorted(libc.sizes)


def test_a_second_time_puts_the_first_threshold_back_though_the_heap_is_full_of_free_blocks() -> None:
    libc = FakeLibc(5 * MIB)
    host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)()
    first = libc.threshold
    libc.full_heap = True
    host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)()
    assert libc.threshold == first


def test_while_it_is_off_the_heap_has_no_hole_for_a_block_that_was_a_mapping_before() -> None:
    libc = FakeLibc(5 * MIB)
    undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    libc.heap += 300 * MIB
    libc.holes = [36 * MIB, 100 * MIB, 11 * MIB, 3 * MIB]
    undo()
    assert max(libc.holes) < libc.threshold
    assert sum(libc.sizes[plug] for plug in libc.plugs) > 130 * MIB
    undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    assert not libc.plugs
    assert sum(libc.holes) == 150 * MIB
    undo()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_after_the_undo_large_blocks_come_from_new_pages_again_at_once() -> None:
    run = [sys.executable, "-c", FAULTS.format(root=str(ROOT))]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    before, settled, after, resident_mib = map(int, done.stdout.split())
    pages = 6 * 36 * MIB // 4096
    assert before >= pages
    assert settled < pages // 100
    assert after >= pages
    assert resident_mib < 36


@pytest.mark.parametrize(
    ("environment", "refused"),
    [
        ({"MALLOC_MMAP_THRESHOLD_": "33554432"}, True),
        ({"MALLOC_TRIM_THRESHOLD_": "0"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576"}, True),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=4", "MALLOC_ARENA_MAX": "2"}, False),
    ],
)
def test_thresholds_that_stand_in_the_environment_are_left_alone(
    environment: Mapping[str, str], refused: bool
) -> None:
    if refused:
        with pytest.raises(Refused, match="the user's own"):
            host_malloc.refuse_own_settings(environment)
    else:
        host_malloc.refuse_own_settings(environment)


def test_a_glibc_with_a_limit_gets_the_most_it_takes_and_one_that_takes_nothing_is_refused() -> None:
    limited = FakeLibc(128 << 10, takes=40 * MIB)
    with pytest.raises(Refused, match="takes no other"):
        host_malloc.keep_blocks(limited, 1 << 30, 1 << 31)
    limited = FakeLibc(128 << 10, takes=40 * MIB)
    host_malloc.keep_blocks(limited, 1 << 30, 40 * MIB)()
    assert limited.fixed


def machine(root: Path, siblings: list[str], nodes: list[str]) -> str:
    for cpu, text in enumerate(siblings):
        (root / "cpu" / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (root / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(text + "\n")
    for node, text in enumerate(nodes):
        (root / "node" / f"node{node}").mkdir(parents=True)
        (root / "node" / f"node{node}" / "cpulist").write_text(text + "\n")
    return str(root)


@pytest.mark.parametrize(
    ("kind", "env", "cpus"),
    [
        ("cores", {}, {0, 1}),
        ("node", {}, {0, 2}),
        ("node", {"LOCAL_RANK": "1"}, {1, 3}),
        ("share", {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, {2, 3}),
        ("share", {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "3"}, {0}),
    ],
)
def test_which_cpus_a_choice_means(kind: str, env: Mapping[str, str], cpus: set[int], tmp_path: Path) -> None:
    root = machine(tmp_path, ["0,2", "1,3", "0,2", "1,3"], ["0,2", "1,3"])
    assert chosen(kind, {0, 1, 2, 3}, env, root) == cpus


@pytest.mark.parametrize(
    ("kind", "env", "says"),
    [
        ("cores", {}, "a core of its own already"),
        ("node", {}, "one NUMA node already"),
        ("share", {}, "no other ranks"),
        ("share", {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "9"}, "9 ranks share 2 CPUs"),
    ],
)
def test_where_there_is_nothing_to_choose_it_is_refused(
    kind: str, env: Mapping[str, str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=says):
        chosen(kind, {0, 1}, env, machine(tmp_path, ["0", "1"], ["0-1"]))


def test_another_allocator_comes_before_what_is_preloaded_already(tmp_path: Path) -> None:
    (tmp_path / "libjemalloc.so.2").touch()
    found = host_environment.preloaded_library({}, {"LD_PRELOAD": "/x.so"}, (str(tmp_path),))
    assert found == {"LD_PRELOAD": f"{tmp_path / 'libjemalloc.so.2'}:/x.so"}
    with pytest.raises(Refused, match="libtcmalloc is not installed"):
        host_environment.preloaded_library({"library": "tcmalloc"}, {}, (str(tmp_path),))


@pytest.mark.parametrize(
    ("name", "options", "variables"),
    [
        ("cuda.module_loading", {}, {"CUDA_MODULE_LOADING": "LAZY"}),
        ("cuda.allocator", {}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        (
            "cuda.allocator",
            {"expandable_segments": False, "max_split_size_mb": 128},
            {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False,max_split_size_mb:128"},
        ),
    ],
)
def test_variables_are_set_unless_the_user_has_set_them(
    name: str, options: dict[str, object], variables: dict[str, str]
) -> None:
    environment = REGISTRY[name].environment
    assert environment is not None
    values = REGISTRY[name].option_values(options)
    assert environment(values, {}) == variables
    assert environment(values, variables) == variables
    with pytest.raises(Refused, match="is set to mine already"):
        environment(values, dict.fromkeys(variables, "mine"))


@pytest.mark.parametrize(
    ("cpus", "ranks", "workers"), [(1, 1, 1), (2, 1, 1), (8, 1, 7), (64, 1, 8), (8, 4, 1)]
)
def test_how_many_workers_where_nobody_says(cpus: int, ranks: int, workers: int) -> None:
    assert default_workers(cpus, {"LOCAL_WORLD_SIZE": str(ranks)}) == workers


def test_a_value_that_somebody_else_has_set_meanwhile_stays_theirs() -> None:
    value = [1]
    undo = switch(lambda: value[0], lambda new: value.__setitem__(0, new), 2)
    undo()
    assert value == [1]
    undo = switch(lambda: value[0], lambda new: value.__setitem__(0, new), 2)
    value[0] = 3
    undo()
    assert value == [3]


class FakeTorch(ModuleType):
    """As far as threads between operators go: set once, and only before any was used."""

    def __init__(self, *, begun: bool = False) -> None:
        super().__init__("torch")
        self.threads, self.begun = 2, begun

    def get_num_interop_threads(self) -> int:
        return self.threads

    def set_num_interop_threads(self, count: int) -> None:
        if self.begun:
            raise RuntimeError(
                "cannot set number of interop threads after parallel work has started\nat x.cpp"
            )
        self.threads, self.begun = count, True


def test_threads_between_operators_are_set_once_and_before_anything_ran() -> None:
    inter_op = REGISTRY["threads.inter_op"]
    fresh = FakeTorch()
    inter_op.apply(Job(fresh), {"threads": 1})()
    assert fresh.threads == 1
    with pytest.raises(Refused, match="uses 1 already"):
        inter_op.apply(Job(fresh), {"threads": 1})
    with pytest.raises(Refused, match=r"after parallel work has started$"):
        inter_op.apply(Job(FakeTorch(begun=True)), {"threads": 1})
