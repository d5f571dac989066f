"""Size of the page of `analyze --html`, and how long a browser takes to draw it.

    python -m benchmarks.cost.page_weight --traces ../shared/data/traces

Needs Chromium, its driver and selenium. Drawn is from the start of the navigation to the second frame after
the page's scripts have run; the second of two visits counts, as the first starts the renderer.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from autobrrr.report.html.page_template import page_html
from autobrrr.report.pages.trace_page import trace_page
from autobrrr.trace.reading.trace_source import named_traces
from autobrrr.trace.step_view import StepView, step_view
from autobrrr.trace.timeline.trace_steps import find_steps
from autobrrr.trace.trace_analysis import analyse

DRAWN = """
const done = arguments[arguments.length - 1];
requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
"""


def page_of(path: Path) -> str:
    views: dict[str, list[StepView]] = {}
    found = analyse(
        named_traces([str(path)]),
        lambda trace, devs, one: views.update({one.file: [step_view(d, find_steps(trace)) for d in devs]}),
        lambda line: None,
    )
    return page_html(trace_page(found, views))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--traces", type=Path, default=Path("../shared/data/traces"))
    args = parser.parse_args()
    traces = sorted(args.traces.rglob("*.json.gz"))
    if not traces:
        sys.exit(f"{args.traces} holds no traces")
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    sizes, times = [], []
    print("| trace | page, MB | drawn, ms |\n|---|---|---|")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for path in traces:
                file = Path(folder) / "page.html"
                text = page_of(path)
                file.write_text(text, encoding="utf-8")
                drawn_ms = 0.0
                for _ in range(2):
                    driver.get(file.as_uri())
                    drawn_ms = driver.execute_async_script(DRAWN)
                sizes.append(len(text.encode()) / 1e6)
                times.append(drawn_ms)
                print(f"| {path.relative_to(args.traces)} | {sizes[-1]:.2f} | {drawn_ms:.0f} |", flush=True)
    finally:
        driver.quit()
    print(f"| median | {statistics.median(sizes):.2f} | {statistics.median(times):.0f} |")
    print(f"| largest | {max(sizes):.2f} | {max(times):.0f} |")


if __name__ == "__main__":
    main()
