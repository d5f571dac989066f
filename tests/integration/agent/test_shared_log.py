"""A log that real processes share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autobrrr.agent.ranks.shared_log import SharedLog

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[3]

WRITER = """
import sys
from autobrrr.agent.ranks.shared_log import SharedLog
log = SharedLog.open(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    print(log.put(str(number), sys.argv[2]), flush=True)
"""


def test_processes_agree_on_what_was_first_though_one_is_killed() -> None:
    log = SharedLog.create()
    command = [sys.executable, "-c", WRITER, log.address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen(
            [*command, str(rank), "2000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(3)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "open\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        first = writers[0].stdout
        first.readline()
        writers[0].kill()
        heard = [writer.communicate(timeout=120)[0].split() for writer in writers[1:]]
        assert heard[0] == heard[1] == [log.get(str(number)) for number in range(2000)]
        assert set(heard[0]) <= {"0", "1", "2"}
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
        log.leave()
