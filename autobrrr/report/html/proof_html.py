"""A proof as one page."""

from __future__ import annotations

from autobrrr.records.proof_records import Proof
from autobrrr.report.html.page_tables import PageTable, words
from autobrrr.report.html.page_template import render
from autobrrr.report.text.proof_text import proof_facts, verdict_words, work_rows


def proof_html(proof: Proof) -> str:
    """The page."""
    rows = [words(*row) for row in work_rows(proof)]
    return render(
        "proof",
        data=proof,
        data_name="proof.json",
        kind="prove",
        title=verdict_words(proof),
        about=[],
        also=[f"{each.code.value}: {each.why}" for each in proof.refusals[1:]],
        facts=PageTable(
            caption="Speed and sameness",
            heads=["-", "-"],
            rows=[words(name, value) for name, value in proof_facts(proof)],
        ),
        work=PageTable(caption="Counted in both", heads=["-counted", "-before", "-after"], rows=rows),
        commands=[proof.before, proof.after],
    )
