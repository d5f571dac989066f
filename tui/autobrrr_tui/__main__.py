"""`python -m autobrrr_tui`: plays the recorded session that comes with the package."""

from __future__ import annotations

from pathlib import Path

from autobrrr_tui.app import show
from autobrrr_tui.sources.replay_source import ReplaySource, read

RECORDING = Path(__file__).parent / "recordings" / "demo.jsonl.gz"


def main() -> None:
    show(ReplaySource(read(RECORDING), title="the demo job", speed=1.0))


if __name__ == "__main__":
    main()
