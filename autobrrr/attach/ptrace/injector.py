"""Run Python source inside a running process, on a thread of its own.

In goes a pid and source; the target's main thread runs a few lines at its next check, which start
a raw thread for the source: nothing else is compiled or run on the training thread. The stop is
made by a separate process (`tracer`), which signals sent to the caller don't reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from autobrrr.attach.load_failure import MOST_CHARACTERS, Part
from autobrrr.attach.ptrace import kept_tracer
from autobrrr.attach.ptrace.pending_call import PAGE_BYTES_WORD, PAGE_WORD
from autobrrr.machine.same_program import Program

TAKEN, FAILED = "taken", "failed"  # links in the private folder
MAPPED, NOT_MAPPED = f"({PAGE_WORD.decode()}, {PAGE_BYTES_WORD.decode()})", "None"


class InjectionWay(Enum):
    """How the source gets into the process."""

    PENDING_CALL = "pending_call"
    NEW_THREAD = "thread_start"


# Runs on the training thread, among the script's own names: it needs none that the script could have taken.
_OUTER = """try:
 (lambda: 0).__builtins__["exec"]({inner!r}, {{"__builtins__": (lambda: 0).__builtins__}})
except:
 pass
"""
# The link `taken` is made once: the same call may have been entered twice, where the first entry had to be
# called back. It can't be made where the folder is gone. Links take no descriptor: see `load_failure`. Where
# a filter or a policy refuses links, the agent itself sees to it that it is there once.
# gevent and eventlet put Python functions in the place of the interpreter's own: a thread would be a greenlet
# on the training thread, a wait start an event loop.
_INNER = """import _thread, posix, time
try:
{taken} try:
  if type(_thread.get_ident) is type(time.sleep) is type(posix.getpid):
   _thread.start_new_thread(exec, ({thread!r}, {{"__builtins__": __builtins__,
    "__name__": "autobrrr", "mapped": {mapped}}}))
  else:
   error = None
   {replaced}
 except Exception as error:
  {started}
except KeyboardInterrupt:
 _thread.interrupt_main()
except BaseException:
 pass
"""
_TAKEN = """ try:
  posix.symlink('taken', {taken!r})
 except (FileExistsError, FileNotFoundError):
  raise
 except OSError:
  pass
"""
# First on the new thread: the job's signals are for the job's own threads. Last: nothing points into the page
# any more that the call came in.
_THREAD = """try:
 import _signal, posix
 _signal.pthread_sigmask(_signal.SIG_SETMASK, _signal.valid_signals())
 exec({source!r})
except BaseException as error:
 try:
  {failed}
 except BaseException:
  pass
try:
 if mapped:
  import ctypes
  ctypes.pythonapi["munmap"](ctypes.c_void_p(mapped[0]), ctypes.c_size_t(mapped[1]))
except BaseException:
 pass
"""
_SAY = """import posix
said = '\\n'.join((getattr(error, 'part', {part!r}), type(error).__name__,
 str(getattr(error, 'errno', None)), str(error)))[:{most}]
posix.symlink(said, {file!r})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One injection that was taken; the source runs at the main thread's next check."""

    pause_ns: int  # how long it stood still, at most, in all tries
    tries: int
    page: int  # where the source lies in the target


def inject(
    pid: int,
    source: str,
    *,
    folder: str | None = None,
    way: InjectionWay = InjectionWay.PENDING_CALL,
    program: Program | None = None,
) -> Injection:
    """Have a process run `source` on a new thread, with all signals blocked there.

    Args:
        pid: The target, as this process's /proc names it.
        source: Python source. The page that it came in is given back when it has run.
        folder: Path in the target's view that must exist when the call fires; else it does nothing.
            The source runs once for each such folder, which is left with a link `TAKEN`, and with one
            called `FAILED` where the source raised: `complaint` reads it.
        way: By the main thread's next check; or at once, by a thread of our own, where a thread of the
            target waits in the kernel, which gives its page back itself.
        program: What it must still run when it is stopped; what it runs now where None.

    Raises:
        CannotAttach: it can't be borrowed now; it was not changed.
        TargetGone: it ended.
    """
    mapped = MAPPED if way is InjectionWay.PENDING_CALL else NOT_MAPPED
    code = compose(source, folder, mapped)
    with kept_tracer.of_job(pid, program) as tracer:
        answer, _ = tracer.ask({"way": way.value, "pid": pid, "code": code})
    return Injection(**kept_tracer.refused_or(answer))


def compose(source: str, folder: str | None, mapped: str = MAPPED) -> str:
    """The string that the main thread runs: never raises, and leaves no name.

    Args:
        mapped: Address and size of what is given back at the end, as an expression.
    """

    def say(part: Part) -> str:
        if folder is None:
            return "pass"
        text = _SAY.format(part=part.value, most=MOST_CHARACTERS, file=f"{folder}/{FAILED}")
        return f"exec({text!r})"

    inner = _INNER.format(
        taken="" if folder is None else _TAKEN.format(taken=f"{folder}/{TAKEN}"),
        thread=_THREAD.format(source=source, failed=say(Part.LOADING)),
        replaced=say(Part.GREENLETS),
        started=say(Part.THREAD),
        mapped=mapped,
    )
    return _OUTER.format(inner=inner)
