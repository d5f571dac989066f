"""From an empty environment to the first verdict: install without torch, diagnose a job of this environment.

Promised: 60 s to the verdict, a wheel of at most 2 MB, 100 ms for `--help`. Needs pip's package index.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import ROOT

TRAIN = ROOT / "autobrrr" / "demo" / "train.py"
HELPS = 9


def timed_s(*words: str, env: dict[str, str]) -> float:
    """How long a command takes, its output dropped."""
    began = time.perf_counter()
    subprocess.run(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="autobrrr-install-") as folder:
        place = Path(folder)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        env |= {f"XDG_{name}_HOME": str(place / name.lower()) for name in ("CACHE", "STATE")}
        subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
        pip, autobrrr = str(place / "venv/bin/pip"), str(place / "venv/bin/autobrrr")
        subprocess.run([pip, "wheel", "-q", "--no-deps", "-w", place / "wheel", ROOT], check=True, env=env)
        wheel = next((place / "wheel").glob("*.whl"))
        install_s = timed_s(pip, "install", "--no-cache-dir", str(ROOT), env=env)
        job = subprocess.Popen([sys.executable, str(TRAIN)], stdout=subprocess.DEVNULL, env=env)
        try:
            time.sleep(4)
            verdict_s = timed_s(autobrrr, "diagnose", str(job.pid), env=env)
        finally:
            job.kill()
            job.wait()
        help_s = statistics.median(timed_s(autobrrr, "--help", env=env) for _ in range(HELPS))
        torch = subprocess.run(
            [place / "venv/bin/python", "-c", "import torch"], stderr=subprocess.DEVNULL, check=False
        )
        print(f"wheel                        {wheel.stat().st_size / 1e6:.2f} MB")
        print(f"pip install, without cache   {install_s:.1f} s")
        print(f"diagnose, peaks measured     {verdict_s:.1f} s")
        print(f"together                     {install_s + verdict_s:.1f} s")
        print(f"--help, median of {HELPS}          {help_s * 1e3:.0f} ms")
        print(f"torch installed              {'yes' if torch.returncode == 0 else 'no'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
