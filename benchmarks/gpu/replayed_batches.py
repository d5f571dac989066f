"""What a step takes at twice the batch: operator replay on the device, against real steps of twelve jobs.

`emurun python -m benchmarks.gpu batches`. Right: within 5 % of the truth.
"""

import contextlib
import os
import time

from autobrrr.client.session_client import open_session
from autobrrr.records.session_requests import TakeSnapshot
from autobrrr.sidecar.process.session_options import SessionOptions
from benchmarks.gpu.batch_job import BATCHES
from benchmarks.gpu.live_session import Measure, job, said
from benchmarks.planted.job_process import own_folders

WITHIN_S, WITHIN = 60.0, 0.05


def compare(kind: str) -> dict[str, object]:
    with contextlib.ExitStack() as stack:
        environment = stack.enter_context(own_folders())
        environment["EMU_SHM"] = environment["XDG_RUNTIME_DIR"]  # no other job is on this device
        running = stack.enter_context(job(["benchmarks/gpu/batch_job.py", kind], environment))
        _, once, twice = said(running, "truth")
        truth = float(twice) / float(once)
        os.environ.update(environment)
        until_s = time.monotonic() + WITHIN_S
        with open_session(running.pid, SessionOptions(unproven=True)) as client:
            before = found = client.ask(TakeSnapshot())
            while found.state != "judged" and time.monotonic() < until_s:
                time.sleep(0.2)
                found = client.ask(TakeSnapshot())
                before = found if found.state != "probing" and found.batch_probe.status != "ok" else before
            client.detach()
    probe = found.batch_probe
    answer = probe.ratio_2x
    return {
        "pauses_ms": ((found.cost.one_off_ns or 0) - (before.cost.one_off_ns or 0)) // 1_000_000,
        "step_ms": round(float(once) / 1e6, 2),
        "truth": round(truth, 3),
        "answer": None if answer is None else round(answer, 3),
        "error": None if answer is None else round(answer / truth - 1, 4),
        "right": answer is not None and abs(answer / truth - 1) <= WITHIN,
        "why": probe.why,
    }


TABLE: dict[str, Measure] = {kind: (lambda kind=kind: compare(kind)) for kind in BATCHES}
