"""What every trial starts with: variables that keep trackers quiet, and walls where the kernel gives them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from autobrrr.relaunch.trial.memory_use import available_bytes
from autobrrr.relaunch.trial.trial_launch import Walls

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


def variables(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The user's variables with trackers and hubs off.

    Args:
        folder: Of the study; experiments that are tracked to files go there, which is within the walls.
    """
    quiet = {**TRACKERS_OFF, "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns"}
    return {**HUBS_OFF, **env, **quiet}


def walls(
    folder: Path, env: Mapping[str, str], open_folders: tuple[str, ...], root: Path = Path("/")
) -> Walls:
    """Walls for a script that works in `folder`."""
    temporary = env.get("TMPDIR", "/tmp")
    needed = [str(folder.resolve())]
    if os.path.isdir(temporary) and os.access(temporary, os.W_OK):
        needed.append(os.path.realpath(temporary))
    size = max(LEAST_BYTES, int(SHARE_OF_MEMORY * (available_bytes(root) or 0)))
    return Walls(size_bytes=size, needed=tuple(dict.fromkeys(needed)), open_folders=open_folders)
