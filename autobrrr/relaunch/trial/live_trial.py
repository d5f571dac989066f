"""One trial as a live thing: started under a keeper, watched through its agent, paused, resumed, ended.

In: a launch (command, variables, plan), limits, walls. Out: steps, and an ending. `close` leaves
nothing: no process, socket or folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.attach.preload import preload_outcome, preloaded_agent
from autobrrr.errors import AutobrrrError
from autobrrr.machine import procfs
from autobrrr.machine.file_readiness import is_readable
from autobrrr.relaunch.trial import memory_use
from autobrrr.relaunch.trial.memory_use import Bytes
from autobrrr.relaunch.trial.trial_agents import Witnesses
from autobrrr.relaunch.trial.trial_endings import Kind, TrialEnding, ending_of, last_lines
from autobrrr.relaunch.trial.trial_steps import TrialSteps, is_settled

LOOK_S = 0.004
DRAIN_S, DRAIN_STEPS = 2.0, 16  # patience with a device that has work queued
ANSWER_S = 20.0
OUTPUT = "output"  # a file: nobody need read along
MOST_OUTPUT_BYTES = 64 << 20  # it may lie in memory: what is longer begins anew
COMING_ON_S = 300.0  # for a step while a remedy comes on: it may compile
KEEP_S = 600.0  # for the copy of what is kept
FEWEST_STEPS = 16  # of a script that ends by itself, to be measured all the same
ROOT = Path(__file__).resolve().parents[3]
_PATH = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
CODE = f"{_PATH}; from autobrrr.relaunch.sandbox.supervisor import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLaunch:
    """What is started: words, all variables, what its agents apply.

    Attributes:
        audit: Where an account of the whole run is written.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    plan: Mapping[str, object] | None = None
    remedies: tuple[str, ...] = ()
    audit: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a trial may take until it is given up, in seconds."""

    first_step_s: float = 300.0
    settle_s: float = 30.0
    silence_s: float = 120.0
    silence_steps: float = 20.0
    grace_s: float = 3.0


@dataclass(slots=True)
class LiveTrial:
    """A trial that has been started.

    Attributes:
        ending: How it ended; None while it is fit to be measured.
        start_ns: From the start of its process to its first step.
    """

    launch: TrialLaunch
    folder: Path
    limits: Limits
    witnesses: Witnesses
    keeper: subprocess.Popen[bytes]
    link: socket.socket
    prepared: preloaded_agent.Prepared
    told: preload_outcome.PreloadOutcome
    began_ns: int = field(default_factory=time.perf_counter_ns)
    ending: TrialEnding | None = None
    settled: bool = False
    paused: bool = False
    ran_ns: int = 0  # until it was last paused
    kept: int | str = 0  # so many files of its output, or why none
    _said: dict[str, object] = field(default_factory=dict)  # by the keeper and the init, the latest of each
    _keeper_is_gone: bool = False
    _alive_ns: int = 0
    closed: bool = False
    _last_lines: tuple[str, ...] = ()
    _paid_at: int | None = None  # the step by which remedies that take long at first are through with it

    @property
    def steps(self) -> TrialSteps:
        return self.witnesses.steps

    @property
    def samples(self) -> int | None:
        """Samples of one step over all ranks."""
        each = self.steps.samples
        return None if each is None else each * self.witnesses.world_size

    @property
    def tokens(self) -> float | None:
        """Mean tokens of one step over all ranks."""
        each = self.steps.tokens
        return None if each is None else each * self.witnesses.world_size

    @property
    def start_ns(self) -> int | None:
        first = self.steps.first_end_ns
        return None if first is None else first - self.began_ns

    @property
    def lines(self) -> tuple[str, ...]:
        """The last that it printed."""
        return self._last_lines or last_lines(self.folder / OUTPUT)

    @property
    def family(self) -> tuple[int, ...]:
        """Its processes, as they are numbered here: all below the one that the keeper has started."""
        return tuple(procfs.descendants(self.keeper.pid)[1:])

    def look(self) -> None:
        """Take in what has happened; sets `ending` where the trial is over or given up."""
        self.witnesses.look()
        self._hear(0)
        if self.ending is not None or self.paused:
            return
        with contextlib.suppress(OSError):
            if (output := self.folder / OUTPUT).stat().st_size > MOST_OUTPUT_BYTES:
                os.truncate(output, 0)
        now = time.perf_counter_ns()
        steps = self.steps
        comes_on = self._is_coming_on()
        first_step_s = max(self.limits.first_step_s, COMING_ON_S if comes_on else 0.0)
        silent_s = (now - max(steps.last_end_ns or self.began_ns, self._alive_ns)) / 1e9
        usual_s = max(self.limits.silence_s, self.limits.silence_steps * steps.typical_ns / 1e9)
        if steps.loss_lost:
            self._give_up("nan", "its loss is no longer a finite number")
        elif not steps.count and not self.witnesses.resting and silent_s > first_step_s:
            self._give_up(
                "no_steps", f"no training step was seen within {first_step_s:.0f} s after it started"
            )
        elif steps.count and silent_s > (first_step_s if comes_on else usual_s):
            self._give_up("hang", f"no step for {silent_s:.0f} s, after {steps.count} steps")

    def warm_up(self, on_look: Callable[[], None] = lambda: None) -> bool:
        """Wait until step times have settled; false where the trial ended before."""
        first_seen_ns: int | None = None
        while self.ending is None:
            self.look()
            on_look()
            steps, now = self.steps, time.perf_counter_ns()
            comes_on = self._is_coming_on()
            if steps.count and (first_seen_ns is None or (comes_on and self._paid_at is not None)):
                first_seen_ns = now
            self.settled = not (steps.hardly_seen or comes_on) and is_settled(steps.recent)
            if self.settled or (first_seen_ns or now) + self.limits.settle_s * 1e9 < now:
                if steps.lack_stamps:
                    why = "it computes on a device that works asynchronously, whose clock is not seen"
                    self._give_up("no_device_stamps", why)
                if len(steps.recent) >= 2 or self.ending is not None:
                    self._refuse_what_is_not_on()
                    break
            time.sleep(LOOK_S)
        return self.ending is None

    def wait_for_start(self) -> None:
        """Until the script's process is there, or can't be.

        Raises:
            AutobrrrError: walls can't be raised here.
        """
        deadline = time.monotonic() + ANSWER_S
        while "started" not in self._said and self.ending is None and time.monotonic() < deadline:
            self._hear(0.05)

    def pause(self) -> int:
        """Stop all its processes, and their devices first; the moment from which none ran.

        A device goes on with what is queued while its process is stopped: in another trial's turn.
        """
        patience_s = DRAIN_S + DRAIN_STEPS * self.steps.typical_ns / 1e9
        self.witnesses.drain(min(patience_s, self.limits.first_step_s))
        self.witnesses.look()
        self._ask({"pause": 1}, "paused")
        now = time.perf_counter_ns()
        self.ran_ns += 0 if self.paused else now - (self._alive_ns or self.began_ns)
        self.paused = True
        self.told.news()
        if lost := self.witnesses.lost or self.told.lost:  # what was measured since was not all with it
            self._give_up("not_applied", lost)
        return now

    def taken(self) -> Bytes:
        """What it has taken at most, while it stands still."""
        return memory_use.taken(self.family, self.steps.reserved_bytes)

    def resume(self) -> int:
        """Let them go on; the moment."""
        now = time.perf_counter_ns()
        self._ask({"resume": 1}, "resumed")
        self._alive_ns = time.perf_counter_ns()
        self.paused = False
        return now

    def close(self, keep: Path | None = None) -> None:
        """End it and everything that it started; take its folder away.

        Args:
            keep: Where its output goes, if it ran within walls.
        """
        if self.closed:
            return
        self.closed = True
        self.witnesses.close()
        self._send({"stop": self.limits.grace_s})
        self._send({"keep": None if keep is None else str(keep)})
        deadline = time.monotonic() + self.limits.grace_s + (ANSWER_S if keep is None else KEEP_S)
        while not self._keeper_is_gone and time.monotonic() < deadline:
            self._hear(0.2)
        self.link.close()
        self._keeper_is_gone = True
        try:
            self.keeper.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.keeper.kill()
            self.keeper.wait()
        self._last_lines = self.lines
        self.prepared.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
        unfinished = 0 if keep is None else "the copy was not finished"
        self.kept = cast("int | str", self._said.get("kept", unfinished))

    def _is_coming_on(self) -> bool:
        """A remedy is neither on nor refused, or steps still hold what it takes once, such as compiling."""
        if self._paid_at is None:
            self.told.news()
            if {line["remedy"] for line in self.told.remedies}.issuperset(self.launch.remedies):
                chosen = [REGISTRY[name] for name in self.launch.remedies if name in REGISTRY]
                self._paid_at = self.steps.count + max((each.warm_up_steps for each in chosen), default=0)
        return self._paid_at is None or self.steps.count < self._paid_at

    def _give_up(self, kind: Kind, why: str) -> None:
        """It is over, unless it was before."""
        if self.ending is None:
            self.ending = TrialEnding(kind=kind, why=why, lines=self.lines)

    def _refuse_what_is_not_on(self) -> None:
        """A remedy that is to be measured must be on."""
        for line in self.told.remedies:
            if line.get("status") == "refused":
                self._give_up("not_applied", f"{line['remedy']}: {line.get('why')}")
        if self._paid_at is None:
            names = ", ".join(self.launch.remedies)
            why = f"{names}: it was not applied within {self.limits.settle_s:.0f} s of steps"
            self._give_up("not_applied", why)

    def _send(self, command: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):
            self.link.send(json.dumps(command).encode())

    def _ask(self, command: Mapping[str, object], answer: str) -> None:
        self._said.pop(answer, None)
        self._send(command)
        deadline = time.monotonic() + ANSWER_S
        while answer not in self._said and not self._keeper_is_gone and time.monotonic() < deadline:
            self._hear(0.2)

    def _hear(self, timeout_s: float) -> None:
        """Read what the keeper says; waits at most so long for it."""
        while not self._keeper_is_gone and is_readable(self.link, timeout_s):
            try:
                data = self.link.recv(1 << 16)
            except OSError:
                data = b""
            if data:
                self._take(json.loads(data))
            else:
                self._keeper_is_gone = True
                self._give_up("crash", "the trial's supervisor is gone")
            timeout_s = 0.0

    def _take(self, line: dict[str, object]) -> None:
        self._said |= line
        if "ended" in line:
            self.witnesses.look()
            code, left = int(str(line["ended"])), int(str(line["left"]))
            found = ending_of(code, self.lines, steps=self.steps.count, left=left)
            self.ending = self.ending or found
        elif "no_start" in line:
            self._give_up("no_start", str(line["no_start"]))
        elif "no_walls" in line:
            raise AutobrrrError(
                f"no sandbox is possible here, so trials could write into your files: {line['no_walls']}",
                "--allow-writes runs trials without a sandbox",
            )


def start(
    launch: TrialLaunch,
    folder: Path,
    limits: Limits,
    walls: Mapping[str, object] | None,
    kept: str | None = None,
) -> LiveTrial:
    """Start a trial.

    Args:
        folder: A folder for it alone, which does not exist yet.
        walls: Arguments of `raise_walls` but the folder; None lets it write where it wants.
        kept: A folder outside of the walls, for what is kept of the trial's output.

    Raises:
        AutobrrrError: no folder or process can be made. From `look`: walls can't be raised here.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
        (folder / "written").mkdir(mode=0o700)
        prepared = preloaded_agent.prepare(launch.plan, launch.environment, folder, audit=launch.audit)
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its, (folder / OUTPUT).open("ab") as output:
            keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", CODE, str(its.fileno())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(its.fileno(),),
                cwd="/",
                start_new_session=True,
                env={},
            )
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise AutobrrrError(f"a trial can't be started: {error.strerror} ({error.filename})") from None
    running = LiveTrial(
        launch=launch,
        folder=folder,
        limits=limits,
        witnesses=Witnesses(folder),
        keeper=keeper,
        link=ours,
        prepared=prepared,
        told=preload_outcome.PreloadOutcome(prepared.folder, 0, launch.remedies),
    )
    order = {
        "command": list(launch.command),
        "environment": prepared.environment,
        "folder": str(launch.folder),
        "walls": walls and {**walls, "folder": str(folder / "written")},
        "kept": kept,
    }
    assert keeper.stdin is not None
    with contextlib.suppress(BrokenPipeError), keeper.stdin as door:
        door.write(json.dumps(order).encode())
    return running
