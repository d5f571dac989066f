"""What `analyze` makes of a mutated trace, held against a plain JSON parse."""

from collections import Counter
from io import BufferedReader, BytesIO

from autobrrr.errors import UsageError
from autobrrr.trace.reading.trace_columns import Trace
from autobrrr.trace.reading.trace_reader import read_blocks
from autobrrr.trace.reading.trace_source import Blocks
from benchmarks.fuzzing.trace_documents import SMALL_CHANGES, Case, Found, phases, seen_by_json, shown

_NEIGHBOURS = 3  # so many events may go with one small change, those that it stands in or between


def problems(case: Case) -> list[str]:
    """What is wrong with what was read of a document; empty where nothing is."""
    try:
        trace = read_blocks("case", Blocks(BufferedReader(BytesIO(case.text)), case.block_bytes))
    except UsageError as error:
        return _refusal(case, error)
    got = found(trace)
    said = bool(trace.damage or trace.unread or trace.irregular)
    try:
        known = seen_by_json(case.text)
    except LookupError:
        known = None
    if known is not None:
        return _against_json(case, trace, got, known)
    closed_early = "behind the end of the" in (trace.first_unread or "")  # by a stray bracket, which is said
    return [] if closed_early else _refused(case, got, said)


def _refusal(case: Case, error: UsageError) -> list[str]:
    try:
        known = seen_by_json(case.text)
    except LookupError:
        return []
    if "\n" in error.message:
        return ["the refusal has more than one line"]
    several = case.text.count(b'"traceEvents"') > 1
    if known is not None and known[0] and not several and "UTF-16" not in error.message:
        return [f"refused, and JSON sees {sum(known[0].values())} events: {error.message}"]
    return []


def _against_json(case: Case, trace: Trace, got: Found, known: tuple[Found, int]) -> list[str]:
    expected, entries = known
    missing, extra = expected - got, got - expected
    found_ = []
    if case.text.count(b'"traceEvents"') > 1:  # of two lists one is read
        return [] if trace.unread else ["a second list is not said"]
    if missing:
        found_.append(f"{sum(missing.values())} events missing, such as {next(iter(missing))}")
    if extra:
        found_.append(f"{sum(extra.values())} events that JSON does not see, such as {next(iter(extra))}")
    odd = entries - phases(case.text)
    if trace.unread < odd:
        found_.append(f"{odd} entries are no events, {trace.unread} were counted")
    if trace.damage:
        found_.append(f"sound, yet called damaged: {trace.damage}")
    if trace.events > entries or trace.events + trace.unread < entries:
        found_.append(f"{entries} entries, {trace.events} read and {trace.unread} counted as passed over")
    return found_


def _refused(case: Case, got: Found, said: bool) -> list[str]:
    """Of a text that JSON refuses, what is lost has to be said, and small damage takes little with it."""
    before = seen_by_json(case.plain)
    assert before is not None
    lost = sum((before[0] - got).values())
    if case.change not in SMALL_CHANGES:
        return []
    if lost and not said:
        return [f"{lost} events lost, and nothing was said"]
    if lost > _NEIGHBOURS:
        return [f"{lost} of {sum(before[0].values())} events lost to a small change"]
    return []


def found(trace: Trace) -> Found:
    """The events of a trace."""
    events: Found = Counter()
    for columns in (trace.gpu, trace.host):
        rows = zip(columns.kind, columns.name, columns.start, columns.end, strict=True)
        for kind, name, start, end in rows:
            events[int(kind), shown(trace.names[name]), int(start), int(end)] += 1
    return events
