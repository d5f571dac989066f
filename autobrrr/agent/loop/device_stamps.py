"""Step boundaries on the device's own clock: an event in the queue, asked about later, never waited for.

In: boundaries of the loop, on the training thread; the device of the parameters. Out: into each record what
the device took for the step. On a device that works asynchronously, the host only knows when work is queued.

At a boundary without other work of ours one event ends a step and begins the next; at others the next step
begins with an event of its own, so that our work is in neither. Events are used again; whoever has no event
left, is captured into a graph, or gets an error of the device, leaves a step without a stamp.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import thread_time_ns
from types import ModuleType
from typing import cast

from ..live_torch.graph_capture import capturing
from ..live_torch.job_signals import Ours
from ..live_torch.parameter_device import TimedEvent
from ..live_torch.torch_types import Device
from ..wire import ring_layout

MOST_EVENTS = 1024  # in flight; a queue holds about as many launches
MOST_PLAIN = 32  # stamped steps between two looks at what the device has come to
NEVER = 1 << 62
# Fields of the command `stamp`: while steps are compared, and otherwise. At 2 to 4 us a stamp.
STAMP_EACH = {"every": 1, "steps": 1}
STAMP_SOME = {"every": 64, "steps": 8}
MS_NS = 1e6


class DeviceStamps:
    """Stamps of one job. All but `device` and `ask` belongs to the training thread.

    Args:
        write: Puts a device's time into the record of a step, and flags.

    Attributes:
        device: Of the parameters, as last seen by the agent's thread; None: not seen, or the CPU.
        active: The running step is stamped: its record awaits the device's time.
        fault: Why the device gives no stamps.
        kept: What steps took by their number, 0 without a stamp, while somebody wants to know.
        spent_ns: CPU time of the training thread in steps without other work of ours, all so far.
    """

    def __init__(
        self,
        torch: ModuleType,
        write: Callable[[int, int, int], None],
        cpu_clock: Callable[[], int] = thread_time_ns,
    ) -> None:
        self.device: Device | None = None
        self.active = False
        self.fault: str | None = None
        self.kept: dict[int, int] | None = None
        self.spent_ns = 0
        self._stamped = 0
        self._torch, self._write, self._cpu_clock = torch, write, cpu_clock
        self._ours = Ours(RuntimeError, AttributeError, TypeError, ValueError, told=self._fail)
        self._events_of: Device | None = None  # whose events are in use
        self._cadence = 1, 0, 0  # so many steps, of them stamped, from which one on
        self._free: list[TimedEvent] = []
        self._made = 0
        self._marked: TimedEvent | None = None
        self._begun: TimedEvent | None = None  # with which the running step began
        self._flags = 0  # of the step that ends
        # Steps to whose end the device has not come: number, events, whether it owns the second one, flags.
        self._awaited: deque[tuple[int, TimedEvent | None, TimedEvent | None, bool, int]] = deque()

    @property
    def cost_ns(self) -> int:
        """Of one stamp, on average."""
        return self.spent_ns // self._stamped if self._stamped else 0

    def ask(self, every: int, steps: int, seq: int) -> None:
        """Stamp so many steps of every so many, from about this one on. From any thread."""
        self._cadence = every, min(steps, every), seq

    def look_at(self, seq: int) -> int:
        """The first step, from this one on, at whose end stamping begins or ends."""
        every, steps, begins = self._cadence
        if steps in (0, every) or self.fault or self.device is None:
            return NEVER
        at = (seq - begins) % every
        return seq - at + (steps if at < steps else every) - 1

    def settle(self, seq: int) -> None:
        """Whether the step that begins now is stamped. After `ended`, before `begin`."""
        device, (every, steps, begins) = self.device, self._cadence
        if device != self._events_of:
            self._forget_events()
            self._events_of = device
            if device is not None and device.type != "cuda":
                self.fault = f"torch has no events with a time for {device.type}"
        self.active = device is not None and self.fault is None and (seq - begins) % every < steps

    def mark(self) -> None:
        """A boundary may be here: note the moment, before work of ours."""
        self._marked = self._record(self._marked)

    def ended(self, seq: int) -> None:
        """The step ended where it was last marked."""
        self._awaited.append((seq, self._begun, self._marked, True, self._flags))
        self._begun = self._marked = None

    def begin(self) -> None:
        """The next step begins: work of ours lies behind."""
        self._begun = self._record(None)

    def passed(self, seq: int) -> None:
        """A step ended at this moment, and the next began with it."""
        began = self._cpu_clock()
        event = self._record(None)
        self._awaited.append((seq, self._begun, event, False, self._flags))
        self._begun = event
        self._stamped += 1
        self.spent_ns += self._cpu_clock() - began

    def collect(self) -> None:
        """Fill in what the device has come to the end of. All of these steps have records."""
        awaited = self._awaited
        if not awaited:
            return
        with self._ours:
            if self.fault is None and capturing(self._torch):
                return
            while awaited:
                seq, begin, end, both, flags = awaited[0]
                took_ns = ring_layout.UNSTAMPED
                if self.fault is None and begin is not None and end is not None:
                    if not (end.query() and begin.query()):
                        return
                    took_ns = max(1, round(begin.elapsed_time(end) * MS_NS))
                self._write(seq, took_ns, flags)
                if self.kept is not None:
                    self.kept[seq] = took_ns
                awaited.popleft()
                self._free += [event for event in (begin, end if both else None) if event is not None]
        if self.fault is not None:
            self.collect()

    def drain(self) -> bool:
        """Wait until the device is through with all that is queued, and fill in all that is awaited.

        Only before a replay on its device that the user allows, or where the job is a trial that is about to
        be stopped: what it has queued would be worked off in the time of the trial that it is compared with.

        Returns:
            Whether there is a device to wait for.
        """
        if self._events_of is None or self.fault is not None:
            return False
        with self._ours:
            if capturing(self._torch):
                return False
            self._torch.cuda.synchronize(self._events_of)
            self.collect()
            return True
        return False

    def release(self) -> None:
        """Nothing is stamped any more; what is awaited will not come."""
        self.fault = self.fault or "the agent has left"
        self.collect()
        self._forget_events()
        self.active, self.device, self._events_of = False, None, None

    def drop(self) -> None:
        """In a forked child: its events can't be touched, not even given back."""
        self.active, self._cadence = False, (1, 0, 0)

    def _forget_events(self) -> None:
        for seq, *_ in self._awaited:
            self._write(seq, ring_layout.UNSTAMPED, 0)
        self._awaited.clear()
        self._free.clear()
        self._made = 0
        self._begun = self._marked = None

    def _record(self, event: TimedEvent | None) -> TimedEvent | None:
        if self._events_of is None or self.fault is not None:
            return None
        with self._ours:
            if capturing(self._torch):
                return None
            # The step began there, so the device has at least one whole step before it.
            ahead = self._begun is not None and not self._begun.query()
            self._flags = ring_layout.AHEAD if ahead else 0
            if event is None:
                if self._free:
                    event = self._free.pop()
                elif self._made < MOST_EVENTS:
                    event = cast(TimedEvent, self._torch.cuda.Event(enable_timing=True))
                    self._made += 1
                else:
                    return None
            event.record(self._torch.cuda.current_stream(self._events_of))
            return event
        return None

    def _fail(self, error: Exception) -> None:
        """What is wrong with the device, the job will meet itself."""
        self.fault = f"{type(error).__name__}: {error}"
