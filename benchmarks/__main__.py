"""`python -m benchmarks [NAME …]`: run every benchmark in turn, or those named; tables to standard output."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDERS = ("attach", "cost", "verdict", "tuning", "relaunch")  # scripts only
SCRIPTS = [script for folder in FOLDERS for script in sorted((HERE / folder).glob("*.py"))]

wanted = sys.argv[1:]
if unknown := set(wanted) - {script.stem for script in SCRIPTS}:
    sys.exit(f"no benchmark named {', '.join(sorted(unknown))}: {', '.join(one.stem for one in SCRIPTS)}")
for script in SCRIPTS:
    if not wanted or script.stem in wanted:
        print(f"\n## {script.stem}", flush=True)
        module = ".".join(script.relative_to(HERE.parent).with_suffix("").parts)
        subprocess.run([sys.executable, "-m", module], cwd=HERE.parent, check=False)
