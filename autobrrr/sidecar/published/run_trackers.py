"""`attach --log-to`: verdict, step time and gain in an experiment tracker, where its library is installed.

Each writes into one folder of the user's unless its own variables (`WANDB_…`, `MLFLOW_TRACKING_URI`) say
otherwise.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.paths import is_roots
from autobrrr.sidecar.published.published_figures import Published

SHOWN = ("step", "step_p99", "samples_per_second", "share", "gain", "own_cost", "remedies_on", "cpu_wait")


class RunTracker(Protocol):
    """Takes figures until it is closed."""

    def take(self, told: Published) -> None: ...

    def close(self) -> None: ...


def shown(told: Published) -> dict[str, float]:
    """The figures that a tracker's charts have, by path."""
    return {f"autobrrr/{each.path}": float(each.value) for each in told.figures if each.name in SHOWN}


class WandbTracker:
    """A run of Weights & Biases."""

    def __init__(self, library: Any, pid: int, folder: Path) -> None:
        project = os.environ.get("WANDB_PROJECT", "autobrrr")
        quiet = library.Settings(console="off", silent=True)
        self._run = library.init(project=project, name=f"autobrrr-{pid}", dir=str(folder), settings=quiet)

    def take(self, told: Published) -> None:
        self._run.log(shown(told), step=told.steps)
        self._run.summary["autobrrr/verdict"] = told.verdict

    def close(self) -> None:
        self._run.finish()


class MlflowTracker:
    """A run of MLflow; in a database in the folder unless a server is named."""

    def __init__(self, library: Any, pid: int, folder: Path) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}"
        self._client = library.MlflowClient(tracking_uri=uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "autobrrr")
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        self._run = self._client.create_run(experiment, run_name=f"autobrrr-{pid}").info.run_id
        self._verdict = ""

    def take(self, told: Published) -> None:
        for name, value in shown(told).items():
            self._client.log_metric(self._run, name, value, step=told.steps)
        if told.verdict != self._verdict:
            self._verdict = told.verdict
            self._client.set_tag(self._run, "autobrrr.verdict", told.verdict)

    def close(self) -> None:
        self._client.set_terminated(self._run)


class TensorboardTracker:
    """An event file for TensorBoard, by its own writer: no torch is needed."""

    def __init__(self, library: Any, pid: int, folder: Path) -> None:
        writers = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._event = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._text = importlib.import_module("tensorboard.plugins.text.metadata").create_summary_metadata
        self._tensor = importlib.import_module("tensorboard.util.tensor_util").make_tensor_proto
        self._writer = writers.EventFileWriter(str(folder / "runs" / f"autobrrr-{pid}"))
        self._verdict = ""

    def take(self, told: Published) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in shown(told).items()]
        if told.verdict != self._verdict:
            self._verdict = told.verdict
            metadata = self._text(display_name="verdict", description="")
            tensor = self._tensor(told.verdict.encode())
            values.append(self._summary.Value(tag="autobrrr/verdict", metadata=metadata, tensor=tensor))
        self._writer.add_event(
            self._event(wall_time=time.time(), step=told.steps, summary=self._summary(value=values))
        )
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


TRACKERS: dict[str, Callable[[Any, int, Path], RunTracker]] = {
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
    "tensorboard": TensorboardTracker,
}


def tracker(name: str, pid: int, folder: Path) -> RunTracker:
    """Begin to write.

    Raises:
        UsageError: the library is not in the environment of autobrrr, or we are root and the folder is not
            root's alone: somebody may have put a link there.
        AutobrrrError: it is there, and can't begin.
    """
    if importlib.util.find_spec(name) is None:
        raise UsageError(
            f"--log-to {name}: {name} is not installed beside autobrrr",
            f"install {name} into the environment of autobrrr, not only into the job's",
        )
    if os.geteuid() == 0 and not is_roots(folder / f"autobrrr-{pid}"):
        raise UsageError(
            f"--log-to {name}: others than root may write in {folder}", "change into a folder of root's alone"
        )
    try:
        return TRACKERS[name](importlib.import_module(name), pid, folder)
    except Exception as error:  # a library of somebody else's
        said = (str(error).splitlines() or [""])[0]
        raise AutobrrrError(
            f"--log-to {name}: it can't begin: {type(error).__name__}: {said}",
            f"check that {name} works by itself here",
        ) from error
