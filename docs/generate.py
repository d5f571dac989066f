"""Makes the pages that the program itself knows: commands, remedies, words, the Python API, figures.

`python docs/generate.py` writes them; a test compares them with what lies in `docs/`.
In: parsers, registry, glossary, records, docstrings, `benchmarks/results`, `recipes`. Out: Markdown.
"""

from __future__ import annotations

import argparse
import enum
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

import msgspec

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from autobrrr import api, recipe  # noqa: E402
from autobrrr.agent.remedies.families import REGISTRY  # noqa: E402
from autobrrr.agent.remedies.registry import Remedy  # noqa: E402
from autobrrr.cli import GROUPS, VERBS, argument_parser  # noqa: E402
from autobrrr.diagnosis.glossary import EXPLANATIONS, KINDS  # noqa: E402
from autobrrr.recipe.recipe_file import tomllib  # noqa: E402
from autobrrr.records import Diagnosis, DoctorCheck, JobLine, Tuning  # noqa: E402
from autobrrr.records.proof_records import Proof  # noqa: E402
from autobrrr.report.pages.side_by_side import ComparedAnalysis, ComparedSessions  # noqa: E402
from autobrrr.report.past_session import SessionData  # noqa: E402
from autobrrr.roofline.roofline_records import Roofline  # noqa: E402
from autobrrr.trace.trace_records import Analysis  # noqa: E402

MADE = "<!-- Made by docs/generate.py: edit what it is made from. -->"
EVERYWHERE = ("help", "loudness")  # arguments that every verb takes, said once
RESULTS = ROOT / "benchmarks" / "results"
FAMILIES = {
    "optimizer": "Optimizer",
    "compile": "Compilation",
    "attention": "Kernels and precision",
    "layout": "Kernels and precision",
    "precision": "Kernels and precision",
    "recompute": "Kernels and precision",
    "loader": "Data loading",
    "batch": "Data loading",
    "threads": "Host",
    "gc": "Host",
    "host": "Host",
    "cuda": "Host",
    "ddp": "Several ranks",
}


def pages() -> dict[str, str]:
    """Every made page, by its path below `docs/`."""
    return {
        "reference/commands.md": _page("Commands", _commands()),
        "reference/remedies.md": _page("Remedies", _remedies()),
        "reference/words.md": _page("Words on the screen", _words()),
        "reference/json.md": _page("JSON", _json()),
        "reference/python.md": _page("Python API", _python()),
        "figures.md": _page("Figures", _figures()),
    }


def _page(title: str, lines: Iterable[str]) -> str:
    return "\n".join([MADE, "", f"# {title}", "", *lines]).rstrip() + "\n"


def _commands() -> Iterator[str]:
    yield "Every verb answers `--help`. Results go to standard output (`--json`: one object on a line),"
    yield "narration to standard error: `-q` leaves it out, `-v` says every stage in a line of its own and"
    yield "shows all details. A result ends with `next:` and what to type now."
    yield "Durations are written `300ms`, `10s`, `5m`, `2h`."
    yield ""
    yield from _table(
        ("exit code", "means"),
        [
            ("0", "done"),
            ("1", "failed"),
            ("2", "wrong usage, or an invalid file"),
            ("3", "the job can't be attached to; it was not changed"),
            ("4", "the job has ended, or never was"),
            ("5", "a guard reverted a remedy that had been kept"),
            ("6", "`prove` refused: not the same work, or a gate that can't be told here"),
            ("130", "interrupted"),
        ],
    )
    whole = argument_parser.whole_parser(VERBS)
    parsers = _subparsers(whole)
    shown: set[str] = set()
    for title, verbs in GROUPS.items():
        yield f"## {title[0].upper()}{title[1:]}"
        yield ""
        for verb in verbs:
            if verb not in shown:
                shown.add(verb)
                yield from _verb(verb, parsers[verb])
    yield "## The program itself"
    yield ""
    yield from _arguments(whole)


