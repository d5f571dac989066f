"""What reading an item of a dataset does, and making a batch: seen by doing so twice with a few items.

That happens in a process of its own (`fenced_process.py`): of the job nothing is read, counted or written. An
item that differs without a generator having been used comes from a dataset that keeps state of its own:
nothing about its loading may change. Where a second reading still changes what the dataset holds, it counts
what is read. Where the dataset or anything that it holds has a generator of its own,
its items are random; where an iterator or a queue would move on, it is left alone.
"""

from __future__ import annotations

import pickle
import signal
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import PurePath
from types import MethodType
from typing import cast

from ...job_code.installed_code import is_library
from ...job_state import rng_state
from ...job_state.threads_beside import thread_beside
from ...live_torch.handler_errors import let_through
from ...live_torch.live_job import Job
from ...wire.process_link import ProcessLink
from ..registry import Refused
from .dataset_contents import copy_of
from .dataset_state import DatasetState
from .dataset_walk import has_contents, held_by
from .fenced_process import Fence, FencedProcess
from .loader_view import LoaderView
from .sent_batches import exactly

LONGEST_S = 0.2
PATIENCE_S = 10.0  # the job waits
COPYING = {  # into batches, and nothing else
    "torch.utils.data._utils.collate.default_collate",
    "transformers.data.data_collator.default_data_collator",
}
_UNCHANGING = (bool, int, float, complex, str, bytes, range, frozenset, PurePath, type(None), type)
_CONVERTING = "torch.utils.data._utils.collate.default_convert"
_Found = Callable[[], object]  # None once it is gone
_Known = tuple[_Found, _Found, "Items | str"]
_KNOWN: dict[tuple[int, int, bool], _Known] = {}  # by dataset and collate function; or why it was refused


class Unkept(Exception):
    """An item can't be copied exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What was found."""

    random: bool  # a random generator was used, or the code for an item names one
    bytes_each: int
    length: int
    is_whole: bool = False  # each change of what the dataset holds would be seen
    unseen: tuple[str, ...] = ()  # what of it may change unseen: a clause each
    handles: tuple[str, ...] = ()  # that the dataset held once items were read: types of open files
    counted: bool = False  # each reading changes what the dataset, or what makes its batches, holds
    asks_worker: bool = False  # the code asks which worker it runs in
    handed: bool = False  # batches hold the dataset's own objects or memory
    own_generator: bool = False  # the dataset holds a random generator
    fills: bool = False  # the first reading changes what the dataset holds: it keeps what it has read
    writes: tuple[str, ...] = ()  # its functions that write or remove files, as far as their names say


def read_items(job: Job, view: LoaderView) -> Items:
    """Read some items twice; of each dataset and collate function once in the life of the process.

    Raises:
        Refused: it has no length, an item or a batch can't be made, or one differs from itself.
    """
    dataset, collate = view.dataset, _judged(view.collate)
    key = id(dataset), id(collate), view.collates
    known = _KNOWN.get(key)
    found: Items | str
    if known is not None and known[0]() is dataset and known[1]() is collate:
        return _known(known[2])
    refuse_children()
    found = _in_a_process(partial(_read, job, view, collate))
    for each in [each for each, (data, _, _) in _KNOWN.items() if data() is None]:
        del _KNOWN[each]
    try:
        _KNOWN[key] = _weakly(dataset), _weakly(collate), found
    except TypeError:
        pass  # a list: read again where it is asked for again
    return _known(found)


def refuse_unseen(items: Items) -> None:
    """Raises Refused where what the items come from may change, and nobody would see it."""
    if items.unseen:
        raise Refused(f"the dataset {items.unseen[0]}")


def refuse_children() -> None:
    """Raises Refused where the job would meet processes of ours, or they what a thread of its holds."""
    handler = signal.getsignal(signal.SIGCHLD)
    if callable(handler) and not is_library(getattr(handler, "__module__", None) or ""):
        raise Refused("the job handles SIGCHLD, and would meet processes of ours")
    beside = thread_beside()
    if beside is not None:
        raise Refused(f"{beside} runs on another thread, which may hold what a forked process waits for")


def _weakly(thing: object) -> _Found:
    """Raises TypeError where nothing can be held so."""
    if thing is None:
        return lambda: None
    return weakref.WeakMethod(thing) if isinstance(thing, MethodType) else weakref.ref(thing)


