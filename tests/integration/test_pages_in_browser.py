"""Every page in a real browser: whole, quiet, readable at any width, and deaf to what names say."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from autobrrr.cli.verbs import analyze
from autobrrr.records import Record
from autobrrr.records.wire_answers import ActivityLine, StepHistory
from autobrrr.report.html.page_template import page_html
from autobrrr.report.pages.proof_page import proof_page
from autobrrr.report.pages.roofline_page import roofline_page
from autobrrr.report.pages.session_page import session_page
from autobrrr.report.pages.side_by_side import compare_sessions, comparison_page
from autobrrr.report.pages.study_page import study_page
from autobrrr.report.past_session import past_session
from autobrrr.roofline.roofline_records import with_peaks
from support import proofs
from support.machines import roofline
from support.outside.browser import Browser, chromium
from support.screens import tui
from support.trace import busy_scene

pytestmark = pytest.mark.integration
HOSTILE = "</script><script>window.stolen=1</script><img src=x onerror='window.stolen=2'>\"'"
MS = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Browser]:
    with chromium(folder) as found:
        yield found


def session(folder: Path) -> str:
    return page_html(session_page(past_session(log(folder))))


def log(folder: Path) -> Path:
    """A log with a tuning, minutes of steps, and names that would like to run."""
    job = tui.job(script=f"train {HOSTILE}.py", argv=[f"train {HOSTILE}.py"])
    snapshot = tui.snapshot(job=job, reason=HOSTILE, adds=HOSTILE)
    trials = [msgspec.structs.replace(each, remedy=each.remedy + HOSTILE) for each in tui.tuned().trials]
    steps = [4 * MS + (i * 7919 % 13) * MS // 10 for i in range(120)]
    entries: list[tuple[float, str, Record]] = [
        (0.0, "snapshot", snapshot),
        (30.0, "note", ActivityLine(text=HOSTILE, about="switch")),
        *((40.0 + 5 * i, "trial", trial) for i, trial in enumerate(trials)),
        (90.0, "tuned", msgspec.structs.replace(tui.tuned(), trials=trials, note=HOSTILE)),
        (91.0, "snapshot", msgspec.structs.replace(snapshot, active=["optimizer.fused"])),
        (
            120.0,
            "history",
            StepHistory(bucket_ns=1000 * MS, median_ns=steps, longest_ns=[9 * MS, *steps[1:]]),
        ),
        (120.0, "snapshot", msgspec.structs.replace(snapshot, active=["optimizer.fused"])),
    ]
    file = folder / "one.jsonl.gz"
    lines = [msgspec.json.encode({"at": 1e9 + at, "kind": kind, "body": body}) for at, kind, body in entries]
    file.write_bytes(gzip.compress(b"\n".join(lines)))
    return file


def study(folder: Path) -> str:
    trials = [
        msgspec.structs.replace(
            tui.tuned().trials[0],
            remedy=f"--workers={i} {HOSTILE}",
            options={f"--workers{HOSTILE}": i},
            achieved=1 + i / 10,
            interval=[0.98 + i / 10, 1.02 + i / 10],
        )
        for i in range(5)
    ]
    return page_html(study_page(msgspec.structs.replace(tui.tuned(), trials=trials)))


def roofs(folder: Path) -> str:
    many = with_peaks(roofline.measured(2, flame=roofline.flame(), device=f"CPU {HOSTILE}"))
    return page_html(
        roofline_page(msgspec.structs.replace(many, single_thread=with_peaks(roofline.measured(1))))
    )


def trace(folder: Path) -> str:
    scene = busy_scene(3, 20)
    scene.operator(0, 5, HOSTILE)
    scene.kernel(900_000, 9_000, HOSTILE, launch=(2, 1))
    scene.operator(10, 5, f"aten::{'_scaled_dot_product_flash_attention' * 3}_backward")
    scene.kernel(
        920_000, 9_000, f"void cutlass::Kernel2<{'cutlass_80_tensorop_s1688gemm_' * 9}>", launch=(12, 1)
    )
    return analysed(folder, [scene.write(folder, "t.json")])


def ranks(folder: Path) -> str:
    return analysed(folder, [busy_scene(2, 10).write(folder, f"rank{i}.json") for i in range(2)])


def analysed(folder: Path, traces: list[Path]) -> str:
    import argparse

    parser, target = argparse.ArgumentParser(), folder / "analysed.html"
    analyze.prepare_parser(parser)
    assert analyze.run(parser.parse_args([*map(str, traces), "--json", "--html", str(target)])) == 0
    return target.read_text()


def diff(folder: Path) -> str:
    one, other = (past_session(log(folder)).data for _ in range(2))
    return page_html(comparison_page(compare_sessions(one, other)))


def proved(folder: Path) -> str:
    hostile = f"python train.py --name '{HOSTILE}'"
    return page_html(proof_page(proofs.proof(before=hostile, after=hostile)))


PAGES: dict[str, Callable[[Path], str]] = {
    "session": session,
    "study": study,
    "roofline": roofs,
    "trace": trace,
    "ranks": ranks,
    "diff": diff,
    "proof": proved,
}


@pytest.fixture(params=list(PAGES))
def page(request: pytest.FixtureRequest, folder: Path) -> Path:
    return drawn(request.param, folder)


def drawn(name: str, folder: Path) -> Path:
    file = folder / f"{name}.html"
    if not file.exists():
        file.write_text(PAGES[name](folder), encoding="utf-8")
    return file


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_a_page_is_quiet_and_no_wider_than_its_window(
    browser: Browser, page: Path, width: int, scheme: str
) -> None:
    browser.open(page, width=width, scheme=scheme)
    assert browser.run("return document.documentElement.scrollWidth") == width
    assert browser.run("return window.stolen ?? 0") == 0
    assert browser.run("return document.images.length") == 0
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(246, 246, 244)" if scheme == "light" else "rgb(18, 19, 22)")
    assert browser.complaints() == []


@pytest.mark.nightly
def test_on_a_telephone_nothing_scrolls_to_the_side(browser: Browser, page: Path) -> None:
    browser.open(page, width=360)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    wider = """return [...document.querySelectorAll('body *')].filter(each =>
      ['auto', 'scroll'].includes(getComputedStyle(each).overflowX) && each.scrollWidth > each.clientWidth
      ).map(each => each.outerHTML.slice(0, 200))"""
    assert browser.run(wider) == []


@pytest.mark.nightly
def test_everything_to_press_or_see_has_a_name(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.nameless() == []


@pytest.mark.nightly
def test_a_script_that_is_not_the_page_s_own_does_not_run(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.stolen = 3';"
        "document.body.append(s)"
    )
    assert browser.run("return window.stolen ?? 0") == 0
    assert "Content Security Policy" in " ".join(browser.complaints())


@pytest.mark.nightly
def test_the_data_of_a_page_can_be_saved(browser: Browser, page: Path, folder: Path) -> None:
    browser.open(page)
    name = browser.run("return document.getElementById('save').dataset.name")
    assert isinstance(name, str)
    saved = folder / name
    saved.unlink(missing_ok=True)
    browser.press("#save")
    until(saved.exists)
    assert json.loads(saved.read_text())["schema"] == 1


@pytest.mark.nightly
def test_a_table_is_sorted_by_its_figures(browser: Browser, folder: Path) -> None:
    browser.open(drawn("trace", folder))
    values = """const all = [...document.querySelectorAll('table')];
      const t = all.find(t => t.caption.textContent.startsWith('Longest gaps'));
      const head = [...t.tHead.rows[0].cells].find(c => c.textContent.startsWith('at'));
      for (let i = 0; i < arguments[0]; i++) head.querySelector('button').click();
      return [head.ariaSort, [...t.tBodies[0].rows].map(r => Number(r.cells[head.cellIndex].dataset.sort))]"""
    kind, falling = browser.run(values, 1)  # type: ignore[misc]
    assert (kind, falling) == ("descending", sorted(falling, reverse=True))
    kind, rising = browser.run(values, 1)  # type: ignore[misc]
    assert (kind, rising) == ("ascending", sorted(falling))
    assert len(set(falling)) > 1


@pytest.mark.nightly
def test_a_gap_s_row_leads_to_it_and_keys_move_the_timeline(browser: Browser, folder: Path) -> None:
    browser.open(drawn("trace", folder))
    shown, wanted = (
        f"const d = document.querySelector('{each}').dataset; return [Number(d.from), Number(d.to)]"
        for each in ("canvas.main", ".jump")
    )
    browser.press(".jump")
    gap, (start, end) = browser.run(wanted), browser.run(shown)  # type: ignore[misc]
    assert start < gap[0] < gap[1] < end  # type: ignore[index]
    browser.keys("canvas.main", "w")
    near = browser.run(shown)
    assert start < near[0] < near[1] < end  # type: ignore[index]
    browser.keys("canvas.main", "d")
    assert browser.run(shown)[0] > near[0]  # type: ignore[index]
    browser.keys("canvas.main", "9")
    whole = browser.run(shown)
    assert whole[1] - whole[0] > end - start  # type: ignore[index]
    assert browser.complaints() == []


def test_the_steps_of_a_session_are_drawn_and_can_be_zoomed(browser: Browser, folder: Path) -> None:
    browser.open(drawn("session", folder))
    assert browser.complaints() == []
    inked = """const c = document.querySelector('.steps canvas');
      const all = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      return all.filter((v, i) => i % 4 == 3 && v).length"""
    before = browser.run(inked)
    assert isinstance(before, int)
    assert before > 1000
    browser.keys(".steps", "+")
    until(lambda: browser.run(inked) != before)


def until(come: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not come():
        assert time.monotonic() < end_s
        time.sleep(0.05)
