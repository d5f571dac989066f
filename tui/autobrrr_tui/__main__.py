"""`python -m autobrrr_tui`: says where the live view is for now."""

from __future__ import annotations

import sys

from autobrrr.errors import UsageError


def main() -> int:
    """Until there are screens: one line, and the exit code of a usage error."""
    error = UsageError("the terminal UI is not built yet", "autobrrr attach PID --plain shows a job live")
    print(f"autobrrr: {error.message} | {error.hint}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
