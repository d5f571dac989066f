"""The session of a job, joined or started; where a joined one differs from what was asked for, it is said."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autobrrr.client.session_client import Client, join_or_start
from autobrrr.errors import CannotAttach
from autobrrr.sidecar.process.session_options import SessionOptions

_ENTERING = threading.Semaphore(4)  # of many ranks so many are entered at once


def open_session(
    pid: int,
    options: SessionOptions,
    say: Callable[[str], None],
    *,
    foreground: bool = False,
    owned: bool = False,
) -> Client:
    """The session of a job, joined or started. The arguments are `join_or_start`'s; `say` hears all of it.

    Raises:
        TargetGone: there is no such process, or it ended meanwhile.
        CannotAttach: it can't be entered, or its session does more to it than was asked for.
    """
    with _ENTERING:
        client = join_or_start(pid, options, foreground=foreground, owned=owned, on_wait=say)
    try:
        if not client.started:
            tell_about_joined(client, options, say)
        if not (client.started and (owned or foreground)):
            client.own(owned)  # a session without an owner outlives this command
    except BaseException:
        client.close()
        raise
    return client


def tell_about_joined(client: Client, options: SessionOptions, say: Callable[[str], None]) -> None:
    """A session that was there keeps its own options: say where they differ.

    Raises:
        CannotAttach: it does more to the job than was asked for.
    """
    facts = client.facts
    stricter = [
        flag
        for flag, asked, there in (
            ("--outside", options.outside, facts.outside),
            ("--readonly", options.readonly, facts.readonly or facts.outside),
            (
                "--no-probe",
                options.probing == "off",
                facts.probing == "off" or facts.readonly or facts.outside,
            ),
            ("--metrics", options.metrics is not None, facts.metrics is not None),
        )
        if asked and not there
    ]
    if stricter:
        raise CannotAttach(
            f"process {facts.pid} already has a session, which was started without {stricter[0]}",
            f"autobrrr detach {facts.pid}, then attach again",
        )
    say(f"joined the existing session of process {facts.pid}")
    if facts.outside and not options.outside:
        say(f"it only watches from outside; autobrrr detach {facts.pid} ends it")
    elif facts.readonly and not options.readonly:
        say(f"it is read-only; autobrrr detach {facts.pid} ends it")
