"""A proof for people: text, a comment for a pull request, and JUnit XML.

In: a `Proof`. Out: text; foreign words in it are made safe to show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from autobrrr.quantities import share
from autobrrr.readable import readable
from autobrrr.records.gain_words import gain_words
from autobrrr.records.proof_records import PackageChange, Proof, Sameness, SlowerCause, WorkDone

MOST_PACKAGES = 8
PHASES = {
    "data_wait": "waiting for data",
    "host_to_device": "copying to the device",
    "optimizer": "the optimizer",
    "other": "other code of the script",
}
VERDICTS = {
    "proven": "proven faster",
    "not_slower": "not slower than the gate allows",
    "not_proven": "not proven",
    "refused": "refused",
}


def verdict_words(proof: Proof) -> str:
    """The verdict with its reason, one line."""
    code = f" ({proof.refusals[0].code.value})" if proof.refusals else ""
    return readable(f"{VERDICTS[proof.verdict]}{code}: {proof.reason}")


def proof_text(proof: Proof) -> str:
    """The whole answer."""
    lines = [verdict_words(proof)]
    lines += [readable(f"  also: {each.code.value}: {each.why}") for each in proof.refusals[1:]]
    for name, value in proof_facts(proof):
        lines.append(readable(f"{name:<9}{value}"))
    if proof.work is not None:
        lines += ["", f"{'work':<28}{'before':>14}{'after':>14}"]
        lines += [f"{name:<28}{its:>14}{mine:>14}" for name, its, mine in work_rows(proof)]
    return "\n".join(lines)


def proof_facts(proof: Proof) -> Iterator[tuple[str, str]]:
    """Names and values of speed and sameness."""
    if proof.names:
        yield "compared", " → ".join(proof.names)
    speed = proof.speed
    if speed is not None:
        noise = f"A/A turns differ by up to {share(speed.noise, 1)}"
        yield "speed", f"{gain_words(speed.ratio, speed.interval)}, {speed.starts} fresh starts; {noise}"
    else:
        yield "speed", "not measured"
    if proof.slower is not None:
        yield "why", _why(proof.slower)
    if proof.packages:
        yield "packages", _packages(proof.packages)
    if proof.sameness is not None:
        yield "sameness", _sameness(proof.sameness)


def work_rows(proof: Proof) -> Iterator[tuple[str, str, str]]:
    """What was counted, of both sides."""
    if proof.work is None:
        return
    its, mine = proof.work.before, proof.work.after
    for name, of in _ROWS:
        yield name, _counted(its, of), _counted(mine, of)


_ROWS = (
    ("steps counted", "steps"),
    ("samples a step", "samples_per_step"),
    ("tokens a step", "tokens_per_step"),
    ("backward calls a step", "backwards_per_step"),
    ("optimizer calls a step", "updates_per_step"),
    ("parameters updated, least", "updated_share"),
    ("FLOPs a step", "flops_per_step"),
    ("samples read first time", "distinct_share"),
    ("samples in the dataset", "dataset_samples"),
    ("samples evaluated on", "evaluated"),
    ("checkpoints", "checkpoints"),
)


def _why(found: SlowerCause) -> str:
    its, mine = found.phases_ns[found.phase]
    said = (
        f"{PHASES.get(found.phase, found.phase)} takes {mine / 1e6:.3g} ms a step, before {its / 1e6:.3g} ms"
    )
    if found.place is None or found.place_ns is None:
        return said
    return f"{said}; {found.place} takes {found.place_ns / 1e6:.3g} ms more"


def _packages(changes: list[PackageChange]) -> str:
    shown = [
        f"{each.name} {each.before or 'none'} → {each.after or 'none'}" for each in changes[:MOST_PACKAGES]
    ]
    more = len(changes) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


def _counted(work: WorkDone, name: str) -> str:
    value = getattr(work, name)
    if value is None:
        return "-"
    if name in ("updated_share", "distinct_share"):
        return share(value, 1)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _sameness(found: Sameness) -> str:
    if found.class_ == "bitwise":
        return f"bitwise the same over {found.compared_steps} steps"
    where = "" if found.module is None else f", {found.module} at {found.place}"
    said = f"{found.class_ or 'not known'}: the two part at step {found.step}, by their {found.what}{where}"
    return said if found.deterministic else f"{said}; two runs of before part too"


def proof_markdown(proof: Proof) -> str:
    """A comment for a pull request."""
    lines = [f"### autobrrr prove: {_cell(verdict_words(proof))}", ""]
    lines += [f"- {each.code.value}: {_cell(each.why)}" for each in proof.refusals[1:]]
    lines += [f"- **{name}**: {_cell(value)}" for name, value in proof_facts(proof)]
    lines += ["", "| work | before | after |", "|---|---:|---:|"]
    lines += [f"| {name} | {its} | {mine} |" for name, its, mine in work_rows(proof)]
    lines += ["", f"before: `{_code(proof.before)}`  ", f"after: `{_code(proof.after)}`"]
    return "\n".join(lines) + "\n"


# What marks text up, a link's brackets among it; an underscore only where it does not stand inside a word.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
# What GitHub makes links and mentions of without any markup.
_CALLS = {"#": "&#35;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}


def _cell(text: str) -> str:
    """Words of others in a comment: no markup, no link, nobody called by name."""
    told = _MARKUP.sub(r"\\\g<0>", escape(readable(text)))
    for call, plain in _CALLS.items():
        told = told.replace(call, plain)
    return told


def _code(text: str) -> str:
    return readable(text).replace("`", "'")


def proof_junit(proof: Proof) -> str:
    """One test case; it fails where nothing is proven, and is an error where the referee refuses."""
    kind = {"refused": "error", "not_proven": "failure"}.get(proof.verdict)
    code = proof.refusals[0].code.value if proof.refusals else proof.verdict
    inside = (
        "" if kind is None else f"<{kind} type={quoteattr(code)} message={quoteattr(verdict_words(proof))}/>"
    )
    body = escape(proof_text(proof))
    took_s = proof.elapsed_ns / 1e9
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="autobrrr" tests="1" failures="{int(kind == "failure")}" '
        f'errors="{int(kind == "error")}" time="{took_s:.1f}">'
        f'<testcase classname="autobrrr" name="prove" time="{took_s:.1f}">{inside}'
        f"<system-out>{body}</system-out></testcase></testsuite>\n"
    )
