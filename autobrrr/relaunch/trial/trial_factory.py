"""Starts the trials of one study, all in the same way: a point becomes a recipe, a recipe a launch.

In: the command, the space, variables. Out: running trials. The study's folder goes when the study does.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autobrrr import folders, recipe
from autobrrr.paths import make_private
from autobrrr.records import JobFacts
from autobrrr.relaunch.search.search_space import Point, Space
from autobrrr.relaunch.trial import live_trial, trial_launch
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.relaunch.trial.trial_launch import Limits, TrialLaunch, with_own_port, with_recipe

FOLDER_PREFIX = "study-"
FIRST_STEP_FACTOR, FIRST_STEP_LEAST_S = 4.0, 60.0


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

    @property
    def script_name(self) -> str | None:
        script = recipe.script_of(self.command)
        return None if script is None else Path(script).name

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
        return trial_launch.variables(self.environment, self.home)

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
            fence = trial_launch.walls(launch.folder, launch.environment, network=self.network)
            fence["open_folders"] = [str(self.home)]
        kept = None if self.kept is None else str(self.kept.resolve())
        place = self.home / f"t{self._number}"
        trial = live_trial.start(launch, place, self.limits, fence, kept)
        self._live = [each for each in self._live if not each.closed] + [trial]
        trial.wait_for_start()
        return trial

    def learn(self, base: LiveTrial) -> None:
        """Set limits by what the command as given took to its first step."""
        if base.start_ns is not None:
            least = max(FIRST_STEP_LEAST_S, FIRST_STEP_FACTOR * base.start_ns / 1e9)
            self.limits = replace(self.limits, first_step_s=least)

    def machine(self, facts: JobFacts | None) -> str:
        """What it was measured on, for the recipe."""
        cores = len(os.sched_getaffinity(0))
        counted = f"{cores} {'core' if cores == 1 else 'cores'}"
        return counted if facts is None or facts.torch is None else f"{counted}, torch {facts.torch}"


def sweep(runtime: Path) -> None:
    """Take away the folders of studies that were killed: nobody holds them any more."""
    for folder in runtime.glob(f"{FOLDER_PREFIX}*"):
        folders.remove_unheld(folder)
