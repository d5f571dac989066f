"""A proof as one HTML page without scripts."""

from __future__ import annotations

from html import escape

from autobrrr.records.proof_records import Proof
from autobrrr.report.html.study_html import STYLE
from autobrrr.report.text.proof_text import proof_facts, verdict_words, work_rows


def proof_html(proof: Proof) -> str:
    """The page."""
    facts = "".join(f"<tr><th>{name}<td>{escape(value)}</tr>" for name, value in proof_facts(proof))
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in work_rows(proof)
    )
    also = "".join(f"<li>{each.code.value}: {escape(each.why)}</li>" for each in proof.refusals[1:])
    return (
        "<!doctype html><meta charset=utf-8><title>autobrrr prove</title>"
        f"<style>{STYLE}</style><h1>autobrrr prove</h1><p>{escape(verdict_words(proof))}</p>"
        + (f"<ul>{also}</ul>" if also else "")
        + f"<table>{facts}</table><h2>Work</h2><table><tr><th>counted<th>before<th>after</tr>{rows}</table>"
        f"<p>before: <code>{escape(proof.before)}</code><br>after: <code>{escape(proof.after)}</code></p>\n"
    )
