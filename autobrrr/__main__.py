"""`python -m autobrrr` and the console script. From here on Ctrl-C ends it with 130 and without a traceback.

While the program is still being imported there is nothing to clean up: it ends at once.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # there already: `signal` itself takes milliseconds in which Ctrl-C would be a traceback
import os
import sys

INTERRUPTED = 130  # errors.EXIT_INTERRUPTED, before anything of ours is imported


def main() -> int:
    """Run the command line; returns its exit code."""
    before = _signal.getsignal(_signal.SIGINT)
    if before is _signal.default_int_handler:  # else whoever started us has Ctrl-C ignored
        _signal.signal(_signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    from autobrrr.cli import main as run

    return run(ready=lambda: _signal.signal(_signal.SIGINT, before))


if __name__ == "__main__":
    sys.exit(main())
