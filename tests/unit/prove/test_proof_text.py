"""A proof as text, comment, JUnit and page: one verdict in all of them, and foreign words can't break out."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import msgspec
import pytest

from autobrrr.records import to_json
from autobrrr.records.proof_records import PackageChange, Proof
from autobrrr.report.html.page_template import page_html
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.proof_page import proof_junit, proof_markdown, proof_page
from support.proofs import proof, refused


def told(found: Proof) -> str:
    return page_text(proof_page(found), None)


HOSTILE = '<b>\x1b[31m @everyone | `x` & "quoted"'


def test_text_has_verdict_speed_sameness_and_work() -> None:
    lines = told(proof()).splitlines()
    assert lines[0] == "proven faster: 1.56x [1.52–1.60] the useful work a second"
    assert "  speed     1.56x [1.52–1.60], 3 fresh starts; A/A turns differ by up to 1.2 %" in lines
    assert "  sameness  bitwise the same over 16 steps" in lines
    assert any(line.split() == ["tokens", "a", "step", "16", "16"] for line in lines)


def test_packages_that_differ_are_named_as_far_as_there_is_room() -> None:
    some = [PackageChange(name=f"p{number}", before="1.0", after=None) for number in range(10)]
    said = next(line for line in told(proof(packages=some)).splitlines() if "packages" in line)
    assert "p0 1.0 → none" in said
    assert "p9" not in said
    assert said.endswith("2 more")


def test_sides_of_one_command_are_named() -> None:
    assert "compared  1a2b → 3c4d" in told(proof(names=["1a2b", "3c4d"]))
    assert "compared" not in told(proof())


def test_a_refusal_comes_first_with_its_code() -> None:
    first, *_ = told(refused()).splitlines()
    assert first == "refused (less_evaluation): it evaluates on 0 samples, before on 1024"
    assert "  speed     not measured" in told(refused())


@pytest.mark.parametrize(("found", "kind"), [(proof(), None), (refused(), "error")])
def test_junit_has_one_case(found: Proof, kind: str | None) -> None:
    suite = ElementTree.fromstring(proof_junit(found).encode())
    (case,) = suite
    assert [each.tag for each in case if each.tag != "system-out"] == ([] if kind is None else [kind])


def test_junit_fails_where_nothing_is_proven() -> None:
    suite = ElementTree.fromstring(proof_junit(proof(verdict="not_proven")).encode())
    assert suite.attrib["failures"] == "1"


def test_words_of_others_stay_words() -> None:
    found = msgspec.structs.replace(refused(HOSTILE), before=HOSTILE, after=HOSTILE)
    ElementTree.fromstring(proof_junit(found).encode())
    comment, page = proof_markdown(found), page_html(proof_page(found))
    assert "\x1b" not in comment + told(found)
    assert "@everyone |" not in comment.splitlines()[0]
    assert "<b>" not in page


@pytest.mark.parametrize(
    "words", ["[x](javascript:a)", "@team, see #12", "`a`", "```\n# head", "<img src=x>", "~~~"]
)
def test_words_of_others_are_no_markup_in_a_comment(words: str) -> None:
    found = proof(verdict="refused", reason=words, before=words, after=words)
    head, _, fenced = proof_markdown(found).partition("\n\n")
    fence = fenced.partition("text\n")[0]
    assert head == "### autobrrr prove: refused"
    assert fenced.count(fence) == 2, "nothing inside ends the fence"
    assert fenced.endswith(f"\n{fence}\n")


def test_a_command_with_a_byte_that_is_no_utf_8_has_all_its_reports() -> None:
    found = proof(before="python train.py \udcff")
    assert json.loads(to_json(found))["before"] == "python train.py \\udcff"
    shown = proof_page(found)
    for told in (page_text(shown), proof_markdown(found), proof_junit(found), page_html(shown)):
        told.encode()


@pytest.mark.parametrize("before", ["python train.py", 'é \x9b31m \u202e \x7f \U0001f600 \\ "'])
def test_json_can_be_read_back_and_means_nothing_to_a_terminal(before: str) -> None:
    found = proof(before=before)
    assert all(" " <= each <= "~" for each in to_json(found))
    assert msgspec.json.decode(to_json(found), type=Proof) == found
    assert '"class":"bitwise"' in to_json(found)
