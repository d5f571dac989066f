"""A session of the past as a source, read from its log: as it was at its end, or played as it went.

What can't be read is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.records import Diagnosis, Record, Reverted, Verdict, verdict_line
from autobrrr.records.events import Told, from_entry
from autobrrr.records.log_lines import NO_MOMENT, LogLine, LogLines, lines_of
from autobrrr.records.wire_answers import ActivityLine, Details, Explained, SessionEnding, StepHistory
from autobrrr_tui.sources.view_source import Publish, Tell, TellMeaning, ViewRequest
from autobrrr_tui.view_state import ScreenStanding, View, heard, left_on, retuned, said, take

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


class ViewReader:
    """Grows a view from the lines of a log."""

    def __init__(self) -> None:
        self.view = View()
        self.ended = ""
        self._attached_s: float | None = None  # by the clock of the log

    def feed(self, lines: Iterable[str | bytes]) -> None:
        for line in timed(LogLines(lines)):
            self.take(line)

    def take(self, line: LogLine) -> bool:
        """One line with its moment; False where this version can't read it, and leaves it out."""
        try:
            found = from_entry(line.kind, line.body)
        except msgspec.ValidationError:
            return False
        if found is not None:
            self._take(line.at_s or 0.0, found)
        return True

    def _take(self, at_s: float, found: Record) -> None:
        if isinstance(found, Diagnosis) and found.t_ns is not None:
            self._attached_s = at_s - found.t_ns / 1e9
        elif self._attached_s is None:
            self._attached_s = at_s
        t_ns = int((at_s - self._attached_s) * 1e9)
        if isinstance(found, ActivityLine):
            self.view = heard(self.view, found, t_ns)
        elif type(found) is Verdict:  # a snapshot is one too
            self.view = said(self.view, verdict_line(found), t_ns)
        elif isinstance(found, StepHistory):
            known = self.view.details or Details(history=found)
            self.view = replace(self.view, details=msgspec.structs.replace(known, history=found))
        elif isinstance(found, Reverted) and self.view.tuned is not None:
            self.view = retuned(self.view, self.view.tuned.without(found))
        elif isinstance(found, SessionEnding):
            self.ended = found.why
            self.view = left_on(said(self.view, f"ended: {self.ended}", t_ns))
        elif isinstance(found, Told):
            self.view = take(self.view, found)


def timed(lines: LogLines) -> Iterator[LogLine]:
    """The lines that have a moment; the others are counted."""
    for line in lines:
        if line.at_s is None:
            lines.pass_over(line.number, NO_MOMENT)
        else:
            yield line


def read(path: Path) -> list[LogLine]:
    """All lines of a session log or a recording (`.gz`), and one more that says what can't be read.

    Raises:
        UsageError: it can't be read, or holds no session.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error}", "autobrrr report SESSION") from None
    lines, sound, trial = LogLines(lines_of(path)), [], ViewReader()
    for line in timed(lines):
        if trial.take(line):
            sound.append(line)
        else:
            lines.pass_over(line.number, f"a {line.kind} of another version")
    if not any(line.kind in ("attached", "snapshot") for line in sound):
        said = f"; {lines.said}" if lines.said else ""
        raise UsageError(
            f"{path} holds no session{said}", "session logs lie in the state folder, sessions/*.jsonl"
        )
    if lines.said is not None:
        sound.append(LogLine(number=0, at_s=sound[-1].at_s, kind="note", body={"text": lines.said}))
    return sound
