"""What a trial is started with: the command, variables that keep trackers quiet, limits, walls, a port.

Two trials live side by side, and launchers meet at one fixed port. So each gets a free one, by variables and
in the place of the port that the command names.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autobrrr import recipe
from autobrrr.agent.remedies.registry import Refused
from autobrrr.relaunch.trial.memory_use import available_bytes

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
