"""Scripts that measure: `python -m benchmarks.FOLDER.NAME`, from the repository's root.

They use the jobs and fakes of the tests, and the terminal UI.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / folder) for folder in ("tests", "tui")]


def parser(about: str | None) -> argparse.ArgumentParser:
    """Of a script: `--help` shows its docstring as it is written."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=about, formatter_class=raw)
