"""On a job that really trains: how often does the tuner keep what does nothing, how soon does it find 3 %?

    python -m benchmarks.tuning.tuner_on_job [--tries 40] [--gain 1.03] [--for 20]

One process trains; the tuner compares one remedy after the other on it, each try from nothing.
`optimizer.fused` is worth `--gain`, as the job itself has weighed; `gc.threshold` does nothing there, for
no tensor is as large as what it is about. A try ends when its trial is decided; steps: all that the job
trained until then.
"""

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from autobrrr.client.session_client import Client, open_session
from autobrrr.records import Trial
from autobrrr.records.session_requests import ShowDetails, SteerTuning, TuneRequest, UndoRemedy
from autobrrr.sidecar.process.session_options import SessionOptions
from benchmarks import ROOT, parser

MOST_STEPS = 2000


def decided(client: Client, remedy: str, for_s: float) -> Trial:
    """One trial of one remedy; what it kept is off again."""
    trials: list[Trial] = []

    def took(trial: Trial) -> None:
        if not trials:
            client.ask(SteerTuning("cancel"))
        trials.append(trial)

    client.tune(TuneRequest(only=[remedy], for_s=for_s), on_trial=took)
    for applied in client.ask(ShowDetails()).active:
        client.ask(UndoRemedy(applied.token))
    return trials[0]


def tell(name: str, trials: list[Trial], step_ns: float) -> None:
    """One row."""
    kept = [trial for trial in trials if trial.outcome == "kept"]
    steps = [trial.duration_ns / step_ns for trial in kept]
    within = sum(count <= MOST_STEPS for count in steps)
    found = [math.log(trial.achieved) for trial in trials if trial.achieved is not None]
    print(
        f"{name:<22}{len(trials):>6}{len(kept):>6}{within:>10}"
        f"{np.median(steps or [math.nan]):>9.0f}{np.quantile(steps or [math.nan], 0.9):>9.0f}"
        f"{math.exp(statistics.mean(found or [math.nan])):>10.4f}",
        flush=True,
    )


def main() -> None:
    """Run and print."""
    flags = parser(__doc__)
    flags.add_argument("--tries", type=int, default=40)
    flags.add_argument("--gain", type=float, default=1.03)
    flags.add_argument("--for", dest="for_s", type=float, default=20.0)
    args = flags.parse_args()
    words = [sys.executable, str(ROOT / "benchmarks/jobs/known_gain.py"), "--gain", str(args.gain)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder, "XDG_CACHE_HOME": folder}
        job = subprocess.Popen([*words, "--seconds", "86400"], stdout=subprocess.PIPE, text=True)
        try:
            assert job.stdout is not None
            said = job.stdout.readline().split()
            truth, step_ns = float(said[1]), float(said[3]) * 1e6
            print(f"the job: steps of {step_ns / 1e6:.2f} ms, optimizer.fused worth {truth:.4f}")
            with open_session(job.pid, SessionOptions()) as client:
                time.sleep(8.0)
                within = f"<= {MOST_STEPS}"
                print(f"{'':<22}{'tries':>6}{'kept':>6}{within:>10}{'median':>9}{'90 %':>9}{'mean':>10}")
                for name, remedy in (("nothing", "gc.threshold"), ("3 %", "optimizer.fused")):
                    tell(name, [decided(client, remedy, args.for_s) for _ in range(args.tries)], step_ns)
                client.detach()
        finally:
            job.kill()
            job.wait()


if __name__ == "__main__":
    main()
