"""Starts the trials of one study, all in the same way: a point becomes a recipe, a recipe a launch.

In: the command, the space, variables. Out: running trials. The study's folder goes when the study does. Two
trials live side by side, and launchers meet at one fixed port. So each gets a free one, by variables and in
the place of the port that the command names.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autobrrr import folders, recipe
from autobrrr.agent.remedies.registry import Refused
from autobrrr.paths import make_private
from autobrrr.relaunch.search.search_space import Point, Space
from autobrrr.relaunch.trial import live_trial
from autobrrr.relaunch.trial.live_trial import Limits, LiveTrial, TrialLaunch
from autobrrr.relaunch.trial.memory_use import available_bytes

FOLDER_PREFIX = "study-"
FIRST_STEP_FACTOR, FIRST_STEP_LEAST_S = 4.0, 60.0
TRACKERS_OFF = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "AIM_TRACKING_DISABLED": "1",
    "DVCLIVE_TEST": "1",
    "SWANLAB_MODE": "disabled",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
HUBS_OFF = {"HF_HUB_OFFLINE": "1"}  # unless the user says otherwise
SHARE_OF_MEMORY = 0.25
LEAST_BYTES = 64 << 20
PORT_FLAGS = {
    "deepspeed": "--master_port",
    "accelerate launch": "--main_process_port",
}  # they read no variable
PORT = re.compile(
    r"(?<![^\0])(--(?:master|main_process)[-_]port[=\0]"
    r"|--rdzv[-_]endpoint[=\0](?:localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0)?:)\d+(?![^\0])"
)


@dataclass(slots=True, kw_only=True)
class TrialFactory:
    """Where trials come from. Use it as a context: at its end its folder is taken away.

    Args:
        runtime: The runtime folder.
        walled: Trials run within walls; else they write where they want.
        kept: Where output is kept; what trials write there themselves is within their walls.
        network: Trials reach more than the machine's loopback.
    """

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    runtime: Path
    space: Space = field(default_factory=lambda: Space(parameters=()))
    walled: bool = True
    kept: Path | None = None
    network: bool = True
    limits: Limits = field(default_factory=Limits)
    _number: int = 0
    _live: list[LiveTrial] = field(default_factory=list)
    home: Path = field(init=False)
    _held: int = -1

    def __enter__(self) -> TrialFactory:
        make_private(self.runtime)
        sweep(self.runtime)
        self.home = self.runtime / f"{FOLDER_PREFIX}{secrets.token_hex(8)}"
        self._held = folders.make_held(self.home)
        (self.home / "inductor").mkdir(mode=0o700)
        return self

    def __exit__(self, *_: object) -> None:
        for trial in self._live:
            trial.close()
        shutil.rmtree(self.home, ignore_errors=True)
        os.close(self._held)

    def start(self, point: Point | None = None) -> LiveTrial:
        """Start a trial of a point; of the command as given where it is None.

        Raises:
            AutobrrrError: it can't be started, or there can be no walls around it.
        """
        found = self.space.recipe(point) if point is not None else recipe.Recipe()
        given = TrialLaunch(command=self.command, environment=self.variables(), folder=self.folder)
        return self.begin(with_recipe(given, found))

    def variables(self) -> dict[str, str]:
        """What every trial starts with."""
        return quiet(self.environment, self.home)

    def begin(self, launch: TrialLaunch) -> LiveTrial:
        """Start what is prepared, with a port of its own, within the walls of this study.

        Raises:
            AutobrrrError: it can't be started, or there can be no walls around it.
        """
        self._number += 1
        words, env = with_own_port(launch.command, launch.environment)
        launch = replace(launch, command=tuple(words), environment=env)
        fence = None
        if self.walled:
            fence = {**walls(launch.folder, env, network=self.network), "open_folders": [str(self.home)]}
        kept = None if self.kept is None else str(self.kept.resolve())
        trial = live_trial.start(launch, self.home / f"t{self._number}", self.limits, fence, kept)
        self._live = [each for each in self._live if not each.closed] + [trial]
        trial.wait_for_start()
        return trial

    def learn(self, base: LiveTrial) -> None:
        """Set limits by what the command as given took to its first step."""
        usual_s = (base.start_ns or 0) / 1e9
        self.limits = replace(self.limits, first_step_s=max(FIRST_STEP_LEAST_S, FIRST_STEP_FACTOR * usual_s))


def sweep(runtime: Path) -> None:
    """Take away the folders of studies that were killed: nobody holds them any more."""
    for folder in runtime.glob(f"{FOLDER_PREFIX}*"):
        folders.remove_unheld(folder)


def with_recipe(given: TrialLaunch, found: recipe.Recipe) -> TrialLaunch:
    """The command with what a recipe says; the agent in it applies the remedies."""
    env = dict(given.environment)
    with contextlib.suppress(Refused):  # the agent says why it is not on
        env |= recipe.environment(found, env)
    plan = recipe.plan(found)
    plan["script"] = None
    return replace(
        given,
        command=tuple(recipe.with_flags(list(given.command), found.args)),
        environment=env,
        plan=plan if found.remedies else None,
        remedies=tuple(chosen.remedy for chosen in found.remedies),
    )


def quiet(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The user's variables with trackers and hubs off.

    Args:
        folder: Of the study; experiments that are tracked to files go there, which is within the walls, and
            so does what inductor compiles, unless the user says where.
    """
    usual = {**HUBS_OFF, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    quiet = {**TRACKERS_OFF, "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns"}
    return {**usual, **env, **quiet}


def walls(
    working: Path, env: Mapping[str, str], root: Path = Path("/"), *, network: bool = True
) -> dict[str, object]:
    """For a script that works in this folder: arguments of `raise_walls`, but for the trial's own folders."""
    temporary = env.get("TMPDIR", "/tmp")
    needed = [str(working.resolve())]
    if os.path.isdir(temporary) and os.access(temporary, os.W_OK):
        needed.append(os.path.realpath(temporary))
    size_bytes = max(LEAST_BYTES, int(SHARE_OF_MEMORY * (available_bytes(root) or 0)))
    return {"size_bytes": size_bytes, "needed": needed, "network": network}


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def with_own_port(
    command: Sequence[str], env: Mapping[str, str], free: Callable[[], int] = free_port
) -> tuple[list[str], dict[str, str]]:
    """The command and its variables, to be started beside another trial of the same command.

    A port that the command names becomes the free one. Launchers that are told none are told this one.
    """
    port = str(free())
    words = PORT.sub(rf"\g<1>{port}", "\0".join(command)).split("\0")
    for launcher, flag in PORT_FLAGS.items():
        count = launcher.count(" ") + 1
        if " ".join([Path(words[0]).name, *words[1:count]]) == launcher:
            words[count:count] = [flag, port]
    return words, {**env, "MASTER_PORT": port, "PET_MASTER_PORT": port}
