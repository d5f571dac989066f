"""Starts the trials of one study, all in the same way: a point becomes a recipe, a recipe a launch.

In: the command, the space, variables. Out: running trials. The study's folder goes when the study does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autobrrr import paths, recipe
from autobrrr.errors import AutobrrrError
from autobrrr.injected.remedies.registry import Refused
from autobrrr.paths import make_private
from autobrrr.records import JobFacts
from autobrrr.relaunch.sandbox import orphans, workdir_copy
from autobrrr.relaunch.search.search_space import Point, Space
from autobrrr.relaunch.trial import live_trial, trial_environment
from autobrrr.relaunch.trial.live_trial import LiveTrial, NoSandbox
from autobrrr.relaunch.trial.trial_launch import Copy, Limits, TrialLaunch, Walls
from autobrrr.relaunch.trial.trial_ports import with_own_port

MOST_KEPT_BYTES = 8 << 30
COPY_LIMIT_BYTES = 2 << 30
FIRST_STEP_FACTOR, FIRST_STEP_LEAST_S = 4.0, 60.0
INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@dataclass(slots=True, kw_only=True)
class TrialFactory:
    """Where trials come from. Use it as a context: at its end its folder is taken away.

    Args:
        runtime: The runtime folder.
        walled: Trials run within walls; else they write where they want.
        kept: Where output is kept; what trials write there themselves is within their walls.
        copy_limit_bytes: Largest copy of the working folder, where walls need one; 0: none is made.
        tell: Hears one line, once, where trials work in a copy.
    """

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    runtime: Path
    cache: Path
    space: Space = field(default_factory=lambda: Space(parameters=()))
    walled: bool = True
    kept: Path | None = None
    copy_limit_bytes: int = COPY_LIMIT_BYTES
    tell: Callable[[str], None] = lambda line: None
    limits: Limits = field(default_factory=Limits)
    _number: int = 0
    _live: list[LiveTrial] = field(default_factory=list)
    _no_overlay: str | None = None
    _told: bool = False
    _with_temporary: bool = False

    @property
    def home(self) -> Path:
        """The study's folder."""
        return self.runtime / f"{orphans.FOLDER_PREFIX}{orphans.own_name()}"

    @property
    def copies(self) -> Path:
        """Where the study's copies of the working folder lie: on disk, not in memory."""
        return self.cache / "scratch" / self.home.name

    @property
    def temporary(self) -> Path:
        """Where temporary files lie that would outlive a trial: short, for sockets, and without our name."""
        usual = paths.temporary_dir(self.environment), paths.TMP
        fitting = (each for each in usual if each.is_absolute() and os.access(each, os.W_OK | os.X_OK))
        return next(fitting, self.cache) / f"{orphans.FOLDER_PREFIX}{orphans.own_name()}"

    @property
    def script_name(self) -> str | None:
        script = recipe.script_of(self.command)
        return None if script is None else Path(script).name

    def __enter__(self) -> TrialFactory:
        make_private(self.runtime)
        orphans.sweep(self.runtime, self.copies.parent, self.temporary.parent)
        make_private(self.home)
        (self.home / "inductor").mkdir(mode=0o700, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for trial in self._live:
            trial.close()
        shutil.rmtree(self.home, ignore_errors=True)
        workdir_copy.remove(str(self.copies))
        if self._with_temporary:
            workdir_copy.remove(str(self.temporary))

    def start(self, point: Point | None = None) -> LiveTrial:
        """Start a trial of a point; of the command as given where it is None.

        Raises:
            AutobrrrError: it can't be started, or there can be no walls around it.
        """
        found = self.space.recipe(point) if point is not None else recipe.Recipe()
        env = self.variables()
        try:
            env |= recipe.environment(found, env)
        except Refused:
            pass  # the agent says why it is not on
        plan = recipe.plan(found)
        plan["script"] = None
        return self.begin(
            TrialLaunch(
                command=tuple(recipe.with_flags(self.command, found.args)),
                environment=env,
                folder=self.folder,
                plan=plan if found.remedies else None,
                remedies=tuple(chosen.name for chosen in found.remedies),
            )
        )

    def variables(self) -> dict[str, str]:
        """What every trial starts with."""
        env = trial_environment.variables(self.environment, self.home)
        env.setdefault(INDUCTOR_CACHE, str(self.home / "inductor"))
        return env

    def begin(self, launch: TrialLaunch) -> LiveTrial:
        """Start what is prepared, with a port of its own, within the walls of this study.

        Raises:
            AutobrrrError: it can't be started, or there can be no walls around it.
        """
        self._number += 1
        words, env = with_own_port(launch.command, launch.environment)
        launch = replace(launch, command=tuple(words), environment=env)
        if not self.walled:
            return self._begin(self._tidy(launch), None)
        fence = trial_environment.walls(launch.folder, launch.environment, (str(self.home),))
        fence = fence if self.kept is None else replace(fence, kept=str(self.kept.resolve()))
        try:
            if self._no_overlay is None:
                return self._begin(launch, fence)
        except NoSandbox as problem:
            self._no_overlay = str(problem)
        return self._in_a_copy(self._tidy(launch), fence)

    def _tidy(self, launch: TrialLaunch) -> TrialLaunch:
        """With a folder of its own for temporary files: outside an overlay they would stay."""
        make_private(self.temporary)
        self._with_temporary = True
        own = self.temporary / f"t{self._number}"
        return replace(launch, environment={**launch.environment, "TMPDIR": str(own)}, temporary=own)

    def _begin(self, launch: TrialLaunch, fence: Walls | Copy | None) -> LiveTrial:
        trial = live_trial.start(launch, self.home / f"t{self._number}", self.limits, fence, self.cache)
        self._live = [each for each in self._live if not each.closed] + [trial]
        try:
            trial.wait_for_start()
        except NoSandbox:
            trial.close()
            raise
        return trial

    def _in_a_copy(self, launch: TrialLaunch, fence: Walls) -> LiveTrial:
        """No overlay can be had: the trial works in a copy, and everything else is read-only."""
        make_private(self.copies)
        inside = Copy(
            place=self.copies / f"t{self._number}",
            limit_bytes=self.copy_limit_bytes,
            size_bytes=fence.size_bytes,
            open_folders=fence.open_folders,
            kept=fence.kept,
        )
        try:
            if not self.copy_limit_bytes:
                raise NoSandbox(self._no_overlay)
            trial = self._begin(launch, inside)
        except NoSandbox as problem:
            raise AutobrrrError(
                f"no sandbox is possible here, so trials could write into your files: {problem}",
                "--copy-limit SIZE allows a larger copy; --allow-writes runs trials without a sandbox",
            ) from None
        if trial.copied is not None and not self._told:
            self._told = True
            self.tell(
                f"no overlay is possible here ({self._no_overlay}): each trial works in {trial.copied},"
                " everything else is read-only"
            )
        return trial

    def learn(self, base: LiveTrial) -> None:
        """Set limits by what the command as given took to its first step."""
        if base.start_ns is not None:
            least = max(FIRST_STEP_LEAST_S, FIRST_STEP_FACTOR * base.start_ns / 1e9)
            self.limits = Limits(
                first_step_s=least,
                settle_s=self.limits.settle_s,
                silence_s=self.limits.silence_s,
                grace_s=self.limits.grace_s,
            )

    def machine(self, facts: JobFacts | None) -> str:
        """What it was measured on, for the recipe."""
        cores = len(os.sched_getaffinity(0))
        counted = f"{cores} {'core' if cores == 1 else 'cores'}"
        return counted if facts is None or facts.torch is None else f"{counted}, torch {facts.torch}"
