"""A running session as a source: one thread listens, requests are done one at a time on another.

Every request has a connection of its own, so that a slow one (a remedy on a job with long steps) never
stops the picture; to end something waits for no other request. When the sidecar is gone the listener
looks for a new session of the same job. The sessions of other ranks are asked
once a second where they are there already; nothing is attached by this. Where the ranks were not
compared yet, or one of them has changed, they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from autobrrr.client.all_ranks import siblings, with_siblings
from autobrrr.client.each_rank import Joiner, ask, compare_sessions
from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.records import Diagnosis
from autobrrr.records.session_requests import ReadLog, ShowDetails
from autobrrr.records.wire_answers import ActivityLine, SessionEnding
from autobrrr_tui.sources.replay_source import ViewReader
from autobrrr_tui.view_state import Publish, ScreenStanding, Tell, View, Work, left_on, said, take

OnText = Callable[[str], None]
Open = Callable[[OnText], Client]
EVERY_S = 0.1
DETAILS_S = 1.0
REJOIN_S = 1.0
LOG_LINES = 500


class LiveSource:
    """The session of one job.

    Args:
        open_session: Joins or starts it; gets where live lines go while that takes long.
        siblings: Looks for the sessions of the other ranks of the job.
    """

    def __init__(
        self,
        pid: int,
        open_session: Open,
        *,
        readonly: bool = False,
        siblings: Siblings | None = None,
        rejoin: Callable[[int], Client | None] = join,
    ) -> None:
        self.error: AutobrrrError | None = None  # what kept it from opening
        self.ending: SessionEnding | None = None
        self._pid, self._open, self._rejoin = pid, open_session, rejoin
        self._siblings = siblings
        self._view = View(pid=pid, readonly=readonly)
        self._readonly = readonly
        self._publish: Publish = lambda view: None
        self._left = threading.Event()
        self._requests: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._steps: tuple[int | None, float] = (None, 0.0)

    def start(self, publish: Publish) -> None:
        """Open the session and listen, on threads of their own."""
        self._publish = publish
        for work in (self._listen, self._serve):
            threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()

    def request(self, work: Work, tell: Tell, *, at_once: bool = False) -> None:
        done = partial(self._do, work, tell)
        if at_once:  # the sidecar sorts out what is under way, also when this screen leaves
            threading.Thread(target=done, daemon=True).start()
        else:
            self._requests.put(done)

    def close(self) -> None:
        """Leave; the session goes on."""
        self._left.set()
        self._requests.put(None)
        if self._siblings is not None:
            self._siblings.close()

    # The listener

    def _listen(self) -> None:
        try:
            client: Client | None = self._open(self._wait_line)
        except AutobrrrError as error:
            self.error = error
            self._stand(ScreenStanding.REFUSED, error.message, error.hint)
            return
        while client is not None and not self._left.is_set():
            try:
                with client:
                    self._follow(client)
                    self.ending = client.ending
                    if client.ending is not None:
                        last = None if client.ending.kind == "job ended" else self._view.snapshot
                        self._end(client.ending.why, last.active if last is not None else ())
                return
            except TargetGone as error:
                self._end(error.message)
                return
            except AutobrrrError as error:
                self._stand(ScreenStanding.LOST, error.message, error.hint)
            client = self._look_for_another()

    def _follow(self, client: Client) -> None:
        """Take in what the session says until it ends or the screen leaves."""
        facts = client.facts
        view = replace(
            self._view,
            standing=ScreenStanding.LIVE,
            why="",
            hint="",
            pid=facts.pid,
            readonly=self._readonly or facts.readonly or facts.outside,
        )
        self._view = self._remembered(client, view)
        details_s = 0.0
        while not self._left.is_set() and client.ending is None:
            for word in client.events(for_s=EVERY_S, every_s=EVERY_S):
                self._view = take(self._view, word)
                if self._left.is_set():
                    return
            now_s = time.monotonic()
            if client.ending is None and now_s - details_s >= DETAILS_S:
                details_s = now_s
                self._view = take(self._view, client.ask(ShowDetails()))
            view = self._view if self._siblings is None else self._siblings.look(self._view)
            self._show(replace(view, silent_s=self._silent(now_s)))

    def _remembered(self, client: Client, view: View) -> View:
        """What the session has logged before this screen came: trials, results, notes."""
        lines = client.ask(ReadLog(LOG_LINES))
        reader = ViewReader()
        reader.feed(lines.lines)
        old = reader.view
        return replace(view, trials=old.trials, tuned=old.tuned, log=old.log, log_path=lines.path)

    def _silent(self, now_s: float) -> float:
        """Seconds since the count of steps last grew."""
        found = self._view.snapshot
        steps = found.steps if found is not None else None
        if steps != self._steps[0]:
            self._steps = (steps, now_s)
        return 0.0 if steps is None else now_s - self._steps[1]

    def _look_for_another(self) -> Client | None:
        """A session that somebody starts anew; None when the job or this screen is gone."""
        while not self._left.wait(REJOIN_S):
            try:
                client = self._rejoin(self._pid)
            except TargetGone as error:
                self._end(error.message)
                return None
            except AutobrrrError:
                continue
            if client is not None:
                self._view = said(self._view, "joined the session again")
                return client
        return None

    def _wait_line(self, text: str) -> None:
        self._show(replace(take(self._view, ActivityLine(text=text)), why=text))

    def _end(self, why: str, still_on: Sequence[str] = ()) -> None:
        self._view = left_on(self._view, still_on)
        self._stand(ScreenStanding.ENDED, why)

    def _stand(self, standing: ScreenStanding, why: str, hint: str = "") -> None:
        self._show(replace(self._view, standing=standing, why=why, hint=hint))

    def _show(self, view: View) -> None:
        self._view = view
        if not self._left.is_set():
            self._publish(view)

    # Requests

    def _serve(self) -> None:
        """One request after the other."""
        while (work := self._requests.get()) is not None:
            work()

    def _do(self, work: Work, tell: Tell) -> None:
        """On a connection of its own; `tell` gets why it can't be."""
        try:
            client = self._rejoin(self._pid)
            if client is None:
                tell("there is no session of this job any more")
                return
            with client:
                said = work(client)
            if said is not None:
                tell(said)
        except AutobrrrError as error:
            tell(f"{error.message}; {error.hint}" if error.hint else error.message)