def _verb(verb: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"### autobrrr {verb}"
    yield ""
    yield f"{VERBS[verb][0].upper()}{VERBS[verb][1:]}."
    yield ""
    actions = _subparsers(parser)
    if not actions:
        yield from _arguments(parser)
        return
    rows = []
    described = {
        each.dest: each.help or ""
        for action in parser._actions
        for each in getattr(action, "_choices_actions", ())
    }
    for name, each in actions.items():
        words = [_shown(action) for action in each._actions if action.dest not in EVERYWHERE]
        rows.append((f"`{' '.join(['recipe', name, *words])}`", described[name]))
    yield from _table(("action", "does"), rows)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    found = [
        each for each in parser._actions if each.dest not in EVERYWHERE and each.help != argparse.SUPPRESS
    ]
    found = [each for each in found if not isinstance(each, argparse._SubParsersAction)]
    rows = [(f"`{_shown(each)}`", each.help or "") for each in found]
    if rows:
        yield from _table(("argument", "does"), rows)
    else:
        yield "No arguments."
        yield ""


def _shown(action: argparse.Action) -> str:
    metavar = action.metavar
    if metavar is None:
        metavar = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    value = metavar if isinstance(metavar, str) else " ".join(metavar)
    if action.nargs == "?":
        value = f"[{value}]"
    if not action.option_strings:
        return value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _remedies() -> Iterator[str]:
    yield "A remedy is one change that may make training faster. `tune` tries those that fit the"
    yield "diagnosis and its"
    yield "exactness class; `--only` names others. The class says what a remedy does to the numbers."
    yield ""
    yield from _table(
        ("class", "means"),
        [(name.replace("_", "-"), e.meaning) for name, e in EXPLANATIONS.items() if e.kind == "class"],
    )
    yield from _table(
        ("reach", "means"), [(name, e.meaning) for name, e in EXPLANATIONS.items() if e.kind == "reach"]
    )
    for title in dict.fromkeys(FAMILIES.values()):
        yield f"## {title}"
        yield ""
        found = [each for each in REGISTRY.values() if _family(each.name) == title]
        yield from _table(
            ("remedy", "does", "for", "reach", "class", "notes"),
            [
                (
                    f"`{each.name}`",
                    each.doc,
                    ", ".join(each.treats),
                    each.reach,
                    each.cls,
                    "; ".join(_notes(each)),
                )
                for each in found
            ],
        )
    yield "*unproven*: it has never run on a GPU; `tune` tries it only by name."


def _family(remedy: str) -> str:
    try:
        return FAMILIES[remedy.partition(".")[0]]
    except KeyError:
        raise SystemExit(f"{remedy}: FAMILIES in {Path(__file__).name} has no heading for it") from None


def _notes(remedy: Remedy) -> Iterator[str]:
    if remedy.unproven:
        yield "unproven"
    elif remedy.only_named:
        yield "only by name"
    if "cuda" in remedy.needs:
        yield "needs a GPU"
    for option in remedy.options:
        yield f"option `{option.name}`"


def _words() -> Iterator[str]:
    yield "`autobrrr explain WORD` prints the same in the terminal."
    yield ""
    titles = {"remedy": "Remedies", "class": "Classes", "reach": "Reaches"}
    for kind in KINDS:
        if kind == "remedy":
            continue  # a page of their own
        yield f"## {titles.get(kind, kind.capitalize() + 's')}"
        yield ""
        rows = [
            (f"`{each.name}`", each.meaning, "; ".join(each.guards))
            for each in EXPLANATIONS.values()
            if each.kind == kind
        ]
        if any(row[2] for row in rows):
            yield from _table(("word", "means", "guards"), rows)
        else:
            yield from _table(("word", "means"), [row[:2] for row in rows])


JSON = (
    ("diagnose --json, and a line of attach --json", Diagnosis),
    ("tune --json", Tuning),
    ("prove --json", Proof),
    ("analyze --json", Analysis),
    ("analyze A --diff B --json", ComparedAnalysis),
    ("report SESSION --json", SessionData),
    ("report --diff A B --json", ComparedSessions),
    ("roofline --json", Roofline),
    ("a check of doctor --json", DoctorCheck),
    ("a job of ls --json", JobLine),
)


def _json() -> Iterator[str]:
    yield 'With `--json` a verb prints one object on one line, stable within `"schema": 1`: keys are added,'
    yield 'never renamed or removed. `attach --json` prints a snapshot a line, the last with `"final": true`.'
    yield "`doctor` and `ls` print"
    yield '`{"schema": 1, "checks": […]}` and `{"schema": 1, "jobs": […]}`.'
    yield ""
    yield "- Times are integer nanoseconds (`*_ns`), sizes bytes (`*_bytes`), shares 0 to 1."
    yield '- `null` is "not measured", never 0.'
    yield "- `mixed` and `unknown` are verdicts: exit code 0."
    yield "- With several ranks the top level is the slowest one, and `ranks` lists all."
    yield "- Code may rely on keys and on the values of enums, not on sentences (`reason`, `why`, `note`)."
    yield ""
    yield "An error is one line on standard error, and standard output stays empty:"
    yield ""
    yield "```json"
    yield '{"schema": 1, "error": "WHAT", "hint": "WHAT TO DO", "exit_code": 3}'
    yield "```"
    yield ""
    shown: set[type] = set()
    for title, record in JSON:
        yield f"## {title}"
        yield ""
        yield from _record(record, shown)
    yield "## Records inside"
    yield ""
    waiting = [inner for _, record in JSON for inner in _inner(record)]
    while waiting:
        record = waiting.pop(0)
        if record not in shown:
            yield f"### {record.__name__}"
            yield ""
            yield from _record(record, shown)
            waiting += _inner(record)


def _record(record: type[msgspec.Struct], shown: set[type]) -> Iterator[str]:
    shown.add(record)
    yield (inspect.getdoc(record) or "").split("\n\n")[0] if "__doc__" in vars(record) else ""
    yield ""
    comments = _comments(record)
    rows = []
    hints = get_type_hints(record)
    for name, key in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True):
        rows.append((f"`{key}`", _type_text(hints[name]), comments.get(name, "")))
    yield from _table(("key", "value", "means"), rows)


