"""Runs the tuner on a thread of its own, so that the session stays responsive.

In: a client's request. Out: events for that client and all who listen: `progress`, `trial`, and at
the end `tuned` or `tune_failed`. One tuning at a time; it stops when its client leaves.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.records import Diagnosis, Record, Trial, TuneProgress
from autobrrr.records import Tuning as TuningResult
from autobrrr.sidecar.agent_link import Fields
from autobrrr.sidecar.bench import Call, LiveBench
from autobrrr.sidecar.seat import Seat, as_fields, error_fields
from autobrrr.sidecar.session import Session


class TuneRequest(Record, frozen=True, kw_only=True):
    """What `tune` was asked for. `allow`: the widest class; None for those allowed by default."""

    for_ns: int | None = None
    horizon_ns: int | None = None
    allow: str | None = None
    only: list[str] | None = None


class Tuner(Protocol):
    """Tunes a job on its bench; runs on its own thread until the budget or the candidates are spent."""

    def __call__(
        self,
        bench: LiveBench,
        request: TuneRequest,
        judged: Diagnosis,
        on_progress: Callable[[TuneProgress], None],
        on_trial: Callable[[Trial], None],
    ) -> TuningResult: ...


class Push(Protocol):
    """Sends an event to subscribers, and to the seats in `also`."""

    def __call__(self, event: Fields, also: Iterable[Seat] = ()) -> None: ...


class Tuning:
    """At most one tuner at work. Belongs to the event loop's thread."""

    def __init__(self, session: Session, call: Call, tuner: Tuner) -> None:
        self._session, self._call, self._tuner = session, call, tuner
        self._bench: LiveBench | None = None
        self._thread: threading.Thread | None = None
        self.asked_by: Seat | None = None

    def begin(self, asked_by: Seat, message: Fields, push: Push) -> None:
        """Start; events follow.

        Raises:
            AutobrrrError: this session can't tune, or does so already.
            UsageError: the request is none.
        """
        try:
            request = msgspec.convert({k: v for k, v in message.items() if k not in _FRAME}, TuneRequest)
        except msgspec.ValidationError as error:
            raise UsageError(f"tune: {error}") from None
        refusal = self._session.begin_tuning()
        if refusal is not None:
            raise AutobrrrError(f"this session can't tune: {refusal}", "autobrrr detach, then attach anew")
        self._bench = LiveBench(self._session, self._call)
        self.asked_by = asked_by
        arguments = (self._bench, request, self._session.snapshot(), push)
        self._thread = threading.Thread(target=self._work, args=arguments, name="tuner", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop as soon as the job is in a state that can be left."""
        if self._bench is not None:
            self._bench.cancel()

    def join(self, timeout_s: float) -> None:
        """Wait for the tuner's thread (it must be cancelled, or its session ended)."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _work(self, bench: LiveBench, request: TuneRequest, judged: Diagnosis, push: Push) -> None:
        asked_by = self.asked_by

        def send(event: Fields) -> None:
            self._call(lambda: push(event, also=(asked_by,) if asked_by is not None else ()))

        def progress(now: TuneProgress) -> None:
            self._call(lambda: self._session.narrate(now.text))
            send({"event": "progress", "progress": as_fields(now)})

        def tried(trial: Trial) -> None:
            self._call(lambda: self._session.record("trial", trial))
            send({"event": "trial", "trial": as_fields(trial)})

        try:
            result = self._tuner(bench, request, judged, progress, tried)
            self._call(lambda: self._session.record("tuned", result))
            send({"event": "tuned", "tuning": as_fields(result)})
        except AutobrrrError as error:
            send({"event": "tune_failed", "error": error_fields(error)})
        except Exception as error:  # noqa: BLE001 - the session must outlive a fault of the tuner
            traceback.print_exc()
            failed = AutobrrrError(f"the tuner failed: {type(error).__name__}: {error}")
            send({"event": "tune_failed", "error": error_fields(failed)})
        finally:
            self._call(self._through)

    def _through(self) -> None:
        if self._bench is not None:
            self._bench.close()
        self._bench = None
        self.asked_by = None
        self._session.end_tuning()


_FRAME = ("v", "do", "id")
