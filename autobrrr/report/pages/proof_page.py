"""A proof for people: a page, a comment for a pull request, and JUnit XML.

In: a `Proof`. Out: a page of the model, or text; foreign words in it are made safe to show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from autobrrr.quantities import duration, share
from autobrrr.readable import readable
from autobrrr.records.gain_words import gain_words
from autobrrr.records.proof_records import PackageChange, Proof, Sameness, SlowerCause, WorkDone
from autobrrr.report.page_model import Line, LineGroup, ReportPage, filled, listed, section, table
from autobrrr.report.page_text import page_text

MOST_PACKAGES = 8
COMMENT = 100  # cells of a comment's lines
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
COUNTED = {
    "steps counted": "steps",
    "samples a step": "samples_per_step",
    "tokens a step": "tokens_per_step",
    "backward calls a step": "backwards_per_step",
    "optimizer calls a step": "updates_per_step",
    "parameters updated, least": "updated_share",
    "FLOPs a step": "flops_per_step",
    "samples read first time": "distinct_share",
    "samples in the dataset": "dataset_samples",
    "samples evaluated on": "evaluated",
    "checkpoints": "checkpoints",
}


def proof_page(proof: Proof) -> ReportPage:
    """The page."""
    also = [f"{each.code.value}: {each.why}" for each in proof.refusals[1:]]
    facts = [Line(name=name, text=value) for name, value in _facts(proof)]
    commands = [Line(text=each, tone="code") for each in (proof.before, proof.after)]
    return ReportPage(
        kind="prove",
        title=verdict_words(proof),
        about=[],
        sections=filled(
            section("Also", listed(also) if also else None),
            section("Result", LineGroup(lines=facts, shape="facts")),
            section("Work", table("Counted in both", ("-counted", "#-before", "#-after"), _work(proof))),
            section("Commands, before and after", *commands, on="page"),
        ),
        data=proof,
        file="proof.json",
    )


def verdict_words(proof: Proof) -> str:
    """The verdict with its reason, one line."""
    code = f" ({proof.refusals[0].code.value})" if proof.refusals else ""
    return readable(f"{VERDICTS[proof.verdict]}{code}: {proof.reason}")


def _facts(proof: Proof) -> Iterator[tuple[str, str]]:
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


def _work(proof: Proof) -> Iterator[tuple[str, str, str]]:
    """What was counted, of both sides."""
    if proof.work is not None:
        for name, field in COUNTED.items():
            yield name, _counted(proof.work.before, field), _counted(proof.work.after, field)


def _counted(work: WorkDone, name: str) -> str:
    value = getattr(work, name)
    if value is None:
        return "-"
    if name in ("updated_share", "distinct_share"):
        return share(value, 1)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _why(found: SlowerCause) -> str:
    its, mine = found.phases_ns[found.phase]
    said = f"{PHASES.get(found.phase, found.phase)} takes {duration(mine)} a step, before {duration(its)}"
    if found.place is None or found.place_ns is None:
        return said
    return f"{said}; {found.place} takes {duration(found.place_ns)} more"


def _packages(changes: list[PackageChange]) -> str:
    shown = [
        f"{each.name} {each.before or 'none'} → {each.after or 'none'}" for each in changes[:MOST_PACKAGES]
    ]
    more = len(changes) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


def _sameness(found: Sameness) -> str:
    if found.class_ == "bitwise":
        return f"bitwise the same over {found.compared_steps} steps"
    where = "" if found.module is None else f", {found.module} at {found.place}"
    said = f"{found.class_ or 'not known'}: the two part at step {found.step}, by their {found.what}{where}"
    return said if found.deterministic else f"{said}; two runs of before part too"


def proof_markdown(proof: Proof) -> str:
    """A comment for a pull request: the page as text, in a fence in which nothing is markup or a call."""
    text = page_text(proof_page(proof), COMMENT)
    commands = [f"before: {readable(proof.before)}", f"after:  {readable(proof.after)}"]
    told = "\n".join([text, "", *commands])
    fence = "`" * (2 + max(map(len, re.findall("`+", told)), default=1))
    return f"### autobrrr prove: {VERDICTS[proof.verdict]}\n\n{fence}text\n{told}\n{fence}\n"


def proof_junit(proof: Proof) -> str:
    """One test case; it fails where nothing is proven, and is an error where the referee refuses."""
    kind = {"refused": "error", "not_proven": "failure"}.get(proof.verdict)
    code = proof.refusals[0].code.value if proof.refusals else proof.verdict
    inside = (
        "" if kind is None else f"<{kind} type={quoteattr(code)} message={quoteattr(verdict_words(proof))}/>"
    )
    took_s = proof.elapsed_ns / 1e9
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="autobrrr" tests="1" failures="{int(kind == "failure")}" '
        f'errors="{int(kind == "error")}" time="{took_s:.1f}">'
        f'<testcase classname="autobrrr" name="prove" time="{took_s:.1f}">{inside}'
        f"<system-out>{escape(page_text(proof_page(proof), None))}</system-out></testcase></testsuite>\n"
    )
