"""Records a session as it goes, for trying the screens without a job.

    python docs/recording.py PID FILE.jsonl.gz --tune-for 45 --only optimizer.fused,threads.intra_op

Joins the session of a job, waits for its verdict, has it tuned, and writes what a screen would have
been sent, one entry a line (`replay_source.read` reads it); of the script only its name, not where it lies.
The session ends with it.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from autobrrr.client.session_client import Client, join
from autobrrr.errors import TargetGone
from autobrrr.records import Diagnosis, Tuning
from autobrrr.records.events import Told, entry_of
from autobrrr.records.session_requests import ShowDetails, TuneRequest
from autobrrr.records.wire_answers import Details, TuneFailed

EVERY_S = 1.0
REST_S = 6.0  # recorded after the last thing has happened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pid", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--verdict-within", type=float, default=30.0, metavar="S")
    parser.add_argument("--tune-for", type=float, default=45.0, metavar="S")
    parser.add_argument("--only", help="remedies, with commas between them")
    args = parser.parse_args()
    client = join(args.pid)
    if client is None:
        raise SystemExit(f"process {args.pid} has no session; autobrrr attach {args.pid} starts one")
    only = args.only.split(",") if args.only else None
    with client, gzip.open(args.file, "wb") as out:
        for event in session(client, args.verdict_within, args.tune_for, only):
            entry = {"at": round(time.time(), 3), "kind": entry_of(event), "body": placeless(event)}
            out.write(msgspec.json.encode(entry) + b"\n")
        ended = {"at": round(time.time(), 3), "kind": "ended", "body": client.detach()}
        out.write(msgspec.json.encode(ended) + b"\n")


def placeless(event: Told) -> Told:
    """The event with the name of the job's script instead of its path."""
    if isinstance(event, Details):
        tuned = event.tuned and placeless(event.tuned)
        return msgspec.structs.replace(event, tuned=tuned)
    if isinstance(event, Diagnosis | Tuning) and event.job is not None:
        script = event.job.script.rpartition("/")[2]
        words = [script if word.rpartition("/")[2] == script else word for word in event.job.argv]
        job = msgspec.structs.replace(event.job, script=script, argv=words)
        return msgspec.structs.replace(event, job=job)
    return event


def session(client: Client, verdict_s: float, tune_s: float, only: list[str] | None) -> Iterator[Told]:
    """What a screen is sent: up to a verdict, through a tuning, and a moment longer."""
    end_s = time.monotonic() + verdict_s
    yield from _until(
        client, end_s, lambda event: isinstance(event, Diagnosis) and event.confidence == "high"
    )
    yield from _until(client, time.monotonic() + REST_S / 2)
    client.ask(TuneRequest(for_s=tune_s, only=only, stays=True))
    done = (Tuning, TuneFailed)
    yield from _until(client, time.monotonic() + 3 * tune_s, lambda event: isinstance(event, done))
    yield from _until(client, time.monotonic() + REST_S)


def _until(
    client: Client, end_s: float, over: Callable[[Told], bool] = lambda event: False
) -> Iterator[Told]:
    """What comes until the time is up, or that which was waited for has come."""
    details_s = 0.0
    while time.monotonic() < end_s:
        for event in client.events(for_s=0.2, every_s=EVERY_S):
            yield event
            if over(event):
                return
        if client.ending is not None:
            raise TargetGone(f"the session ended: {client.ending.why}")
        if time.monotonic() - details_s >= EVERY_S:
            details_s = time.monotonic()
            yield client.ask(ShowDetails())


if __name__ == "__main__":
    main()
