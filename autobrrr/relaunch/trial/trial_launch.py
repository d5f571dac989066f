"""What a trial is started with: the command, variables that keep trackers quiet, limits, walls, a port.

Two trials live side by side, and launchers meet at one fixed port. So each gets a free one, by the variable
and by a flag behind the launcher's own: of two the last counts. What stands after the script is its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autobrrr import recipe
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused, Remedy
from autobrrr.attach.preload.preload_outcome import PreloadOutcome
from autobrrr.machine.procfs import is_python
from autobrrr.recipe.script_flags import script_of
from autobrrr.relaunch.trial.memory_use import available_bytes

TRACKERS_OFF = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "MLFLOW_TRACKING_URI": "",
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
PATIENCE = 10.0  # times what a remedy usually takes to come on
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
}
PORT_FLAG = {"torchrun": "--master_port", "accelerate": "--main_process_port", "deepspeed": "--master_port"}
OWN_ENDPOINT = re.compile(r"--rdzv[-_]endpoint[= ](localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0)?:\d+ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLaunch:
    """What is started: words, all variables, what its agents apply.

    Attributes:
        audit: Where an account of the whole run is written.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    plan: Mapping[str, object] | None = None
    remedies: tuple[str, ...] = ()
    audit: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a trial may take until it is given up, in seconds."""

    first_step_s: float = 300.0
    settle_s: float = 30.0
    silence_s: float = 30.0
    silence_steps: float = 20.0
    grace_s: float = 3.0


@dataclass(slots=True)
class ComingOn:
    """The remedies that a trial is started with, until all are on and their first steps are over."""

    told: PreloadOutcome
    names: tuple[str, ...]
    _since: int | None = field(default=None, init=False)

    def look(self, steps: int) -> None:
        """Note the step after which the last of them was heard of."""
        if self._since is None and not self.is_awaited():
            self._since = steps

    def is_awaited(self) -> bool:
        """One has neither gone on nor been refused: what is measured now would be without it."""
        self.told.news()
        return not {line.get("remedy") for line in self.told.remedies}.issuperset(self.names)

    def is_paid_for(self, steps: int) -> bool:
        """All are on, but steps still hold what one takes once, compilation say."""
        return self._since is not None and self._goes_on(steps)

    def patience_s(self, steps: int) -> float:
        """How long a step may take, because one comes on or is about to; 0: no longer than usual."""
        return PATIENCE * sum(each.price_s for each in self._slow()) if self._goes_on(steps) else 0.0

    def _goes_on(self, steps: int) -> bool:
        longest = max((each.warm_up_steps for each in self._slow()), default=0)
        return longest > 0 and (self._since is None or steps - self._since < longest)

    def _slow(self) -> list[Remedy]:
        return [REGISTRY[name] for name in self.names if name in REGISTRY and REGISTRY[name].price_s]


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
        remedies=tuple(chosen.name for chosen in found.remedies),
    )


def variables(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The user's variables with trackers and hubs off.

    Args:
        folder: Of the study; experiments that are tracked to files go there, which is within the walls.
    """
    quiet = {**TRACKERS_OFF, "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns"}
    return {**HUBS_OFF, **env, **quiet}


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
    """The command and its variables, to be started beside another trial of the same command."""
    words, port = list(command), str(free())
    if (found := _launcher(words)) is not None:
        flag, behind = found
        end = _end_of_launcher(words)
        meets_here = OWN_ENDPOINT.search(" ".join([*words[:end], ""]))
        endpoint = ["--rdzv_endpoint", f"localhost:{port}"] if meets_here else []
        before = end - (words[end - 1] == "--")
        at = before if end < len(words) else behind  # a script that can't be told from a value
        words[at:at] = [flag, port, *endpoint]
    return words, {**env, "MASTER_PORT": port}


def _launcher(words: Sequence[str]) -> tuple[str, int] | None:
    """A launcher's flag for its port, and where its own words begin; None without one that needs a port."""
    for i, word in enumerate(words[: _end_of_launcher(words)]):
        name = MODULES.get(word, Path(word).name)
        if name == "accelerate" and words[i + 1 : i + 2] == ["launch"]:
            return PORT_FLAG[name], i + 2
        if (name == "accelerate" and word in MODULES) or (name in PORT_FLAG and name != "accelerate"):
            return PORT_FLAG[name], i + 1
    return None


def _end_of_launcher(words: Sequence[str]) -> int:
    """Where the script stands, or the module that is none of a launcher's."""
    script = script_of(words)
    starts = (i for i, word in enumerate(words) if is_python(word) or Path(word).name in PORT_FLAG)
    first = next(starts, 0)  # `numactl -m 0` before it names no module
    pairs = enumerate(itertools.pairwise(words[first:]), first)
    modules = (i for i, (word, its) in pairs if word in ("-m", "--module") and its not in MODULES)
    return min(len(words) if script is None else words.index(script), next(modules, len(words)))