def _in_a_process(read: Callable[[Fence], Items]) -> Items | str:
    """What reading comes to there, or why it is refused."""

    def work(link: ProcessLink, fence: Fence) -> None:
        try:
            found: object = asdict(read(fence))  # no name leads to our classes in a job
        except Refused as refused:
            found = str(refused)
        except RecursionError:
            found = "its batches hold themselves, and can't be compared"
        except Exception as error:  # noqa: BLE001  a class of the job's may answer as it likes
            found = f"what its items come from can't be looked into: {type(error).__name__}"
        link.send(pickle.dumps(found))

    try:
        process = FencedProcess(work)
    except OSError as error:
        return f"no process can be started to read an item: {error}"
    try:
        found = pickle.loads(process.link.receive(PATIENCE_S))
        return found if type(found) is str else Items(**found)
    except TimeoutError:
        return f"reading some items takes more than {PATIENCE_S:.0f} s"
    except (OSError, EOFError):
        return (
            "a process that reads an item to try ends: reading it writes, starts processes, or ends its own"
        )
    finally:
        process.close()


def collate_name(collate: object) -> str:
    """A function's name with that of its module."""
    return f"{getattr(collate, '__module__', '')}.{getattr(collate, '__qualname__', '')}"


def _judged(collate: object) -> object:
    """What makes batches, where that has to be tried out; else None."""
    return None if collate_name(collate) in {*COPYING, _CONVERTING} else collate


def _known(found: Items | str) -> Items:
    if isinstance(found, str):
        raise Refused(found)
    return found


