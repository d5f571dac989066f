"""Whether an exception is the job's: its handler of a signal raised it while our code ran.

Python runs such a handler in whatever code the main thread is in, and raises there what it raises.
"""

from __future__ import annotations

import signal


def raised_by_handler(error: BaseException) -> bool:
    """Whether a handler of a signal is in the traceback."""
    codes = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None
