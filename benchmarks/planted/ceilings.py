"""What this machine can do at most, measured here and by no code of the product.

`python -m benchmarks.planted.ceilings --threads 1` prints one JSON object: FLOP/s of a square matmul,
bytes/s of `torch.add(a, b, out=c)` on tensors far above the last cache.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

MATMUL_N = 1024
ADD_ELEMENTS = 1 << 25  # 128 MiB a tensor
TIMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The two roofs, at one number of threads."""

    threads: int
    matmul_flops: float
    bytes_per_s: float


def ceilings(threads: int, device: str = "cpu", python: str = sys.executable) -> Ceilings:
    """Measure in a process of its own."""
    words = [python, "-m", "benchmarks.planted.ceilings", "--threads", str(threads), "--device", device]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    return Ceilings(**json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    n, many = (MATMUL_N, ADD_ELEMENTS) if args.device == "cpu" else (8 * MATMUL_N, 8 * ADD_ELEMENTS)

    def best_s(work: Callable[[], object]) -> float:
        took = []
        for _ in range(TIMES):
            began = time.perf_counter()
            work()
            if args.device != "cpu":
                torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        return min(took)

    one, other = torch.randn(2, n, n, device=args.device)
    into = torch.empty(n, n, device=args.device)
    matmul_s = best_s(lambda: torch.mm(one, other, out=into))
    first, second = torch.ones(2, many, device=args.device)
    third = torch.zeros(many, device=args.device)
    add_s = best_s(lambda: torch.add(first, second, out=third))
    found = Ceilings(threads=args.threads, matmul_flops=2 * n**3 / matmul_s, bytes_per_s=12 * many / add_s)
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
