"""`python -m benchmarks`: run every benchmark of this folder in turn, tables to standard output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

for script in sorted(Path(__file__).parent.glob("*.py")):
    if not script.name.startswith("_"):
        print(f"\n## {script.stem}", flush=True)
        subprocess.run([sys.executable, str(script)], check=False)