def _comments(record: type) -> dict[str, str]:
    """What stands beside each field in the source, as a comment."""
    found = {}
    own = [each for each in reversed(record.__mro__) if each.__module__.startswith("autobrrr.")]
    for line in "".join(map(inspect.getsource, own)).splitlines():
        code, mark, comment = line.partition("  # ")
        name, colon, _ = code.strip().partition(":")
        if mark and colon and name.isidentifier():
            found[name] = comment.strip()
    return found


def _type_text(hint: object) -> str:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if any(hint is record for _, record in JSON):
            return f"{hint.__name__} (as above)"
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    if hint is type(None):
        return "null"
    names: dict[object, str] = {int: "integer", float: "number", str: "text", bool: "true or false"}
    if hint in names:
        return names[hint]
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, enum.EnumMeta):
        return " ".join(f"`{each.value}`" for each in hint)
    if origin is Literal:
        return " ".join(f"`{each}`" for each in args)
    if origin in (Union, UnionType):
        return " or ".join(map(_type_text, args))
    if origin in (list, tuple):
        return f"list of {_type_text(args[0])}"
    if origin is dict:
        return f"object of {_type_text(args[1])}"
    return "any" if hint is object else "object" if hint is dict else str(hint)


def _inner(record: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """The records that a record holds, in order."""
    found: list[type[msgspec.Struct]] = []

    def look(hint: object) -> None:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            found.append(hint)
        for each in get_args(hint):
            look(each)

    for hint in get_type_hints(record).values():
        look(hint)
    return [each for each in found if each not in (record for _, record in JSON)]


def _python() -> Iterator[str]:
    yield "```python"
    yield "import autobrrr"
    yield ""
    yield "with autobrrr.attach(4242) as session:"
    yield "    found = session.diagnose()"
    yield "    print(found.regime, found.confidence, found.reason)"
    yield "    tuning = session.tune(for_s=60)"
    yield "    print(tuning.speedup, tuning.kept)"
    yield "```"
    yield ""
    yield "Everything is typed (`py.typed`) and imported when it is first used. Records are those of `--json`"
    yield "([JSON](json.md)). Errors are `autobrrr.errors.AutobrrrError`, with `message`, `hint` and"
    yield "`exit_code`."
    yield ""
    for name, found in (("attach", api.attach), ("diagnose", api.diagnose), ("tune", api.tune)):
        yield from _documented(f"autobrrr.{name}", found)
    yield "## autobrrr.Session"
    yield ""
    yield from _doc(api.JobSession)
    for name, member in vars(api.JobSession).items():
        if not name.startswith("_") and inspect.isfunction(member):
            yield from _documented(f"Session.{name}", member, level="###")


def _documented(title: str, function: object, level: str = "##") -> Iterator[str]:
    signature = str(inspect.signature(function)).replace("JobSession", "Session")  # type: ignore[arg-type]
    signature = signature.replace("'", "").replace("(self, ", "(").replace("(self)", "()")
    signature = signature.replace("<function _quiet>", "...")
    yield f"{level} {title}"
    yield ""
    yield "```python"
    yield f"{title}{_without_addresses(signature)}"
    yield "```"
    yield ""
    yield from _doc(function)


def _without_addresses(text: str) -> str:
    while " at 0x" in text:
        begin = text.rindex("<", 0, text.index(" at 0x"))
        text = text[:begin] + "..." + text[text.index(">", begin) + 1 :]
    return text


def _doc(documented: object) -> Iterator[str]:
    """A Google-style docstring as Markdown: sections become lists."""
    in_section = False
    for line in (inspect.getdoc(documented) or "").splitlines():
        if line.rstrip(":") in ("Args", "Raises", "Returns", "Attributes") and line.endswith(":"):
            in_section = True
            yield f"**{line.rstrip(':')}**"
            yield ""
        elif in_section and line.startswith("    ") and not line.startswith("     "):
            name, colon, what = line.strip().partition(": ")
            yield f"- `{name}`: {what}" if colon else f"- {name}"
        else:
            yield line.strip() if in_section else line
    yield ""


def _figures() -> Iterator[str]:
    figures = tomllib.loads((RESULTS / "figures.toml").read_text())
    yield "**All of it was measured on CPUs; nothing here has run on a GPU.** Bold in a row: short of the"
    yield "promise, or wrong. *Planted*: a job with a built-in bottleneck. *Busy*: other programs used the"
    yield "cores, too; *quiet*: none did. Brackets hold confidence intervals. Scripts are in `benchmarks/`"
    yield "(`python -m benchmarks NAME`), data in `benchmarks/results`. A script called `once` has answered"
    yield "its question and is in the git history."
    yield ""
    yield from figures["measured_on"].strip().splitlines()
    yield ""
    for section in figures["section"]:
        yield f"## {section['title']}"
        yield ""
        yield from _table(
            ("what", "promised", "measured", "script"),
            [
                (
                    row["what"],
                    row.get("promised", ""),
                    row["measured"],
                    f"`{row['script']}`" if "script" in row else "",
                )
                for row in section["row"]
            ],
        )
    yield "## Shipped recipes"
    yield ""
    yield "Each was measured on the kind of job that it is for. An interval that includes 1 proves nothing."
    yield ""
    rows = []
    for name, file in recipe.shipped().items():
        found = tomllib.loads(Path(file).read_text()).get("evidence", {})
        if "speedup" in found:
            low, high = found["interval"]
            rows.append(
                (f"`{name}`", f"{found['speedup']:.2f}x", f"{low:.2f} to {high:.2f}", found["measured_on"])
            )
        else:
            rows.append((f"`{name}`", "not measured", "", ""))
    yield from _table(("recipe", "speed-up", "interval", "measured on"), rows)
    yield "## Planted jobs"
    yield ""
    yield "A second measurement, without autobrrr's code, confirms each bottleneck. The rules were tuned on"
    yield "these jobs: this is a regression test, not the accuracy on unseen jobs."
    yield ""
    yield from _planted("planted-cpu.md")
    yield "### Jobs kept aside"
    yield ""
    yield from _planted("planted-held_out.md")


def _planted(name: str) -> Iterator[str]:
    """The head of a planted report: machine, matrix, summary; not the list of its cases."""
    lines = (RESULTS / name).read_text().splitlines()
    yield from lines[2 : next(i for i, line in enumerate(lines) if line.startswith("| case "))]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("%%", "%")


def main() -> int:
    """Write every page; returns 0."""
    for name, text in pages().items():
        file = ROOT / "docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
