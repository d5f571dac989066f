"""The ways into a process that runs already, best first: `sys.remote_exec`, a pending call, a thread.

In go the target and the private folder with the agent in it; the agent then comes up by itself. What
was asked for and has not happened by the end is taken back, or does nothing when it fires late.
"""

from __future__ import annotations

import contextlib
from types import TracebackType

from autobrrr.attach import remote_exec, triage
from autobrrr.attach.bundle import code_bundle
from autobrrr.attach.ptrace.injector import (
    DEADLINE_S,
    NOT_MAPPED,
    InjectionWay,
    compose,
    deadline_after,
    inject,
)
from autobrrr.attach.target_folder import TargetFolder
from autobrrr.errors import CannotAttach
from autobrrr.records.record_base import AttachMethod

SCRIPT = "request.py"


class WayIn:
    """Has the agent loaded. Use as a context: it asks on entry, and takes back what was not done.

    Attributes:
        method: How the agent was asked for at last.
        pause_ns: How long a thread of the target stood still for that.
        tries: How many stops it took.
    """

    def __init__(self, target: triage.AttachTarget, place: TargetFolder) -> None:
        self._target, self._place = target, place
        self._asked = contextlib.ExitStack()
        self.method: AttachMethod = "ptrace"
        self.pause_ns = 0
        self.tries = 1

    def __enter__(self) -> WayIn:
        try:
            self._ask_by_remote_exec()
        except remote_exec.RemoteExecClosed:
            self._inject(InjectionWay.PENDING_CALL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asked.close()

    def beside_the_main_thread(self) -> str:
        """The main thread sleeps on: load the agent in a thread of its own.

        Returns:
            Why that is not possible; "" where it was done.
        """
        try:
            self._inject(InjectionWay.NEW_THREAD)
        except CannotAttach as error:
            return error.message
        return ""

    def _ask_by_remote_exec(self) -> None:
        slot = remote_exec.find(self._target.pid)
        source = code_bundle.stub(self._place.path, {"method": "remote_exec"})
        late = deadline_after(self._target.pid, DEADLINE_S)
        self._place.write(SCRIPT, compose(source, self._place.path, late, NOT_MAPPED).encode())
        script = f"{self._place.path}/{SCRIPT}"
        self._asked.enter_context(remote_exec.asked(slot, script, program=self._target.program))
        self.method = "remote_exec"

    def _inject(self, way: InjectionWay) -> None:
        source = code_bundle.stub(self._place.path, {"method": "ptrace"})
        taken = inject(
            self._target.pid, source, folder=self._place.path, way=way, program=self._target.program
        )
        self.method, self.pause_ns, self.tries = "ptrace", taken.pause_ns, taken.tries