ASK_S = 1.0
COMPARE_S = 60.0  # between two comparisons
TUNING = "tuning"  # the state of a session whose steps nobody else may make longer

Compare = Callable[[Sequence[int]], object]


class Siblings:
    """Asked by the listener of one rank; works on a thread of its own once there are several ranks.

    Args:
        find: The other ranks of a process that have a session.
        compare: Has the sessions of these ranks time the same steps; each is told what came of it.
    """

    def __init__(
        self,
        find: Callable[[int], Sequence[int]] = siblings,
        joiner: Joiner = join,
        compare: Compare = lambda pids: compare_sessions(pids, None, lambda text: None),
    ) -> None:
        self._find, self._joiner, self._compare = find, joiner, compare
        self._told: list[Diagnosis] = []
        self._own: Diagnosis | None = None
        self._may_compare = False
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, view: View) -> View:
        """The view with all ranks that are known; unchanged for a job of one rank."""
        found = view.snapshot
        if found is None or found.job is None or found.job.rank is None or not found.job.has_other_ranks:
            return view
        self._own, self._may_compare = found, view.acting and not view.tuning
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, args=(found.pid,), name="ranks", daemon=True)
            self._thread.start()
        return replace(view, snapshot=with_siblings(found, self._told))

    def close(self) -> None:
        self._left.set()

    def _watch(self, own_pid: int) -> None:
        compared_s = -COMPARE_S
        while True:
            with suppress(TargetGone):
                self._told = ask(self._find(own_pid), joiner=self._joiner)
            if time.monotonic() - compared_s >= COMPARE_S and self._lack_comparison():
                self._compare([own_pid, *(each.pid for each in self._told)])
                compared_s = time.monotonic()
            if self._left.wait(ASK_S):
                return

    def _lack_comparison(self) -> bool:
        """Whether there are several, and what makes one of them late is not known."""
        own, told = self._own, self._told
        if own is None or not told or not self._may_compare:
            return False
        ready = all(one.anatomy is not None and one.state != TUNING for one in (own, *told))
        return ready and with_siblings(own, told).straggler is None
