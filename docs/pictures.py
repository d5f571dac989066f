"""Draws `docs/images`: a recorded session as an animation, its screens, and what commands printed.

`python docs/pictures.py` writes all of it from the recording that ships and from `docs/images/captured`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tui"), str(ROOT / "docs")]

from drawing import Rows, picture  # noqa: E402
from rich.cells import cell_len  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from autobrrr.cli.printed import COLOURED  # noqa: E402
from autobrrr_tui.app import AutobrrrApp  # noqa: E402
from autobrrr_tui.screens.session_screen import SessionScreen  # noqa: E402
from autobrrr_tui.sources.replay_source import RECORDING, ReplaySource, read  # noqa: E402
from autobrrr_tui.view_state import Publish, View  # noqa: E402

IMAGES = Path(__file__).parent / "images"
SIZES = ((60, 16), (80, 24), (120, 40), (200, 60))
MOVING = ((60, 16), (120, 40))
EACH, LENGTH_S, LAST_S = 2, 10, 3  # screens of a stage of the session; how long all are shown, and the last

# What was typed stands in the texts; what it ran on, here. All on 2 shared cores, torch 2.13.0 (CPU).
# Paths are cut to names, lines are broken as on a terminal of 80 columns, `…` stands for what is left out.
CAPTURED = {
    "ci": "the check of ci.md on a job that shrinks images of 256x256 in the training process",
    "containers": "the demo's train.py in a pid namespace; doctor first without CAP_SYS_PTRACE (setpriv)",
    "launchers": "torchrun with two ranks that shrink images: 64x64 on rank 0, 256x256 on rank 1",
    "metrics": "the demo's train.py, attached for 20 s, without what is 0 in limit and regime",
    "prove": "the demo's train.py, and the same with fused=True in its optimizer",
    "slurm": "the demo's train.py and examples/slow_dataset.py in a pid namespace; without Slurm",
    "traces": "tb_plugin/samples/resnet50_num_workers_0 of pytorch/kineto, of 2021-06-09 (BSD-3)",
    "trainers": "Trainer on a GPT-2 of 4 layers and 64 features; a callback takes the norm of each gradient",
    "tune-script": "examples/slow_dataset.py; the lines that begin with autobrrr: come on standard error",
}


class Silent(ReplaySource):
    """Publishes nothing: the views are handed to the screen one by one."""

    def start(self, publish: Publish) -> None:
        pass


def recorded() -> list[View]:
    """What the screen shows of the recording, in its order, up to the moment before the session is left."""
    views: list[View] = []
    source = ReplaySource(read(RECORDING), title="demo", speed=1, wait=lambda _: False)
    source._play(views.append)
    return [view for view in views if view.playing]


def moments(views: Sequence[View]) -> list[View]:
    """The first view, and as many of each stage, evenly spread up to its last."""

    def stage(view: View) -> object:
        return (view.tuned is None, view.progress and (view.progress.stage, view.progress.remedy))

    stages = [list(group) for _, group in groupby(views, stage)]
    spread = [
        of_stage[round(each * (len(of_stage) - 1) / EACH)]
        for of_stage in stages
        for each in range(1, EACH + 1)
    ]
    return [views[0], *spread]


async def screens(size: tuple[int, int], views: Sequence[View], *keys: str) -> list[Rows]:
    """What the screen shows of these views after these keys."""
    screen = SessionScreen(Silent([], title="demo"), export_to=Path())
    found: list[Rows] = []
    app = AutobrrrApp(screen, environ={})
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys)
        for view in views:
            screen._publish(view)
            await pilot.pause()
            found.append([list(strip) for strip in screen._compositor.render_strips()])
    return found


def moving(size: tuple[int, int]) -> str:
    """The animation of the recording on a screen of this size."""
    shown = asyncio.run(screens(size, moments(recorded())))
    title = "The first screen of autobrrr attach: a verdict, remedies tried in A/B pairs, and the proven gain"
    each_s = (LENGTH_S - LAST_S) / (len(shown) - 1)
    return picture(title, shown, [*[each_s] * (len(shown) - 1), LAST_S])


def still(size: tuple[int, int], *keys: str) -> str:
    """The screen after the tuning."""
    return picture("autobrrr attach", asyncio.run(screens(size, recorded()[-1:], *keys)))


def printed(name: str) -> str:
    """What a command printed, in the program's colors."""
    text = (IMAGES / "captured" / f"{name}.txt").read_text()
    shown = Text(text.rstrip())
    shown.highlight_regex(r"(?m)^\$ .*$", "bold")
    for pattern, style in COLOURED.items():
        shown.highlight_regex(pattern, style)
    columns = max(map(cell_len, text.splitlines()))
    console = Console(width=columns, color_system="truecolor", highlight=False)
    return picture(CAPTURED[name], [console.render_lines(shown)])


def pages() -> dict[str, str]:
    """What is drawn, by its place in `docs`."""
    return {
        **{f"images/session-{wide}x{high}.svg": moving((wide, high)) for wide, high in MOVING},
        **{f"images/screen-{wide}x{high}.svg": still((wide, high)) for wide, high in SIZES},
        "images/remedies-120x24.svg": still((120, 24), "3"),
        **{f"images/{name}.svg": printed(name) for name in CAPTURED},
    }


def main() -> None:
    for name, svg in pages().items():
        (IMAGES.parent / name).write_text(svg)


if __name__ == "__main__":
    main()
