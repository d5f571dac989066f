"""A real session whose figures a real HTTP client fetches; the port is free again when it has ended."""

import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.attach import eventually
from support.training import autobrrr, environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FAKE = Path(__file__).resolve().parents[2] / "support" / "sessions" / "sidecar.py"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(FAKE)], stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as process:
        assert process.stdout.readline() == "training\n"
        yield process
        process.kill()


def listens(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def test_figures_are_served_as_long_as_the_session_lasts(job: subprocess.Popen[str], tmp_path: Path) -> None:
    attached = autobrrr(tmp_path, "attach", str(job.pid), "--plain", "--for", "2s", "--metrics", "0")
    assert attached.code == 0, attached.stderr
    found = re.search(r"metrics: (http://127\.0\.0\.1:(\d+)/metrics)", attached.stderr)
    assert found is not None, attached.stderr
    url, port = found.group(1), int(found.group(2))

    def steps() -> bool:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return b"autobrrr_step_seconds{" in answer.read()

    eventually(steps)
    again = autobrrr(tmp_path, "attach", str(job.pid), "--plain", "--for", "1s", "--metrics", "0")
    assert again.code == 0, again.stderr
    assert url in again.stderr  # it is the session's
    assert autobrrr(tmp_path, "detach", str(job.pid)).code == 0
    eventually(lambda: not listens(port))


def test_the_listener_dies_with_its_sidecar(job: subprocess.Popen[str], tmp_path: Path) -> None:
    attached = autobrrr(tmp_path, "attach", str(job.pid), "--plain", "--for", "1s", "--metrics", "0")
    port = int(attached.stderr.split("127.0.0.1:")[1].split("/")[0])
    assert listens(port)
    job.kill()
    eventually(lambda: not listens(port))
