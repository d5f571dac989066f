"""A session of the past as a source: as it was at its end, or played as it went."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from autobrrr.errors import AutobrrrError
from autobrrr.records.log_lines import LogLine
from autobrrr.records.wire_answers import Explained
from autobrrr_tui.sources.recorded_view import ViewReader
from autobrrr_tui.sources.view_source import Publish, Tell, TellMeaning, ViewRequest
from autobrrr_tui.view_state import ScreenStanding, View

LONGEST_S = 5.0  # a gap in a recording is not waited for longer than this
OFTEN_S = 0.1  # entries that lie closer together come as one view
Wait = Callable[[float], bool]  # waits so long; true when it is over
Explain = Callable[[str], Explained]


class ReplaySource:
    """The lines of one session, each with its moment.

    Args:
        speed: How many times as fast it is played; None shows its end at once.
        wait: Waits between entries; a test hands one in that does not.
        explain: Looks a signal up.
    """

    def __init__(
        self,
        lines: Sequence[LogLine],
        *,
        title: str,
        speed: float | None = None,
        wait: Wait | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.title = title
        self._lines, self._speed, self._explain = lines, speed, explain
        self._left = threading.Event()
        self._wait = wait or self._left.wait

    def start(self, publish: Publish) -> None:
        threading.Thread(target=self._play, args=(publish,), name="replay", daemon=True).start()

    def request(self, request: ViewRequest, tell: Tell) -> None:
        tell("this is a recorded session: there is no job")

    def explain(self, names: Sequence[str], tell: TellMeaning) -> None:
        def look() -> None:
            if self._explain is None:
                tell("autobrrr explain WORD says what a word means")
                return
            for name in names:
                try:
                    tell(self._explain(name))
                except AutobrrrError as error:
                    tell(error.message)

        threading.Thread(target=look, name="explain", daemon=True).start()

    def close(self) -> None:
        self._left.set()

    def _play(self, publish: Publish) -> None:
        reader = ViewReader()
        shown_s: float | None = None
        for line in self._lines:
            at_s = line.at_s or 0.0
            gap_s = 0.0 if shown_s is None else at_s - shown_s
            shown_s = at_s if shown_s is None else shown_s
            if self._speed is not None and gap_s >= OFTEN_S:
                publish(replace(self._seen(reader.view, "playing"), playing=True))
                shown_s = at_s
                if self._wait(min(LONGEST_S, gap_s) / self._speed):
                    return
            reader.take(line)
        publish(self._seen(reader.view, reader.ended or "the recording ends here"))

    def _seen(self, view: View, what: str) -> View:
        return replace(view, standing=ScreenStanding.RECORDED, why=f"{self.title}, {what}")