def _read(job: Job, view: LoaderView, collate: object, fence: Fence) -> Items:
    dataset = view.dataset
    try:
        length = len(dataset)  # type: ignore[arg-type]
    except TypeError:
        raise Refused("the dataset has no length") from None
    if not length:
        raise Refused("the dataset is empty")
    state = DatasetState(dataset, collate, view.starts_worker)
    held = state.held
    if held.sources:
        raise Refused(f"the dataset holds a {held.sources[0]}, which moves on as items are read")
    if held.locks:
        raise Refused(f"the dataset holds a {held.locks[0]}, which may be taken when a process is forked")
    if any(_device(each) not in ("cpu", "meta") for each in held.contents):
        raise Refused("the dataset holds tensors on the GPU, which no other process can read")
    items = Items(
        random=held.random,
        bytes_each=0,
        length=length,
        asks_worker=held.asks_worker,
        own_generator=held.random,
        writes=tuple(held.writes),
        unseen=tuple(held.unseen),
        is_whole=state.is_whole,
    )
    job.torch.set_num_threads(1)  # those of the job are not here
    if held.random:  # an item would differ from itself
        return replace(items, bytes_each=size_bytes(_item(dataset, 0)))
    tries = _read_some(job, view, collate, state)
    if fence.is_touched:
        raise Refused("reading an item does more than give it: it prints, logs, or moves on in an open file")
    is_changed = any(each.filled or each.counted for each in tries)
    after = held_by((dataset, collate)) if is_changed else held
    return replace(
        items,
        random=after.draws or any(each.drawn for each in tries),
        bytes_each=max(size_bytes(each.first) for each in tries if each.is_item),
        handles=tuple(after.handles),
        fills=any(each.filled for each in tries),
        counted=any(each.counted for each in tries),
        handed=any(each.handed for each in tries if not (each.is_item and view.collates)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """An item, or a batch, that was made twice."""

    first: object
    is_item: bool
    drawn: bool  # random numbers were drawn for it
    filled: bool  # the first time changed what the dataset holds
    counted: bool  # the second time did, too
    handed: bool  # both times held the same objects or memory


def _read_some(job: Job, view: LoaderView, collate: object, state: DatasetState) -> list[_Try]:
    dataset = view.dataset
    length = len(dataset)  # type: ignore[arg-type]
    indices = list(dict.fromkeys((0, length // 2, length - 1)))
    makes = [(partial(_item, dataset, index), f"item {index}") for index in indices]
    is_batch_made = collate is not None or hasattr(dataset, "__getitems__")
    tries = list[_Try]()
    began = time.perf_counter()
    for make, what in makes:
        made, state = _twice(job, state, make, what, is_item=True)
        tries.append(made)
        if time.perf_counter() - began > LONGEST_S:
            break
    if is_batch_made:
        some = indices[: len(tries)]
        tries.append(_twice(job, state, partial(_batch, view, some), "a batch", is_item=False)[0])
    return tries


def _twice(
    job: Job, state: DatasetState, make: Callable[[], object], what: str, *, is_item: bool
) -> tuple[_Try, DatasetState]:
    """Also the state as it is by then: a look costs less than another one."""
    before, restores = rng_state.states(job.torch), rng_state.capture(job.torch, [])
    first = make()
    drawn = rng_state.drew(before, rng_state.states(job.torch))
    for restore in restores:
        restore()
    filled = not state.is_as_it_was
    if filled:
        state = state.anew()
    second = make()
    if not exactly(first, second):
        # A generator that was set back would have given the same.
        raise Refused(f"{what} differs from itself when it is read again")
    counted = not state.is_as_it_was
    made = _Try(
        first=first,
        is_item=is_item,
        drawn=drawn,
        filled=filled,
        counted=counted,
        handed=_is_handed(first, second),
    )
    return made, state.anew() if counted else state


def _is_handed(one: object, other: object) -> bool:
    """Whether two readings hold the same objects, or the same memory."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one is other or any(map(_is_handed, one.values(), other.values()))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return any(map(_is_handed, one, other))
    if isinstance(one, list) and isinstance(other, list):
        return one is other or any(map(_is_handed, one, other))
    places = [_place(each) for each in (one, other)]
    if places[0] is not None:
        return places[0] == places[1]
    is_number = hasattr(one, "dtype")  # of numpy's
    return one is other and not isinstance(one, _UNCHANGING) and not is_number


def _place(value: object) -> int | None:
    """Where a tensor's or an array's first element lies; None for others, and for empty ones."""
    if hasattr(value, "element_size"):
        return int(value.data_ptr()) or None  # type: ignore[attr-defined]
    if not has_contents(value) or not getattr(value, "size", 0):
        return None
    return int(value.__array_interface__["data"][0])  # type: ignore[attr-defined]


def _batch(view: LoaderView, indices: list[int]) -> object:
    """As torch makes one of these items."""
    dataset, collate = view.dataset, view.collate
    whole = getattr(dataset, "__getitems__", None)
    try:
        if not view.collates:
            return collate(dataset[indices[0]])  # type: ignore[operator,index]
        items = whole(indices) if callable(whole) else [dataset[index] for index in indices]  # type: ignore[index]
        return collate(items)  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001
        let_through(error)
        raise Refused(f"a batch can't be made on its own: {type(error).__name__}: {error}") from None


def _item(dataset: object, index: int) -> object:
    try:
        return dataset[index]  # type: ignore[index]
    except Exception as error:  # noqa: BLE001
        let_through(error)
        raise Refused(f"item {index} can't be read on its own: {type(error).__name__}: {error}") from None


def batch_bytes(items: Items, view: LoaderView) -> int:
    """What the contents of a batch take, roughly."""
    return items.bytes_each * (view.batch_size or 1)


def copied(item: object) -> object:
    """An item whose tensors and arrays have memory of their own.

    Raises:
        Unkept: it holds what is made in a way of its own.
    """
    if type(item) is dict:
        return {key: copied(value) for key, value in cast("dict[object, object]", item).items()}
    if type(item) in (list, tuple):
        return cast("type[list[object]]", type(item))([copied(each) for each in cast("list[object]", item)])
    if isinstance(item, tuple) and type(item).__mro__[1] is tuple and hasattr(item, "_make"):
        return item._make(map(copied, item))  # a namedtuple
    if isinstance(item, (dict, list, tuple)):
        raise Unkept
    return copy_of(item) if has_contents(item) else item


def size_bytes(value: object) -> int:
    """What an item keeps in memory, roughly."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return 64 + sum(map(size_bytes, cast("Sequence[object]", value)))
    if hasattr(value, "element_size"):
        return int(value.element_size() * value.nelement()) + 128  # type: ignore[attr-defined]
    return int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)


def _device(contents: object) -> str:
    """Where a tensor or an array lies."""
    return str(getattr(getattr(contents, "device", "cpu"), "type", "cpu"))
