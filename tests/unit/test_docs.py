"""The documentation: made pages are current, links lead somewhere, and the first page stays a first page."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from autobrrr.cli import VERBS
from autobrrr.records.gain_words import factor_words
from support.training import ran

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("autobrrr/**/README.md")])
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
SNIPPET = re.compile(r'^--8<-- "([^"]+)"', re.M)
FENCED = re.compile(r"^(```|~~~).*?^\1|^(?: {4}|\t).*?$|`[^`\n]*`", re.M | re.S)
BIG_ROOM, MOST_LINES = 3000, 20


@cache
def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_that_are_made_from_the_program_are_current() -> None:
    made = script("generate").pages() | script("pictures").pages()
    old = [name for name, text in made.items() if (DOCS / name).read_text() != text]
    assert old == [], "run `make pages`"


def test_the_animation_is_the_recording_that_ships() -> None:
    pictures = script("pictures")
    gain = factor_words(pictures.recorded()[-1].tuned.speedup)
    for name in ("images/session-60x16.svg", "images/session-120x40.svg"):
        svg = (DOCS / name).read_text()
        assert len(svg.encode()) <= 1_000_000
        assert "step-end -7s infinite" in svg  # it begins with the last screen, which has the verdict
        assert set(re.findall(r"animation:\w+ (\S+) ", svg)) == {"10s"}
        assert not re.search(r"<script|@font-face|href|url\(", svg)
        assert f">{gain} [" in "".join(re.findall(r'<g(?: class="t\d+")?>(.*)</g>', svg)), "at its end"
        assert all(name in (ROOT / page).read_text() for page in ("README.md", "docs/index.md"))


def test_the_command_page_has_every_verb_and_flag() -> None:
    text = script("generate").pages()["reference/commands.md"]
    for word in (*VERBS, "--horizon", "--keep", "--no-network", "--print-completion"):
        assert word in text


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    for snippet in SNIPPET.findall(text):
        assert (ROOT / snippet).is_file(), snippet
    for link in LINK.findall(FENCED.sub("", text)):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_navigation() -> None:
    shown = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert shown == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_the_first_page_is_short_and_says_what_is_proven_where() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 140
    screen = "\n".join(lines[:24])
    assert "Status" in screen
    assert "GPU" in screen
    text = "\n".join(lines)
    for word in (
        "make test",
        "make demo",
        "docs/design.md",
        "docs/limits.md",
        "docs/figures.md",
        "SECURITY.md",
    ):
        assert word in text


def test_what_runs_in_ci_is_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text().split("\n")


def test_a_room_of_many_lines_says_what_it_is() -> None:
    rooms = [*(ROOT / "autobrrr").iterdir(), *(ROOT / name for name in ("tui", "tests", "benchmarks"))]
    lines = {room: sum(file.read_bytes().count(b"\n") for file in room.rglob("*.py")) for room in rooms}
    big = [room for room in rooms if lines[room] > BIG_ROOM]
    assert len(big) >= 6
    for room in big:
        assert len((room / "README.md").read_text().splitlines()) <= MOST_LINES, room


def test_the_safety_page_names_tests_that_are_there() -> None:
    named = re.findall(r"`((?:tests|benchmarks)/[\w/.-]+)`", (DOCS / "safety.md").read_text())
    assert len(named) >= 8
    for name in named:
        assert (ROOT / name).exists(), name


@pytest.mark.integration
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is in the docs extra")
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", f"--site-dir={tmp_path}"]
    done = ran([sys.executable, *words], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "index.html").is_file()
