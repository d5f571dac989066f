"""A port of its own for each trial: two trials live side by side, and launchers meet at one fixed port.

In: a command, its variables. Out: both with the rendezvous port replaced by a free one, where the launcher
or the variables name one or would take the usual one. What stands after the script is the script's own.
"""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autobrrr.machine.procfs import is_python
from autobrrr.recipe.script_flags import script_of

MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
}
PORT_FLAG = {"torchrun": "--master_port", "accelerate": "--main_process_port", "deepspeed": "--master_port"}
ENDPOINT = "--rdzv_endpoint"
OWN_HOST = re.compile(r"^(localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0)?:\d+$")
VARIABLE, OF_TORCHRUN = "MASTER_PORT", "PET_MASTER_PORT"


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def with_own_port(
    command: Sequence[str], env: Mapping[str, str], free: Callable[[], int] = free_port
) -> tuple[list[str], dict[str, str]]:
    """The command and its variables, to be started beside another trial of the same command."""
    words, variables, port = list(command), dict(env), str(free())
    variables[VARIABLE] = port
    found = _launcher(words)
    if found is None:
        return words, variables
    launcher, at = found
    flag = PORT_FLAG[launcher]
    end = _end_of_launcher(words)
    named = False
    for i in range(at + 1, end):
        name, equals, value = words[i].partition("=")
        name = name.replace("-", "_").replace("__", "--", 1)
        if name not in (flag, ENDPOINT):
            continue
        value = value if equals else (words[i + 1] if i + 1 < end else "")
        if name == ENDPOINT and not OWN_HOST.match(value):
            continue
        new = f"{value.rpartition(':')[0]}:{port}" if name == ENDPOINT else port
        named = named or name == flag
        if equals:
            words[i] = f"{words[i].partition('=')[0]}={new}"
        else:
            words[i + 1] = new
    if launcher == "torchrun":
        variables[OF_TORCHRUN] = port
    elif not named:
        words[at + 1 : at + 1] = [flag, port]
    return words, variables


def _launcher(words: Sequence[str]) -> tuple[str, int] | None:
    """Which launcher, and the last word that names it; None without one that needs a port."""
    for i, word in enumerate(words[: _end_of_launcher(words)]):
        name = MODULES.get(word, Path(word).name)
        if name == "accelerate" and words[i + 1 : i + 2] == ["launch"]:
            return name, i + 1
        if (name == "accelerate" and word in MODULES) or (name in PORT_FLAG and name != "accelerate"):
            return name, i
    return None


def _end_of_launcher(words: Sequence[str]) -> int:
    """Where the script stands, or the module that is none of a launcher's."""
    script = script_of(words)
    starts = (i for i, word in enumerate(words) if is_python(word) or Path(word).name in PORT_FLAG)
    first = next(starts, 0)  # `numactl -m 0` before it names no module
    pairs = enumerate(itertools.pairwise(words[first:]), first)
    modules = (i for i, (word, its) in pairs if word in ("-m", "--module") and its not in MODULES)
    return min(len(words) if script is None else words.index(script), next(modules, len(words)))
