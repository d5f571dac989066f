"""A space for a script of which nothing was said: from its flags, its baseline's diagnosis, this machine.

In: what the script declares, advice, CPUs. Out: a few parameters; the user sees and accepts them before
they are used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.client.diagnosing import Patience, await_verdict
from autobrrr.client.session_client import open_session
from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.records import Advice, Diagnosis, ExactnessClass
from autobrrr.relaunch.search.argparse_flags import Declared, given_value
from autobrrr.relaunch.search.param_specs import doubled, flag_parameter, parse_parameter, remedy_parameter
from autobrrr.relaunch.search.search_space import BATCH, FEEDING, WORKERS, Parameter, accumulation
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.sidecar.process.session_options import SessionOptions

DIAGNOSIS_S = 15.0
MOST_REMEDIES = 3
BATCH_FACTORS = (1, 2, 4)
THREADS = "OMP_NUM_THREADS"


def proposed(
    *,
    command: Sequence[str],
    env: Mapping[str, str],
    declared: Mapping[str, Declared],
    advice: Sequence[Advice],
    allowed: Sequence[ExactnessClass],
    cores: int,
    cuda: bool,
) -> list[Parameter]:
    """Parameters worth a search on this script and machine; may be none."""
    found: list[Parameter] = []

    def propose(make: Callable[..., Parameter], *args: object) -> None:
        with contextlib.suppress(UsageError):  # nobody has asked for what can't be varied here
            found.append(make(*args))

    given = [word.partition("=")[0] for word in command]  # a script may know flags without argparse
    long_flags = [flag for flag in dict.fromkeys([*declared, *given]) if flag.startswith("--")]
    batch = next((flag for flag in long_flags if BATCH.match(flag)), None)
    now = None if batch is None else given_value(command, batch, declared)
    may_vary = "changes-training" in allowed or accumulation(command, declared) is not None
    if batch is not None and type(now) is int and may_vary:
        sizes = [max(1, now // 2), *(now * factor for factor in BATCH_FACTORS)]
        propose(flag_parameter, batch, list(dict.fromkeys(sizes)), True, command, declared)
    workers = next((flag for flag in long_flags if WORKERS.match(flag) and "worker" in flag), None)
    if workers is not None:
        propose(flag_parameter, workers, [0, *doubled(1, cores)], True, command, declared)
    if not cuda and cores > 1:
        counts = ",".join(str(count) for count in doubled(1, cores))
        propose(parse_parameter, f"env:{THREADS}=choice:{counts}", command, env, declared)
    covered = {"batch.larger"}
    covered |= {"threads.intra_op"} if not cuda else set()
    covered |= {name for name in REGISTRY if name.startswith("loader.workers")} if workers else set()
    wanted = [
        each.remedy
        for each in advice
        if (each.class_ in allowed or each.remedy.startswith(FEEDING))
        and each.reach != "edit"
        and each.remedy not in covered
    ]
    found += [remedy_parameter(name) for name in wanted[:MOST_REMEDIES] if name in REGISTRY]
    return found


def diagnosis_of(base: LiveTrial) -> Diagnosis | None:
    """What a session says of the baseline that runs; None where none could be had."""
    pid = base.witnesses.pid
    if pid is None:
        return None
    base.witnesses.rest()
    try:
        with open_session(pid, SessionOptions()) as client:
            found = await_verdict(client, Patience(for_s=DIAGNOSIS_S), lambda line: None)
            client.detach()
            return found
    except AutobrrrError:  # flags and threads can be proposed without
        return None
    finally:
        base.witnesses.return_()
