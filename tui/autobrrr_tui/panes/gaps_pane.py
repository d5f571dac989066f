"""Mode 4: the last profiler window: idle time by cause, slowest operators; traced operators without one."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.report.page_model import Line
from autobrrr.report.text.window_text import operators_table, window_parts
from autobrrr_tui.page_rows import ScreenPart
from autobrrr_tui.view_state import View

HOW = "w takes one: a few steps under torch.profiler; these take longer, the first by up to seconds"


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    found, details = view.snapshot, view.details
    window = found.window if found is not None else None
    shown: list[ScreenPart] = [*window_parts(window)] if window is not None else []
    if window is None:
        shown = [Line(text="no profiler window was taken"), *[Line(text=HOW, tone="muted")] * view.acting]
    if found is not None and details is not None and details.operators and not (window and window.by_op):
        ops = [(op.op, op.count, op.kernel_ns) for op in details.operators]
        shown.append(operators_table(ops, found.step_ns.median, "kernels of traced steps"))
    return shown
